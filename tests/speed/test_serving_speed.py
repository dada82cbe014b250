"""Steps, the closed form and the simulation against each other and against what must hold for any server."""

import msgspec
import pytest

from vramcast.asking.serving import serving_question
from vramcast.errors import QuestionError
from vramcast.models.operations import Batch
from vramcast.planning.serving import forecast_serving
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import serving_speed, step_of
from vramcast.speed.closed_form import steady
from vramcast.speed.load import Drafting, Load, Request, drawn
from vramcast.speed.simulation import Server, simulate
from vramcast.speed.step import Step


def _answer(model="Qwen/Qwen3-14B", gpu="H100", **words):
    asked = serving_question(model, gpu=gpu, **{"prompt": 1024, "output": 128, "context": 8192, **words})
    return answer_of(asked.question)


@pytest.fixture(scope="module")
def step() -> Step:
    return step_of(_answer())


def _mean(served, name):
    return sum(getattr(one, name) for one in served) / len(served)


@pytest.mark.parametrize("batch", [Batch(decodes=8, decode_past=1000), Batch(prefills=1, prefill_tokens=1024)])
def test_the_ledger_sums_to_the_step(step: Step, batch: Batch) -> None:
    assert step.ledger(batch).seconds == pytest.approx(step.seconds(batch), rel=1e-6)
    assert sum(step.binding(batch).values()) == pytest.approx(step.seconds(batch), rel=1e-6)


def test_a_decode_step_takes_at_least_the_time_its_bytes_need(step: Step) -> None:
    batch = Batch(decodes=4, decode_past=2000)
    moved = sum(one.count * one.read_bytes(batch) for one in step.on.operations)
    assert step.seconds(batch) > moved / step.on.card.bandwidth_bytes_per_s


def test_more_context_more_sequences_more_time(step: Step) -> None:
    times = [step.seconds(Batch(decodes=n, decode_past=past)) for n, past in ((1, 100), (1, 8000), (64, 8000), (256, 8000))]
    assert times == sorted(times)


def test_tensor_parallel_is_faster_and_pays_for_its_link() -> None:
    one, four = step_of(_answer()), step_of(_answer(gpu="H100x4"))
    batch = Batch(decodes=16, decode_past=1000)
    assert one.seconds(batch) / 4 < four.seconds(batch) < one.seconds(batch)
    assert four.ledger(batch).find("communication").seconds > 0
    slow = step_of(_answer(gpu="H100x4", link="pcie4"))
    assert slow.ledger(batch).find("communication").seconds > four.ledger(batch).find("communication").seconds


def test_quantised_weights_decode_faster() -> None:
    plain, awq = step_of(_answer(gpu="A100-80G")), step_of(_answer(gpu="A100-80G", quant="awq"))
    batch = Batch(decodes=1, decode_past=500)
    assert awq.seconds(batch) < 0.7 * plain.seconds(batch)


def test_closed_form_and_simulation_agree_where_arrivals_are_random(step: Step) -> None:
    load = Load(prompt=1024, output=128, rate_per_s=5)
    served, found = simulate(step, load), steady(step, load)
    assert found.tpot_s == pytest.approx(_mean(served, "tpot_s"), rel=0.06)
    assert found.ttft_s == pytest.approx(_mean(served, "ttft_s"), rel=0.15)


def test_one_client_alone_meets_nobody(step: Step) -> None:
    load = Load(prompt=512, output=64, concurrency=1)
    served, found = simulate(step, load, count=20), steady(step, load)
    assert found.ttft_s == pytest.approx(_mean(served, "ttft_s"), rel=1e-6)


def test_littles_law_holds_in_the_simulation(step: Step) -> None:
    server = Server(step, Load(prompt=512, output=64, concurrency=32))
    served = server.run(drawn(server.load, 1000), clients=32)
    alive = sum(one.e2e_s for one in served) / server.now
    assert alive == pytest.approx(32, rel=0.05)


