"""Answers to serving questions: margins without a pool, advice that holds when it is followed, cards that people can get."""

import msgspec
import pytest

from vramcast.cli.pages.answer import serving_page
from vramcast.hardware.accelerator import catalogue
from vramcast.planning.serving import forecast_serving
from vramcast.serving.engines.base import SUPPORT, why_not
from vramcast.units import GiB
from vramcast.workload import Serving


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
def test_weights_beyond_the_card_count_in_what_is_missing(engine: str) -> None:
    fit = forecast_serving(Serving(model="meta-llama/Llama-3.3-70B-Instruct", gpu="RTX 4090", engine=engine)).fit
    assert fit.verdict == "no"
    assert fit.margin_bytes is not None and fit.margin_bytes < -130 * GiB


def test_layers_and_experts_on_the_host_are_advised_for_llama_cpp() -> None:
    """Where its own layout (--fit) is off."""
    question = Serving(model="Qwen/Qwen3-30B-A3B", gpu="RTX 3090", engine="llama_cpp", options={"fit": False})
    advice = forecast_serving(question).advice
    assert any("-ngl" in a.change for a in advice)
    assert any("--cpu-moe" in a.change for a in advice)


@pytest.mark.parametrize("engine", sorted(SUPPORT))
def test_only_cards_that_the_engine_starts_on_are_offered(engine: str) -> None:
    cards = forecast_serving(Serving(model="Qwen/Qwen2.5-7B-Instruct", engine=engine)).cards
    known = {c.name: c for c in catalogue().values()}
    assert cards
    assert not [row.gpu for row in cards if why_not(engine, known[row.gpu])]
    assert not [row.gpu for row in cards if "Laptop" in row.gpu]


def test_a_card_the_engine_does_not_start_on_is_said_before_the_ledger() -> None:
    answer = forecast_serving(Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="P40"))
    text = ["".join(text for text, _ in line) for line in serving_page(answer, terminal=False).lines]
    said = next(i for i, line in enumerate(text) if "vllm needs compute capability 7.0, Tesla P40 has 6.1" in line)
    assert said < text.index("Memory of one card at its peak (forward)")
    assert answer.assumed[0].value == "refused"


def test_advice_says_the_verdict_after_it() -> None:
    answer = forecast_serving(Serving(model="meta-llama/Llama-3.1-8B-Instruct", gpu="RTX 4080", engine="vllm"))
    assert answer.advice
    assert {a.then_fits for a in answer.advice if a.then_verdict == "fits"} == {True}
    assert {a.then_verdict for a in answer.advice if not a.then_fits} <= {"tight", "partly", "no"}


@pytest.mark.parametrize(
    ("fields", "because"),
    [
        ({"gpu": "V100 16GB", "engine": "sglang"}, "sglang needs compute capability 7.5, Tesla V100 SXM2 16GB has 7.0"),
        ({"gpu": "T4", "engine": "vllm", "dtype": "bfloat16"}, "asked for by name it is refused: use --dtype float16"),
        ({"gpu": "T4", "engine": "vllm", "dtype": "bf16"}, "asked for by name it is refused: use --dtype float16"),
    ],
)
def test_an_engine_that_does_not_start_does_not_fit_however_much_memory_is_left(
    fields: dict[str, str], because: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = forecast_serving(Serving(model="Qwen/Qwen2.5-0.5B-Instruct", context=4096, **fields))
    assert (answer.fit.verdict, answer.fit.refused, answer.fit.probability) == ("no", True, 0.0)
    assert because in answer.fit.error
    assert answer.fit.margin_bytes is not None and answer.fit.margin_bytes > 0
    assert answer.advice == ()
    serving_page(answer, terminal=False).show()
    assert f"DOES NOT START  {answer.fit.error}" in capsys.readouterr().out


def test_bfloat16_that_nobody_insists_on_is_run_in_fp16() -> None:
    answer = forecast_serving(Serving(model="Qwen/Qwen2.5-0.5B-Instruct", context=4096, gpu="T4", engine="vllm"))
    assert answer.fit.verdict == "fits"


def test_cards_of_one_size_are_those_with_most_bandwidth_for_their_price() -> None:
    rows = forecast_serving(Serving(model="Qwen/Qwen2.5-7B-Instruct", context=8192)).cards
    shown = [row.gpu for row in rows]
    assert {"GeForce RTX 3090", "GeForce RTX 4090", "Radeon RX 7900 XTX"} <= set(shown)
    assert not any("800" in name and "SXM" in name for name in shown)
    assert sum("A100" in name for name in shown) <= 2, "one form of a model"
    assert all(row.bandwidth_bytes_per_s for row in rows)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm", "tgi", "lmdeploy"])
def test_requests_of_known_lengths_take_the_cache_of_those_lengths(engine: str) -> None:
    """Where no context is asked, so many at once are of prompt and output; a context that is asked for is held for each."""
    asked = Serving(model="meta-llama/Llama-3.1-8B", gpu="H100", engine=engine, concurrency=8)
    lengths = msgspec.structs.replace(asked, prompt=1500, output=548)
    short, long = forecast_serving(lengths), forecast_serving(asked)
    same = forecast_serving(msgspec.structs.replace(asked, context=2048))
    assert short.worst.needed_bytes < long.worst.needed_bytes
    assert short.limits.max_concurrency == long.limits.max_concurrency < short.limits.max_requests
    if engine != "vllm":  # vLLM wants room for one whole context, whatever its requests are
        assert short.worst.needed_bytes == pytest.approx(same.worst.needed_bytes, rel=0.02)
    held = forecast_serving(msgspec.structs.replace(lengths, context=65536))
    assert held.worst.needed_bytes == forecast_serving(msgspec.structs.replace(asked, context=65536)).worst.needed_bytes
    assert long.limits.max_requests is None


def test_vllm_still_wants_room_for_one_whole_context() -> None:
    one = Serving(model="meta-llama/Llama-3.1-8B", gpu="H100", concurrency=1)
    lengths = msgspec.structs.replace(one, prompt=1000, output=24)
    assert forecast_serving(lengths).worst.needed_bytes == forecast_serving(one).worst.needed_bytes


def test_a_checkpoint_of_four_bits_is_not_quantised_again() -> None:
    """gpt-oss is stored in MXFP4: the files of llama.cpp are of that type, and no other four bits are advised."""
    answer = forecast_serving(Serving(model="openai/gpt-oss-120b", gpu="H100"))
    changes = [a.change for a in answer.advice]
    assert any("MXFP4_MOE" in change for change in changes)
    assert not any("awq" in change or "Q4_K_M" in change for change in changes)


@pytest.mark.parametrize("engine", ["ollama", "ik_llama_cpp"])
def test_programs_that_run_llama_cpp_are_as_fast(engine: str) -> None:
    asked = Serving(
        model="meta-llama/Llama-3.1-8B", gpu="RTX 4090", engine=engine, quant="Q4_K_M", context=8192, prompt=512, output=128
    )
    own, other = forecast_serving(asked), forecast_serving(msgspec.structs.replace(asked, engine="llama_cpp"))
    assert own.speed["tpot_s"] == pytest.approx(other.speed["tpot_s"], rel=0.05)
    assert any(a.name == "speed" and a.value == "llama_cpp" for a in own.assumed)
