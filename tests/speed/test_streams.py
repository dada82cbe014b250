"""Engines without kernel tables: which constants hold for a card, and what each of their terms does to a step."""

import msgspec
import pytest

from vramcast.asking.serving import serving_question
from vramcast.hardware.cards import parse_gpus
from vramcast.models.operations import Batch
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import serving_speed, step_of
from vramcast.speed.kernels.machine import card_class, cycles_per_s, readable_bytes_per_s, shifts_per_s
from vramcast.speed.step import Step
from vramcast.speed.stream_rows import ROWS
from vramcast.speed.streams import stream_of

ONE = Batch(decodes=1, decode_past=1000)


def _card(name: str):
    return parse_gpus(name).cards[0]


def _answer(model="meta-llama/Llama-3.1-8B-Instruct", **words):
    asked = serving_question(
        model, **{"gpu": "4090", "engine": "llama.cpp", "context": 8192, "prompt": 512, "output": 128, **words}
    )
    return answer_of(asked.question)


def _with(step: Step, **changes) -> Step:
    return Step(step.on, stream=msgspec.structs.replace(step.stream, **changes))


@pytest.mark.parametrize(
    ("engine", "card", "version", "expected"),
    [
        ("llama_cpp", "M1 Max", (3000,), {"unpack": 12.5, "cache_cycle": 1.0}),
        ("llama_cpp", "M3 Max", (3000,), {"unpack": 3.0}),
        ("llama_cpp", "M1 Max", (9900,), {"unpack": 7.0, "cache_cycle": 0.0, "score_passes": 0.0}),
        ("llama_cpp", "RX 7900 XTX", (9900,), {"bandwidth": 0.87}),
        ("llama_cpp", "GB10", (9900,), {"bandwidth": 0.83}),
        ("llama_cpp", "M4 Pro", (6000,), {"layer_s": 147e-6}),
        ("llama_cpp", "M4 Pro", (9900,), {"layer_s": 80e-6, "delta_s": 130e-6}),
        ("llama_cpp", "M1 Ultra", (9900,), {"layer_s": 147e-6, "unpack": 7.0}),
        ("llama_cpp", "M3 Ultra", (9900,), {"layer_s": 147e-6, "unpack": 2.3}),
        ("transformers", "H100", (4, 51), {"expands": True, "loops": "all"}),
        ("transformers", "A100-80G", (4, 57), {"expands": False, "loops": "hit"}),
        ("tinychat", "Jetson AGX Orin 64GB", (2,), {"bandwidth": 0.79}),
        ("autoawq", "RTX 4090", (0, 2), {"bandwidth": 0.81, "layer_s": 52e-6, "compute": 0.42}),
        ("autoawq", "A100-80G", (0, 2), {"layer_s": 450e-6, "compute": 0.42}),
        ("autoawq_gemv", "RTX 4090", (0, 2), {"row_share": 0.35, "compute": 0.42}),
    ],
)
def test_the_row_of_a_card_and_release(engine: str, card: str, version: tuple[int, ...], expected: dict[str, object]) -> None:
    row = stream_of(engine, _card(card), version)
    assert row is not None
    assert {name: getattr(row, name) for name in expected} == expected


def test_a_server_launches_eager_layers_slower_than_a_newer_one() -> None:
    old, new = (stream_of("transformers", _card(name), (4, 57)) for name in ("A100-80G", "H100"))
    assert old is not None
    assert new is not None
    assert old.layer_s > 1.2 * new.layer_s


def test_every_row_names_its_source_and_a_share_below_one() -> None:
    for row in ROWS:
        assert row.source
        assert 0 < row.bandwidth < 1
        assert 0 <= row.compute < 1


def test_cycles_from_the_fp32_rate() -> None:
    assert cycles_per_s(_card("A100-80G")) == pytest.approx(108 * 1.41e9, rel=0.01)
    assert cycles_per_s(_card("4090")) == pytest.approx(128 * 2.52e9, rel=0.01)


def test_boards_with_code_in_their_memory_read_less() -> None:
    assert readable_bytes_per_s(_card("A40")) == pytest.approx(0.93 * 696e9)
    assert readable_bytes_per_s(_card("RTX 3090")) == 936e9
    assert readable_bytes_per_s(_card("A100-80G")) == _card("A100-80G").bandwidth_bytes_per_s