def test_the_same_seed_gives_the_same_run(step: Step) -> None:
    load = Load(prompt=300, output=50, rate_per_s=8, spread=0.5)
    assert simulate(step, load, count=300) == simulate(step, load, count=300)
    assert simulate(step, load, count=300) != simulate(step, load, count=300, seed=1)


def test_every_request_gets_all_its_tokens_under_preemption(step: Step) -> None:
    small = Step(msgspec.structs.replace(step.on, pool_tokens=4000))
    server = Server(small, Load(prompt=500, output=400, concurrency=16))
    served = server.run(drawn(server.load, 64), clients=16)
    assert len(served) == 64
    assert any(one.preempted for one in served)
    assert all(0 < one.ttft_s <= one.e2e_s for one in served)


@pytest.mark.parametrize(("spare", "watermark", "together"), [(0, 0.0, 4), (100, 0.0, 3), (0, 0.05, 3)])
def test_prompts_are_let_in_while_the_cache_has_room_for_them(step: Step, spare: int, watermark: float, together: int) -> None:
    """Four prompts fill the cache to a few tokens: vLLM V1 lets all in at once, an allowance or a watermark one less."""
    rule = msgspec.structs.replace(step.on.engine, spare_tokens=spare, watermark=watermark)
    small = Step(msgspec.structs.replace(step.on, pool_tokens=4050, engine=rule, chunk_tokens=1000))
    served = Server(small, Load(prompt=1000, output=1, concurrency=4)).run([Request(0, 1000, 30) for _ in range(4)], clients=4)
    first = [one.ttft_s for one in served]
    assert sum(one < 6 * min(first) for one in first) == together


def test_decodes_outside_graphs_wait_for_their_launches() -> None:
    """A small model is launched slower than it runs: by choice, or beyond the contexts that the graphs of old releases hold."""
    batch = Batch(decodes=1, decode_past=1000)
    plain, eager = (step_of(_answer("Qwen/Qwen3-0.6B", options=options)) for options in ({}, {"enforce_eager": True}))
    assert eager.seconds(batch) > 2 * plain.seconds(batch)
    assert eager.ledger(batch).find("launch").seconds > 0
    large = [step_of(_answer("Qwen/Qwen3-32B", gpu="A100-80G", options=o)).seconds(batch) for o in ({}, {"enforce_eager": True})]
    assert large[0] == large[1]
    old = step_of(_answer("Qwen/Qwen2-0.5B", engine="vllm==0.4.2", context=32768))
    short, long = (old.seconds(Batch(decodes=1, decode_past=past)) for past in (8000, 8400))
    assert long > 1.5 * short


def test_a_long_prompt_takes_several_steps_and_holds_others_up(step: Step) -> None:
    short = Step(msgspec.structs.replace(step.on, chunk_tokens=512))
    load = Load(prompt=4096, output=8, rate_per_s=0.1)
    quick, slow = _mean(simulate(step, load, count=20), "ttft_s"), _mean(simulate(short, load, count=20), "ttft_s")
    assert slow > quick


def test_cached_prompts_shorten_the_first_token_only(step: Step) -> None:
    fresh, cached = (steady(step, Load(prompt=4096, output=64, concurrency=1, cached=share)) for share in (0.0, 0.9))
    assert cached.ttft_s < 0.5 * fresh.ttft_s
    assert cached.tpot_s == pytest.approx(fresh.tpot_s)


def test_drafting_helps_while_bandwidth_binds() -> None:
    drafting = Drafting(tokens=3, acceptance=0.8)
    assert drafting.per_step == pytest.approx((1 - 0.8**4) / 0.2)
    step = step_of(_answer())
    plain = steady(step, Load(prompt=512, output=256, concurrency=1))
    drafted = steady(step, Load(prompt=512, output=256, concurrency=1, drafting=drafting))
    assert plain.tpot_s / drafting.per_step <= drafted.tpot_s < plain.tpot_s


