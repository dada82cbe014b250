"""MXFP4 experts rounded up to what each engine's kernels take, by card, release and flag."""

import pytest

from vramcast.hardware.accelerator import catalogue
from vramcast.models.reading import read_model
from vramcast.models.sharding import cut, share_shape
from vramcast.serving.engines.base import Answer, answer_of
from vramcast.serving.engines.layouts import MARLIN, TRITON_HOPPER
from vramcast.serving.engines.vllm.graphs import Capture
from vramcast.units import GiB
from vramcast.workload import Parallel, Serving

BIG = "openai/gpt-oss-120b"


def answer(card: str, model: str = BIG, **question: object) -> Answer:
    asked = Serving(model=model, context=4096, **question)  # type: ignore[arg-type]
    return answer_of(asked, card=catalogue()[card])


def term(card: str, name: str = "weights", model: str = BIG, **question: object) -> float:
    """GiB of that term of one rank."""
    return max(t.bytes for i in answer(card, model, **question).ranks[0].instants for t in i.terms if t.name == name) / GiB


def test_marlin_and_hopper_s_triton_pad_gpt_oss_as_start_up_logs_show() -> None:
    """gpt-oss-120b: "Model loading took 65.9651 GiB memory" before Hopper, 64.4 GiB on an H100."""
    assert term("a100-sxm4-80") == pytest.approx(65.97, abs=0.1)
    assert term("h100-sxm5-80", engine_version="0.19.1") == pytest.approx(64.4, rel=0.005)


def test_wheels_before_0_11_1_have_no_triton_kernels_and_take_marlin() -> None:
    assert term("h100-sxm5-80", engine_version="0.11.0") == pytest.approx(65.97, abs=0.1)
    assumed = {a.name: a for a in answer("h100-sxm5-80", engine_version="0.19.1").resolved.assumed}
    assert assumed["moe_backend"].value == "Triton"
    assert "where it is not installed, Marlin is taken and needs" in assumed["moe_backend"].because


def test_a_named_kernel_is_taken_and_not_assumed_against() -> None:
    flag = {"moe_backend": "marlin"}
    assert term("h100-sxm5-80", options=flag) == pytest.approx(65.97, abs=0.1)


def test_adapters_take_marlin() -> None:
    assumed = {a.name: a for a in answer("b200-sxm-180", options={"enable_lora": True}).resolved.assumed}
    assert assumed["moe_backend"].value == "Marlin"


def test_rocm_and_flashinfer_on_data_centre_blackwell_pad_both_widths_to_256() -> None:
    experts = 36 * 128 * 3 * 2880**2 * 4.25 / 8 / GiB
    for card in ("mi300x", "b200-sxm-180"):
        assert term(card) == pytest.approx(60.8 + experts * (3072**2 / 2880**2 - 1), rel=3e-3)


def test_models_without_mxfp4_experts_are_left_alone() -> None:
    name = "Qwen/Qwen3-30B-A3B"
    assert term("a100-sxm4-80", model=name) == term("h100-sxm5-80", model=name)
    assert "moe_backend" not in {a.name for a in answer("a100-sxm4-80", name).resolved.assumed}


def test_experts_in_nvfp4_without_a_gate_are_padded_on_blackwell_alone() -> None:
    """Nemotron-Cascade-2 in start-up logs: 18.54 GiB on an RTX 5090, 18.03 on Hopper; 1,856 -> 1,920 of 23 layers."""
    name = "nvidia/Nemotron-Cascade-2-30B-A3B-NVFP4"
    more = term("rtx-5090", model=name) - term("h100-sxm5-80", model=name)
    assert more == pytest.approx(0.51, abs=0.03)
    assert term("rtx-5090", model=name, options={"moe_backend": "marlin"}) == term("h100-sxm5-80", model=name)


def test_a_rank_s_part_is_padded_and_gate_and_up_each() -> None:
    tensors = {
        t.role: t for t in read_model("openai/gpt-oss-20b", offline=True).blocks[0].tensors if t.role.startswith("expert.")
    }
    marlin, hopper = (cut(4, expert_pad=kernel.pad) for kernel in (MARLIN, TRITON_HOPPER))  # 2,880 / 4 = 720 -> 768
    assert share_shape(tensors["expert.gate_up"], marlin) == (32, 3072, 2 * 768)
    assert share_shape(tensors["expert.down"], marlin) == (32, 768, 3072)
    assert share_shape(tensors["expert.gate_up"], hopper) == (32, 3072, 2 * 768)
    assert share_shape(tensors["expert.down"], hopper) == (32, 768, 2880)


def test_sglang_and_tensorrt_llm_pad_by_their_own_rules() -> None:
    assert term("h100-sxm5-80", engine="sglang") == pytest.approx(term("h100-sxm5-80", engine_version="0.19.1"), rel=0.01)
    experts = 36 * 128 * 3 * 2880**2 * 4.25 / 8 / GiB
    padded = term("h100-sxm5-80", engine="tensorrt_llm") - experts * 2944**2 / 2880**2
    assert padded == pytest.approx(60.8 - experts, abs=0.35)


def test_gpt_oss_captures_83_sizes_whatever_the_sequences() -> None:
    capture = Capture(version=(0, 19), max_seqs=256, max_tokens=8192, asked_largest=1024)
    assert (capture.largest, capture.sizes) == (1024, 83)
    assert Capture(version=(0, 19), max_seqs=256, max_tokens=8192).sizes == 51
    graphs = next(t for t in answer("h100-sxm5-80").ranks[0].terms if t.name == "graphs")
    assert "83 sizes" in graphs.terms[0].why


def test_only_modular_experts_keep_a_workspace() -> None:
    parts = {t.name for t in answer("h100-sxm5-80").ranks[0].instants[-1].terms for t in t.terms}
    assert "moe_workspace" not in parts
    parts = {t.name for t in answer("a100-sxm4-80").ranks[0].instants[-1].terms for t in t.terms}
    assert "moe_workspace" in parts


def test_experts_dealt_out_over_ranks_are_padded_alike() -> None:
    whole, dealt = term("b200-sxm-180"), term("b200-sxm-180", parallel=Parallel(dp=8, ep=8))
    assert dealt < whole / 4


def test_sglang_makes_swizzled_scales_of_nvfp4_experts_beside_the_loaded_ones() -> None:
    model = "nvidia/Qwen3-30B-A3B-NVFP4"
    cutlass = {"moe_runner_backend": "flashinfer_cutlass"}
    weights = next(
        t for t in answer("b200-sxm-180", model, engine="sglang", options=cutlass).ranks[0].terms if t.name == "weights"
    )
    (copy,) = [t for t in weights.terms if t.name == "swizzled_scales"]
    assert copy.bytes == 48 * 128 * 3 * 2048 * 768 // 16
    plain = next(t for t in answer("b200-sxm-180", "Qwen/Qwen3-30B-A3B", engine="sglang").ranks[0].terms if t.name == "weights")
    assert "swizzled_scales" not in {t.name for t in plain.terms}
