"""MXFP4 experts rounded up to what vLLM's kernels take, by card."""

import pytest

from vramcast.hardware.catalogue import catalogue
from vramcast.models.reading import read_model
from vramcast.models.sharding import cut, share_shape
from vramcast.serving.engines.vllm.padding import MARLIN
from vramcast.serving.forecast import answer_of
from vramcast.units import GiB
from vramcast.workload import Parallel, Serving


def weights(card: str, model: str = "openai/gpt-oss-120b", **question: object) -> float:
    """GiB of weights of one rank."""
    asked = Serving(model=model, context=4096, **question)  # type: ignore[arg-type]
    answer = answer_of(asked, card=catalogue()[card])
    return next(t.bytes for t in answer.ranks[0].terms if t.name == "weights") / GiB


def test_marlin_pads_what_triton_takes_as_it_is() -> None:
    """gpt-oss-120b, "Model loading took 65.9651 GiB memory" on a card before Hopper."""
    assert weights("a100-sxm4-80") == pytest.approx(65.97, abs=0.1)
    assert weights("h100-sxm5-80") == pytest.approx(60.8, abs=0.1)


def test_rocm_pads_both_widths_to_256() -> None:
    assert weights("mi300x") / weights("h100-sxm5-80") == pytest.approx(1 + (3072**2 / 2880**2 - 1) * 56.7 / 60.8, rel=2e-3)


def test_flashinfer_on_data_centre_blackwell_is_named_with_a_bound() -> None:
    question = Serving(model="openai/gpt-oss-120b", context=4096, parallel=Parallel(dp=8, ep=8))
    answer = answer_of(question, card=catalogue()["b200-sxm-180"])
    (note,) = answer.resolved.unmodelled
    assert note.what == "FlashInfer's MXFP4 kernels, where installed, pad experts to multiples of 256"
    assert (note.bound_bytes or 0) / GiB == pytest.approx(56.7 / 8 * (3072**2 / 2880**2 - 1), rel=0.01)


def test_models_without_mxfp4_experts_are_left_alone() -> None:
    name = "Qwen/Qwen3-30B-A3B"
    assert weights("a100-sxm4-80", name) == weights("h100-sxm5-80", name)


def test_a_rank_s_part_is_padded_and_gate_and_up_each() -> None:
    tensors = {
        t.role: t for t in read_model("openai/gpt-oss-20b", offline=True).blocks[0].tensors if t.role.startswith("expert.")
    }
    layout = cut(4, expert_pad=MARLIN)  # 2,880 / 4 = 720 -> 768
    assert share_shape(tensors["expert.gate_up"], layout) == (32, 3072, 2 * 768)
    assert share_shape(tensors["expert.down"], layout) == (32, 768, 3072)
