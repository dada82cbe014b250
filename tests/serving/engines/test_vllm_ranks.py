"""What ranks share or repeat under vLLM: decode context parallelism, collectives' buffers, dequantised latent projections."""

import msgspec
import pytest

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator, catalogue
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import Answer, answer_of
from vramcast.serving.engines.vllm.versions import non_torch_term
from vramcast.units import GiB
from vramcast.workload import Parallel, Serving

LATENT = "deepseek-ai/DeepSeek-V3"


def answer(model: str = LATENT, card: str = "h200-sxm-141", tp: int = 8, **options: object) -> Answer:
    asked = Serving(model=model, context=8192, gpus=tp, parallel=Parallel(tp=tp), options=options)
    return answer_of(asked, card=catalogue()[card])


def test_decode_context_parallelism_divides_a_sequence_over_its_ranks() -> None:
    plain, shared = answer(), answer(decode_context_parallel_size=8)
    assert shared.cache.request_bytes == pytest.approx(plain.cache.request_bytes / 8, rel=0.01)
    assert shared.cache.pool_bytes == plain.cache.pool_bytes
    assert shared.cache.concurrency == pytest.approx(8 * plain.cache.concurrency, rel=0.01)
    assert shared.cache.bytes_per_token == plain.cache.bytes_per_token // 8


def test_decode_context_parallelism_has_to_divide_tp() -> None:
    with pytest.raises(QuestionError, match=r"decode_context_parallel_size is 3: vLLM wants it to divide tp, which is 8"):
        answer(decode_context_parallel_size=3)


def test_decode_context_parallelism_needs_ranks_that_hold_the_same_heads() -> None:
    """vllm/config/model.py: without latent attention, tp has to exceed the KV heads."""
    with pytest.raises(QuestionError, match=r"8 KV heads on tp=8 have 1; use --tp 16 or leave it out"):
        answer(model="meta-llama/Llama-3.1-8B", decode_context_parallel_size=2)
    assert answer(model="Qwen/Qwen3-235B-A22B", decode_context_parallel_size=2).cache.tokens > 0


def test_large_collective_buffers_belong_to_linked_hopper_and_data_centre_blackwell() -> None:
    def gib(card: Accelerator) -> float:
        return non_torch_term((0, 19), card, tp=2, pp=1).bytes / GiB

    cards = catalogue()
    assert gib(cards["h100-sxm5-80"]) == pytest.approx(2.1, abs=0.01)
    assert gib(msgspec.structs.replace(cards["h100-sxm5-80"], link_bytes_per_s=0)) < 1
    assert gib(cards["rtx-pro-6000-bw"]) < 1
    assert gib(cards["rtx-3090"]) < 1


def test_quantised_latent_projections_keep_a_copy_in_the_activations_type() -> None:
    def absorbed(model: str) -> int:
        weights = next(t for t in answer(model).ranks[0].terms if t.name == "weights")
        return sum(t.bytes for t in weights.terms if t.name == "absorbed")

    assert read_model(LATENT, offline=True).quantization
    assert absorbed(LATENT) == 61 * 512 * 128 * 256 // 8 * 2
    assert absorbed("moonshotai/Moonlight-16B-A3B-Instruct") == 0
