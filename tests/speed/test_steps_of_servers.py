"""What a server's step has that a benchmark of one kernel has not, and the reverse: harness, mixed calls, saturation."""

import msgspec
import pytest

from vramcast.asking.serving import serving_question
from vramcast.hardware.cards import find_accelerator
from vramcast.models.operations import Batch, Exchange
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import serving_speed, step_of
from vramcast.speed.kernels.attention import beside_prompts, decode_attention
from vramcast.speed.kernels.gemm import gemm
from vramcast.speed.kernels.harness import LEAST_S, REPLAY_S, START_S, in_step, overhead_s
from vramcast.speed.kernels.machine import backend
from vramcast.speed.load import Load, Request
from vramcast.speed.simulation import Server
from vramcast.truth.speed_bars import speed_interval, speed_intervals


def _answer(model="Qwen/Qwen3-14B", gpu="H100", engine="vllm==0.23", **words):
    asked = serving_question(model, gpu=gpu, engine=engine, **{"prompt": 1024, "output": 128, "context": 4096, **words})
    return answer_of(asked.question)


def test_a_kernel_of_a_step_has_not_its_benchmarks_start() -> None:
    found = gemm(card=find_accelerator("H100"), m=8, n=8192, k=8192, backend="vllm/cublas")
    assert found.seconds - in_step(found).seconds == pytest.approx((START_S / 6 + REPLAY_S) / 6)
    assert in_step(found).parts["bandwidth"] == found.parts["bandwidth"]


def test_a_table_timed_otherwise_is_left_alone() -> None:
    assert overhead_s("gemm", "cublas", "bf16") == overhead_s("all_reduce", "vllm", "2") == 0


def test_a_launch_never_falls_below_the_gap_between_kernels() -> None:
    found = gemm(card=find_accelerator("H100"), m=8, n=8192, k=8192, backend="vllm/cublas")
    short = msgspec.structs.replace(found, parts={**found.parts, "launch": 1.1e-6})
    assert in_step(short).parts["launch"] == pytest.approx(LEAST_S)


@pytest.mark.parametrize(("kernel", "slower"), [("vllm/fa2", True), ("vllm/trtllm_gen", False)])
def test_decodes_beside_a_prompt_take_whole_tiles_where_both_share_a_call(kernel: str, slower: bool) -> None:
    card = find_accelerator("RTX PRO 6000")
    alone = decode_attention(
        card=card, batch=64, context_tokens_sum=64 * 2048, heads=64, kv_heads=8, head_dim=128, backend="vllm/fa2"
    )
    mixed = beside_prompts(alone, card=card, context_tokens_sum=64 * 2048, heads=64, key_value_dim=256, backend=kernel)
    # LLMServingSim's table of mixed steps: 2.9 times at 64 heads over 8, contexts of 1,500 to 5,000.
    assert (2 < mixed.seconds / alone.seconds < 4) if slower else mixed.seconds == alone.seconds


def test_a_mixed_step_is_longer_than_its_parts_on_hopper() -> None:
    step = step_of(_answer())
    alone = Batch(decodes=128, decode_past=2000)
    # The launch is the prompt's, so that few short sequences gain; many long ones take tiles of 85 rows for 40 heads.
    mixed = msgspec.structs.replace(alone, prefills=1, prefill_tokens=1024)
    assert step.decode_seconds(alone, beside=True) > 1.2 * step.decode_seconds(alone)
    assert step.ledger(mixed).seconds == pytest.approx(step.seconds(mixed), rel=1e-3)  # rows of logits are padded


def test_each_engines_build_has_its_own_products() -> None:
    card = find_accelerator("H100")
    names = {backend(engine=e, operator="gemm", card=card).name for e in ("vllm", "sglang", "tensorrt_llm")}
    assert names == {"vllm/cublas", "sglang/cublas", "trtllm/cublas"}
    times = {name: gemm(card=card, m=16, n=28672, k=8192, backend=name).seconds for name in names}
    # Measured medians of weights above 60 MB at m <= 16: TensorRT-LLM's 6.4 % and SGLang's 4.5 % above vLLM's.
    assert 1.02 < times["trtllm/cublas"] / times["vllm/cublas"] < 1.10


def test_four_bit_products_by_release() -> None:
    card = find_accelerator("B200")
    names = [backend(version=v, operator="gemm", card=card, precision="nvfp4").name for v in ((0, 20, 1), (0, 21))]
    assert names == ["trtllm", "cutedsl"]