def test_a_trace_is_replayed_in_its_own_time(step: Step) -> None:
    trace = (Request(0.0, 100, 10), Request(5.0, 100, 10))
    served = simulate(step, Load(prompt=100, output=10, rate_per_s=1, trace=trace))
    assert [one.arrival_s for one in served] == [0.0, 5.0]
    assert served[0].e2e_s == pytest.approx(served[1].e2e_s, rel=0.05)


def test_the_answer_names_what_binds() -> None:
    decode = serving_speed(_answer(prompt=64, output=1000, concurrency=1))
    prompts = serving_speed(_answer(prompt=8000, output=4, concurrency=16))
    assert decode.bound == "bandwidth"
    assert prompts.bound == "compute"
    assert "textbook" in decode.tpot.why
    assert decode.tpot.seconds == pytest.approx(sum(part.seconds for part in decode.tpot.terms))


def test_layers_on_the_cpu_slow_llama_cpp_down() -> None:
    words = {"engine": "llama.cpp", "quant": "Q4_K_M", "concurrency": 1}
    whole = serving_speed(_answer("Qwen/Qwen3-8B", "RTX 4090", **words))
    half = serving_speed(_answer("Qwen/Qwen3-8B", "RTX 4090", options={"n_gpu_layers": 18}, **words))
    assert half.tpot.seconds > 3 * whole.tpot.seconds


def test_lengths_beyond_the_context_are_refused() -> None:
    with pytest.raises(QuestionError, match="longer than the context of 2,048"):
        serving_speed(_answer(context=2048, prompt=2000, output=100))


@pytest.mark.parametrize(
    "fields", [{"concurrency": 1, "rate_per_s": 2.0}, {}, {"rate_per_s": float("nan")}, {"concurrency": 1, "cached": 1.5}]
)
def test_a_load_that_cannot_be_is_refused(fields) -> None:
    with pytest.raises(QuestionError):
        Load(prompt=10, output=10, **fields)


def test_percentiles_have_the_bars_of_their_kind_of_load_while_the_queue_is_steady() -> None:
    calm, clients, full = (
        forecast_serving(_answer(**words).resolved.question).speed for words in (
            {"rate": 4}, {"concurrency": 4, "slo": "ttft=1s"}, {"rate": 500},
        )
    )  # fmt: skip
    bars = calm["percentiles"]["ttft_s"]["intervals"]
    for place in ("p50", "p90", "p99"):
        assert bars[place]["low_s"] < calm["percentiles"]["ttft_s"][place] < bars[place]["high_s"]
    assert bars["p99"]["high_s"] / bars["p99"]["low_s"] > 0.9999 * bars["p50"]["high_s"] / bars["p50"]["low_s"]
    assert (
        0.9999 * bars["p50"]["low_s"]
        <= calm["percentiles"]["ttft_s"]["p50"] * calm["intervals"]["ttft_s"]["low_s"] / calm["ttft_s"]
    )
    assert "intervals" not in clients["percentiles"]["ttft_s"]
    assert "intervals" not in full["percentiles"]["ttft_s"]


def test_micro_batches_of_llama_cpp_are_read_again_and_fill_further_cards() -> None:
    def first(gpu: str, micro: int) -> float:
        flags = {"n_ubatch": micro, "n_batch": 2048}
        words = {"engine": "llama.cpp", "quant": "Q4_K_M", "prompt": 4000, "output": 10, "options": flags}
        return serving_speed(_answer("Qwen/Qwen3-8B", gpu, **words)).ttft.seconds

    assert first("RTX 4090", 16) > 1.5 * first("RTX 4090", 512)  # the file once for every 16 tokens
    assert first("RTX 4090x2", 2048) > 1.4 * first("RTX 4090x2", 512)  # one micro-batch fills one card at a time


def test_machines_of_a_card_are_joined_by_their_own_rails() -> None:
    h100, a100 = (
        step_of(_answer("meta-llama/Llama-3.1-70B-Instruct", f"{gpu}x16", tp=16)).on.fabric for gpu in ("H100", "A100-80G")
    )
    assert (h100.rail_bytes_per_s, a100.rail_bytes_per_s) == (50e9, 25e9)
