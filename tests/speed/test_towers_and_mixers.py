"""Time of images in the first token, and of mixers that have no measured kernel."""

import msgspec
import pytest

from vramcast.asking.serving import serving_question
from vramcast.errors import QuestionError
from vramcast.models.operations import Batch, Recurrence
from vramcast.planning.serving import forecast_serving
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import serving_speed, step_of
from vramcast.speed.load import Load
from vramcast.speed.simulation import simulate
from vramcast.speed.step import Step
from vramcast.speed.towers import images_in, tower_term


def _answer(model: str, gpu: str = "H100", **words):
    return answer_of(serving_question(model, gpu=gpu, **{"prompt": 200, "output": 64, **words}).question)


@pytest.mark.parametrize(
    ("model", "words", "patches", "tokens"),
    [
        ("google/gemma-3-27b-it", {}, 4096, 256),
        ("llava-hf/llava-1.5-7b-hf", {}, 576, 576),
        ("OpenGVLab/InternVL3-8B", {}, 13 * 1024, 13 * 256),
        ("OpenGVLab/InternVL3-8B", {"image_patches": 1024}, 1024, 256),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"image_patches": 4000}, 4000, 1000),
    ],
)
def test_an_image_is_as_many_patches_and_tokens_as_its_preprocessor_makes(model, words, patches, tokens) -> None:
    answer = _answer(model, images=1, **words)
    images, _ = images_in(answer.resolved.model, answer.resolved.question.traffic)
    assert (images.patches, images.tokens) == (patches, tokens)


def test_who_leaves_the_size_of_tiled_images_open_is_told_what_was_taken() -> None:
    for words, told in (({}, ["image_patches"]), ({"image_patches": 1024}, [])):
        answer = _answer("OpenGVLab/InternVL3-8B", images=1, **words)
        assumed = images_in(answer.resolved.model, answer.resolved.question.traffic)[1]
        assert [one.name for one in assumed] == told


def test_images_count_as_tokens_and_as_the_time_of_their_tower() -> None:
    text, two = (serving_speed(_answer("google/gemma-3-27b-it", images=n)) for n in (0, 2))
    term = next(part for part in two.ttft.terms if part.name == "images")
    assert two.load.prompt == text.load.prompt + 2 * 256
    assert two.ttft.seconds == pytest.approx(sum(part.seconds for part in two.ttft.terms))
    assert two.ttft.seconds > text.ttft.seconds + term.seconds
    # 2 x 0.43e9 parameters x 8,192 patches at the peak, and not three times as long
    least = 2 * 0.41e9 * 2 * 4096 / 989e12
    assert least < term.seconds < 4 * least


def test_the_tower_takes_twice_as_long_for_twice_the_images() -> None:
    answer = _answer("Qwen/Qwen2.5-VL-7B-Instruct", images=4, image_patches=4096)
    step, model = step_of(answer), answer.resolved.model
    four, _ = images_in(model, answer.resolved.question.traffic)
    eight, _ = images_in(model, _answer(model.id, images=8, image_patches=4096).resolved.question.traffic)
    assert tower_term(step, eight).seconds == pytest.approx(2 * tower_term(step, four).seconds, rel=0.1)


def test_windows_of_a_tower_cost_less_than_whole_images() -> None:
    answer = _answer("Qwen/Qwen2.5-VL-7B-Instruct", images=1, image_patches=16384)
    step, images = step_of(answer), images_in(answer.resolved.model, answer.resolved.question.traffic)[0]
    tower = answer.resolved.model.towers[0]
    facts = {name: value for name, value in tower.facts.items() if name != "window_size"}
    model = msgspec.structs.replace(answer.resolved.model, towers=(msgspec.structs.replace(tower, facts=facts),))
    whole = Step(msgspec.structs.replace(step.on, model=model))
    assert tower_term(step, images).seconds < 0.8 * tower_term(whole, images).seconds


def test_the_simulation_encodes_each_prompt_once() -> None:
    step = step_of(_answer("Qwen/Qwen3-8B"))
    plain, seen = (
        simulate(step, Load(prompt=20_000, output=8, rate_per_s=0.01, encode_s=encode), count=20) for encode in (0.0, 0.5)
    )
    more = sum(b.ttft_s - a.ttft_s for a, b in zip(plain, seen, strict=True)) / len(plain)
    assert more == pytest.approx(0.5, rel=0.02)


def test_the_size_that_was_assumed_is_said_and_models_without_a_tower_are_refused() -> None:
    found = forecast_serving(serving_question("Qwen/Qwen2.5-VL-7B-Instruct", gpu="H100", prompt=100, images=1).question)
    assert any(one.name == "image_patches" for one in found.assumed)
    with pytest.raises(QuestionError, match="no vision tower: leave --images out"):
        serving_speed(_answer("Qwen/Qwen3-8B", images=1))
    with pytest.raises(QuestionError, match="images is"):
        serving_question("Qwen/Qwen3-8B", gpu="H100", prompt=100, images=10**9)


@pytest.mark.parametrize(
    ("model", "gpu"),
    [("MiniMaxAI/MiniMax-Text-01", "H200x8"), ("tiiuae/falcon-mamba-7b", "H100"), ("LiquidAI/LFM2-1.2B", "H100")],
)
def test_every_mixer_takes_at_least_the_time_its_bytes_need_and_grows_with_tokens(model: str, gpu: str) -> None:
    step = step_of(_answer(model, gpu))
    one = next(one for one in step.by_context if isinstance(one, Recurrence))
    times = []
    for tokens in (512, 4096, 32768):
        batch = Batch(prefills=1, prefill_tokens=tokens)
        times.append(step._prefill(one, batch).seconds)
        assert times[-1] > one.flops(batch) / step.on.card.flops["bf16"]
    assert times[0] < times[1] < times[2]
    decode = Batch(decodes=64, decode_past=1000)
    assert step._decode(one, decode).seconds > one.read_bytes(decode) / step.on.card.bandwidth_bytes_per_s


def test_a_selective_scan_is_bound_by_its_exponentials() -> None:
    step = step_of(_answer("tiiuae/falcon-mamba-7b"))
    one = next(one for one in step.by_context if isinstance(one, Recurrence))
    found = step._prefill(one, Batch(prefills=1, prefill_tokens=16384))
    exponentials = 16384 * one.mixer.state_elements
    cycles = 132 * 1.98e9
    assert found.seconds >= exponentials / (16 * cycles)
    assert found.parts["compute"] > 0


def test_sparse_modules_answer_for_a_16_bit_cache() -> None:
    step = step_of(_answer("deepseek-ai/DeepSeek-V4-Flash", "H200x8", kv_dtype="bfloat16"))
    assert step.seconds(Batch(prefills=1, prefill_tokens=4096)) > 0