def test_cache_bound_by_cycles_grows_with_the_context_and_not_with_bandwidth() -> None:
    step = step_of(_answer(engine="llama.cpp==b3000"))
    long = Batch(decodes=1, decode_past=8000)
    bound = step.seconds(long) - step.seconds(ONE)
    read = 7000 * 32 * 2 * 8 * 128 * 2
    assert bound == pytest.approx(read / (cycles_per_s(step.on.card) * step.stream.cache_cycle), rel=0.01)
    assert _with(step, cache_cycle=0.0).seconds(long) < step.seconds(long)


def test_repeated_heads_move_the_cache_many_times() -> None:
    step = step_of(_answer(engine="transformers==4.46.0", gpu="A100-80G", quant=None))
    long = Batch(decodes=1, decode_past=60_000)
    plain = _with(step, expands=False)
    # cat reads and writes the cache, repeating reads it and writes four times as much, attention reads that: 3 + 2 x 4 times.
    ratio = step.decode_seconds(long) / plain.decode_seconds(long)
    assert ratio == pytest.approx(11, rel=0.01)


def test_an_eager_host_hides_the_gpu_unless_modules_wait_for_it() -> None:
    step = step_of(_answer(engine="transformers==4.51.3", gpu="H100", model="Qwen/Qwen3-0.6B"))
    assert step.seconds(ONE) - step.host_seconds(1) == pytest.approx(step.beside.host_s)
    waiting = _with(step, waits=("bfloat16",))
    assert waiting.seconds(ONE) > step.seconds(ONE)


def test_modules_and_looped_experts_cost_host_time() -> None:
    plain, awq = (step_of(_answer(engine="transformers", gpu="H100", quant=q)) for q in (None, "awq"))
    each = dict(plain.stream.module_s)["awq"]
    assert awq.beside.host_s - plain.beside.host_s == pytest.approx(32 * 7 * each)
    looped = [
        step_of(_answer("Qwen/Qwen3-30B-A3B", engine=f"transformers=={v}", gpu="H100", quant=None)) for v in ("4.51.3", "4.57.0")
    ]
    assert looped[0].beside.host_s - looped[1].beside.host_s == pytest.approx(48 * (128 - 8) * plain.stream.expert_s)


def test_experts_on_the_host_are_bound_by_its_memory_and_their_hand_over() -> None:
    made = [
        step_of(_answer("openai/gpt-oss-120b", gpu="3090", flags=("--cpu-moe",), host_bandwidth=r)) for r in ("50GB/s", "100GB/s")
    ]
    slow, fast = (one.seconds(ONE) for one in made)
    assert fast < slow < 2 * fast
    assert made[0].beside.gpu_s == pytest.approx(36 * 200e-6, rel=0.01)


def test_the_host_memory_that_nobody_named_is_assumed_aloud() -> None:
    silent = serving_speed(_answer("openai/gpt-oss-120b", gpu="3090", flags=("--cpu-moe",)))
    said = serving_speed(_answer("openai/gpt-oss-120b", gpu="3090", flags=("--cpu-moe",), host_bandwidth="90GB/s"))
    assert any(one.name == "host_bandwidth" for one in silent.assumed)
    assert not any(one.name == "host_bandwidth" for one in said.assumed)
    assert said.tpot.seconds < silent.tpot.seconds


def test_one_user_is_asked_where_nobody_says_how_many() -> None:
    assert serving_speed(_answer()).load.concurrency == 1


def test_kernels_that_walk_rows_cost_by_row() -> None:
    step = step_of(_answer(quant="Q4_K_M"))
    walked = _with(step, row_share=0.3)
    assert walked.rows_seconds(1, 1) == step.rows_seconds(1, 1)
    assert walked.rows_seconds(8, 8) > 2 * step.rows_seconds(1, 1)


