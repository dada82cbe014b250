"""SGLang's pools, slots, fractions of free memory and refusals."""

import pytest

from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import answer_of
from vramcast.serving.engines.sglang.fraction import share_of_seeing
from vramcast.serving.engines.sglang.messages import no_room
from vramcast.serving.engines.sglang.pools import Cells, divide
from vramcast.units import GiB, MiB
from vramcast.workload import Parallel, Serving


def ask(name: str, gpu: str | None = "H100 SXM", **fields):
    card = find_accelerator(gpu) if gpu else None
    return answer_of(Serving(model=name, engine="sglang", **fields), model=read_model(name, offline=True), card=card)


def test_gemma_3_pays_the_full_length_in_every_layer() -> None:
    cache = ask("google/gemma-3-27b-it", None, context=131_072).cache
    assert cache.request_bytes == 62 * 8192 * 131_072


def test_two_pools_hold_eight_tenths_of_the_tokens_in_sliding_layers() -> None:
    answer = ask("openai/gpt-oss-20b", context=8192)
    full, sliding = 12 * 2048, 12 * 2048
    assert answer.cache.pool_bytes == pytest.approx(answer.cache.tokens * (full + 0.8 * sliding), rel=1e-6)


def test_scales_make_a_4_bit_cache_1_78_times_larger_in_tokens_than_an_8_bit_one() -> None:
    """A pair of runs on one machine printed 5,517,572 and 3,105,240 tokens."""
    tokens = [
        ask("Qwen/Qwen2.5-1.5B-Instruct", "GB10", kv_dtype=kv, options={"mem_fraction_static": 0.4}).cache.tokens
        for kv in ("nvfp4", "fp8")
    ]
    assert tokens[0] / tokens[1] == pytest.approx(5_517_572 / 3_105_240, rel=1e-3)  # two starts, two free memories


def test_states_get_nine_tenths_of_what_the_cache_gets() -> None:
    cells = Cells(full=1000, sliding=0, slot=10_000, ratio=0)
    pools = divide(19_000_000, cells, page=1, slots=None, cap=None, share=0.9)
    assert (pools.slots, pools.state_bytes, pools.tokens) == (900, 9_010_000, 10_000)  # a slot for padding beside them


def test_asked_slots_and_tokens_are_kept() -> None:
    cells = Cells(full=1000, sliding=0, slot=10_000, ratio=0)
    pools = divide(19_000_000, cells, page=64, slots=100, cap=1000, share=0.9)
    assert (pools.slots, pools.tokens) == (100, 1000)


def test_a_latent_cache_is_whole_on_every_rank() -> None:
    found = {
        tp: ask("deepseek-ai/DeepSeek-V3", None, context=4096, parallel=Parallel(tp=tp)).cache.bytes_per_token for tp in (1, 8)
    }
    assert found == {1: 70_272, 8: 70_272}


def test_the_refusal_names_the_smallest_fraction_that_starts() -> None:
    assert no_room(0.5, 78 * GiB, 30 * GiB).endswith("Please increase --mem-fraction-static to more than 0.615.")
    assert "they do not fit this card" in ask("Qwen/Qwen2.5-72B-Instruct", context=4096).start_error


def test_the_fraction_is_of_what_is_free_before_the_weights() -> None:
    low, high = (
        ask("Qwen/Qwen2.5-7B-Instruct", context=4096, options={"mem_fraction_static": f}).cache.pool_bytes for f in (0.6, 0.8)
    )
    free = find_accelerator("H100 SXM").visible_bytes - 512 * 2**20
    assert high - low == pytest.approx(0.2 * free, rel=0.001)


def graphs(name: str, gpu: str = "H100 SXM", **fields) -> int:
    return next(t for t in ask(name, gpu, context=4096, **fields).ranks[0].instants[0].terms if t.name == "graphs").bytes


def test_no_batch_above_the_requests_that_may_run_is_captured() -> None:
    """Qwen3.8-27B on an H100 with 32 requests: the log's decode graphs take 0.10 GiB."""
    name = "Qwen/Qwen3.8-27B-FP8"
    assert graphs(name, options={"max_running_requests": 32}) == 2 * 32 * MiB < 0.11 * GiB
    assert graphs(name) == 2 * 256 * MiB


def test_prefill_pieces_are_captured_for_text_on_one_stage_alone() -> None:
    alone, staged = graphs("Qwen/Qwen3-8B"), graphs("Qwen/Qwen3-8B", parallel=Parallel(pp=2), gpus=2)
    assert alone - staged == 8 * 58 * MiB


def test_a_shared_memory_holds_what_capturing_leaves_in_the_process() -> None:
    shared, own = (graphs("Qwen/Qwen3-8B", gpu, options={"cuda_graph_max_bs": 8}) for gpu in ("GB10", "H100 SXM"))
    assert shared - own == 1536 * MiB


def test_halves_of_the_latents_expansion_are_held_twice() -> None:
    weights = ask("moonshotai/Kimi-K2.5", None, context=4096, parallel=Parallel(tp=8), gpus=8).ranks[0].instants[0].terms[0]
    assert weights.find("absorbed").bytes == 61 * 8 * (128 + 128) * 512 * 2


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("Qwen/Qwen3-8B", 1),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 0.95 * (1 - 0.1 * ((1280 / 1024) ** 2 - 1))),
        ("google/gemma-4-31B-it", 0.95 * (1 - 0.1 * (27 * 1152**2 / (24 * 1024**2) - 1))),
        ("google/gemma-3-27b-it", 1),
    ],
)
def test_a_model_that_sees_leaves_more_free(name: str, share: float) -> None:
    model = read_model(name, offline=True)
    assert share_of_seeing(model, (0, 5, 23)) == pytest.approx(share)


@pytest.mark.parametrize(
    ("version", "options", "captured"),
    [("0.5.6", {}, False), ("0.5.10", {}, True), ("0.5.10", {"disable_piecewise_cuda_graph": True}, False)],
)
def test_prefill_pieces_are_captured_by_default_since_0_5_10(version: str, options: dict[str, bool], captured: bool) -> None:
    found = ask("Qwen/Qwen3-8B", context=4096, engine_version=version, options=options)
    graphs = next(term for term in found.ranks[0].instants[0].terms if term.name == "graphs")
    assert graphs.bytes == (2 * 256 + 8 * 58 * captured) * MiB


def test_tensorrt_llm_kernels_order_scales_in_place() -> None:
    """An NVFP4 DeepSeek-R1 on four B200 printed 94.5 GiB a rank: no second copy of 9.5 GiB."""
    found = {
        backend: ask(
            "nvidia/DeepSeek-R1-0528-FP4", "B200", context=4096, parallel=Parallel(tp=4), options={"moe_runner_backend": backend}
        )
        .ranks[0]
        .instants[0]
        .terms[0]
        .bytes
        / GiB
        for backend in ("flashinfer_trtllm", "flashinfer_cutlass")
    }
    assert found["flashinfer_trtllm"] == pytest.approx(94.5, rel=0.01)
    assert found["flashinfer_cutlass"] - found["flashinfer_trtllm"] == pytest.approx(9.5, abs=0.1)