def test_a_norm_over_all_heads_is_an_exchange_between_ranks() -> None:
    def exchanged(model: str, gpu: str) -> set[str]:
        return {one.name for one in step_of(_answer(model, gpu=gpu)).on.operations if isinstance(one, Exchange)}

    assert "norm of all heads" in exchanged("MiniMaxAI/MiniMax-M2.5", "H200x4")
    assert "norm of all heads" not in exchanged("Qwen/Qwen3-14B", "H100x2")


@pytest.mark.parametrize(("rate", "state"), [(4, "steady"), (16.5, "near saturation"), (60, "saturated")])
def test_near_the_largest_rate_times_have_a_lower_end_alone(rate: float, state: str) -> None:
    answer = _answer(rate=rate)
    speed = serving_speed(answer)
    assert speed.state == state
    bars = speed_intervals(answer, speed)
    assert (bars["ttft_s"]["high_s"] is None) == (bars["tpot_s"]["high_s"] is None) == (state != "steady")
    assert bars["tokens_per_s"]["high"] > bars["tokens_per_s"]["low"]


def test_few_users_have_a_narrower_bar_than_many() -> None:
    """Up to sixteen at once a first token waits for few others; many move in waves. Pools apart have a bar of their own."""
    widths = {}
    for users in (4, 200):
        answer = _answer(concurrency=users)
        bar = speed_intervals(answer, serving_speed(answer))["ttft_s"]
        widths[users] = bar["high_s"] / bar["low_s"]
    assert widths[4] < widths[200] / 2
    assert speed_interval("ttft", 1.0, "vllm", "apart") == speed_interval("ttft", 1.0, "*", "apart")


def test_a_saturated_servers_tokens_are_those_of_its_seats() -> None:
    speed = serving_speed(_answer(rate=60, options={"max_num_seqs": 64}))
    assert speed.tpot.seconds == pytest.approx(speed.batch / speed.tokens_per_s, rel=0.05)


def test_clients_send_no_request_before_it_arrives() -> None:
    step = step_of(_answer())
    asked = [Request(10.0 * i, 512, 16) for i in range(4)]
    served = Server(step, Load(prompt=512, output=16, trace=tuple(asked))).run(asked, clients=1)
    assert [one.arrival_s for one in served] == [0, 10, 20, 30]


def test_the_request_log_of_one_h100_is_told() -> None:
    """Means of 1,212 requests (2/s) and 4,830 (8/s) of Qwen3-14B under vLLM 0.23; nothing of them is fitted but ingestion."""
    for rate, ttft, tpot in ((2.0, 66.9e-3, 12.23e-3), (8.1, 90.3e-3, 17.24e-3)):
        speed = serving_speed(_answer(rate=rate))
        assert speed.tpot.seconds == pytest.approx(tpot, rel=0.05)
        assert speed.ttft.seconds == pytest.approx(ttft, rel=0.12)


def test_drafted_tokens_take_a_layer_and_the_head() -> None:
    drafts = {"num_speculative_tokens": 1, "speculative_method": "mtp"}
    words = {"gpu": "H200x8", "engine": "vllm==0.19", "concurrency": 16}
    plain = serving_speed(_answer("deepseek-ai/DeepSeek-V3", **words))
    drafted = serving_speed(_answer("deepseek-ai/DeepSeek-V3", options=drafts, acceptance=0.85, **words))
    found = drafted.load.drafting
    assert found is not None and 0.01 * plain.tpot.seconds < found.draft_s < 0.1 * plain.tpot.seconds
    assert 1.2 < plain.tpot.seconds / drafted.tpot.seconds < 1.85  # never more than tokens a step


def test_tokens_looked_up_cost_no_draft() -> None:
    drafts = {"num_speculative_tokens": 3, "speculative_method": "ngram"}
    found = serving_speed(_answer(options=drafts, acceptance=0.5, concurrency=4)).load.drafting
    assert found is not None and found.draft_s == 0


def test_a_draft_model_of_its_own_is_said_not_to_be_timed() -> None:
    drafts = {"num_speculative_tokens": 3, "speculative_method": "draft_model", "speculative_model": "Qwen/Qwen3-0.6B"}
    speed = serving_speed(_answer(options=drafts, acceptance=0.5, concurrency=4))
    assert "drafting" in {one.name for one in speed.assumed}