def test_micro_batches_of_a_prompt_read_the_weights_again() -> None:
    step = step_of(_answer("openai/gpt-oss-120b", gpu="GB10", quant="MXFP4"))
    once = _with(step, micro_rows=0)
    short, long = (Batch(prefills=1, prefill_tokens=n) for n in (512, 2048))
    assert once.seconds(short) == step.seconds(short)
    experts = sum(one.count * one.routed * one.expert_bytes for one in step.on.operations if hasattr(one, "expert_bytes"))
    floor = 4 * experts * 0.99 / step.on.card.bandwidth_bytes_per_s
    assert once.seconds(long) < floor < step.seconds(long)


@pytest.mark.parametrize(("cards", "tokens", "faster"), [(2, 512, 1.0), (2, 2048, 1.6), (4, 2048, 16 / 7), (4, 8192, 16 / 7)])
def test_prompts_run_as_a_pipeline_of_micro_batches(cards: int, tokens: int, faster: float) -> None:
    batch = Batch(prefills=1, prefill_tokens=tokens)
    one, many = (step_of(_answer(gpu=f"4090x{n}", quant="Q8_0", context=16384)) for n in (1, cards))
    busy = [step.seconds(batch) - step.beside.host_s - step.beside.gpu_s - step.host_seconds(1) for step in (one, many)]
    assert busy[0] / busy[1] == pytest.approx(faster, rel=1e-3)


def test_classes_of_rows_are_classes_of_cards() -> None:
    known = {
        card_class(_card(n)) for n in ("A100-80G", "H100", "4090", "A40", "RTX 6000 Ada", "B200", "M3 Max", "T4", "P40", "V100")
    }
    named = {kind for row in ROWS if row.engine == "llama_cpp" for kind in row.classes}
    assert named - known <= {"blackwell_pro", "turing_pro"}


@pytest.mark.parametrize(
    ("card", "version", "model", "tokens_per_s"),
    [
        # dmatora/LLM-inference-speed-benchmarks#12: b3622 of August 2024
        ("3080 10GB", "3622", "meta-llama/Llama-3.1-8B-Instruct", 3807),
        # danielesalpietro/kickstart-berlin#58: a build of August 2026
        ("3090", "9900", "Qwen/Qwen2.5-7B-Instruct", 5554),
    ],
)
def test_quantised_prompts_run_on_int8_tensor_cores(card, version, model, tokens_per_s) -> None:
    words = {"model": model, "gpu": card, "quant": "Q4_K_M"}
    prompt = Batch(prefills=1, prefill_tokens=512)
    found = 512 / step_of(_answer(engine=f"llama.cpp=={version}", **words)).seconds(prompt)
    assert found == pytest.approx(tokens_per_s, rel=0.1)
    before = 512 / step_of(_answer(engine="llama.cpp==3000", **words)).seconds(prompt)
    assert before < 0.8 * found


def test_hbm_outruns_the_loads_that_an_sm_has_in_flight() -> None:
    """7.2 bytes in a cycle of an SM: an A100 of 40 GB streams as fast as one of 80, at half of the larger's memory rate."""
    small, large = (_step_on(name) for name in ("A100-40G", "A100-80G"))
    assert small == pytest.approx(large, rel=0.02)
    card = _card("A100-80G")
    assert 7.2 * cycles_per_s(card) == pytest.approx(0.53 * card.bandwidth_bytes_per_s, rel=0.03)


def _step_on(gpu: str) -> float:
    return float(step_of(_answer(gpu=gpu, quant="Q4_K_M")).seconds(ONE))


def test_layers_that_route_or_keep_a_delta_state_cost_more_kernels() -> None:
    """One Qwen3.5-35B-A3B layer routes; three of four are gated delta nets: 40 and 30 of its 40."""
    step = step_of(_answer("Qwen/Qwen3.5-35B-A3B", quant="Q4_K_M", gpu="RTX PRO 6000 Blackwell"))
    bare = _with(step, routed_s=0.0, delta_s=0.0)
    batch = Batch(decodes=1, decode_past=100)
    more = step.seconds(batch) - bare.seconds(batch)
    assert more == pytest.approx(40 * step.stream.routed_s + 30 * step.stream.delta_s)


def test_turing_shifts_with_all_lanes_and_later_cards_with_half() -> None:
    assert shifts_per_s(_card("RTX 2080")) == _card("RTX 2080").flops["fp32"]
    assert shifts_per_s(_card("RTX 4090")) == _card("RTX 4090").flops["fp32"] / 2
