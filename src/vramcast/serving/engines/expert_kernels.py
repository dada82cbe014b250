"""Experts in MXFP4 as an engine's kernels want them: which kernel a start takes, and the widths it rounds up to.

Widths are rounded when weights are created, after tensor parallelism has cut the intermediate one. Marlin takes the intermediate
width in steps of 128 and the hidden one in steps of 256; FlashInfer's CUTLASS kernels both in 128, its TensorRT-LLM ones both in
256, ROCm's both in 256 (vllm/model_executor/layers/fused_moe/oracle/mxfp4.py,
mxfp4_round_up_hidden_size_and_intermediate_size). Triton's take the intermediate width in steps of 64; on Hopper the values are
then laid out in tiles of 128 bytes along the axis that is summed over, 256 elements (triton_kernels, tensor_details/
layout_details/hopper_value.py). gpt-oss-120b in start-up logs: 65.97 GiB under Marlin, 64.4 under Triton on an H100, for 60.8 GiB
of checkpoint. TensorRT-LLM pads both to 128 (tensorrt_llm/_torch/modules/fused_moe/quantization.py, weight_alignment).

vLLM's order is FlashInfer's on data-centre Blackwell, Triton's on Hopper and there, and Marlin: the wheels install
``triton_kernels`` since 0.11.1 (before, vllm-project/vllm#26582). Adapters take Marlin. SGLang takes FlashInfer's on data-centre
Blackwell and Triton's elsewhere (sglang/srt/layers/quantization/mxfp4.py).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption
from vramcast.memo import by_identity
from vramcast.models.inventory import Model
from vramcast.models.sharding import NO_PAD, ExpertPad, cut, is_routed, share
from vramcast.serving.engines.versions import Table, Version, at
from vramcast.serving.storage import Storage
from vramcast.units import gib

INSTALLS_TRITON_KERNELS: Table[bool] = (((0,), False), ((0, 11, 1), True))


class ExpertKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel: the widths it wants, and whether it works in the workspace that vLLM's modular experts share."""

    name: str
    pad: ExpertPad
    workspace: bool = True


MARLIN = ExpertKernel(name="Marlin", pad=ExpertPad(gate_up=(128, 256), down=(128, 256)))
CUTLASS = ExpertKernel(name="FlashInfer CUTLASS", pad=ExpertPad(gate_up=(128, 128), down=(128, 128)))
TRTLLM_GEN = ExpertKernel(name="FlashInfer TRT-LLM", pad=ExpertPad(gate_up=(256, 256), down=(256, 256)), workspace=False)
TRITON = ExpertKernel(name="Triton", pad=ExpertPad(gate_up=(64, 1), down=(64, 1)), workspace=False)
TRITON_HOPPER = ExpertKernel(name="Triton", pad=ExpertPad(gate_up=(64, 256), down=(256, 1)), workspace=False)
ROCM = ExpertKernel(name="ROCm", pad=ExpertPad(gate_up=(256, 256), down=(256, 256)))
# SGLang's NVFP4 experts: rows of swizzled block scales come in 128 (sglang/srt/layers/quantization/modelopt_quant.py)
SGLANG_NVFP4 = ExpertKernel(name="CUTLASS", pad=ExpertPad(gate_up=(128, 1), down=(128, 1)))
TENSORRT_LLM = ExpertKernel(name="TensorRT-LLM", pad=ExpertPad(gate_up=(128, 128), down=(128, 128)), workspace=False)
# vLLM's --moe-backend and SGLang's --moe-runner-backend by what they select
BY_FLAG = {
    "marlin": MARLIN, "triton": TRITON, "triton_kernel": TRITON, "flashinfer_cutlass": CUTLASS,
    "flashinfer_cutlass_afp8": CUTLASS, "flashinfer_trtllm": TRTLLM_GEN, "flashinfer_trtllm_afp8": TRTLLM_GEN,
    "flashinfer_mxfp4": TRTLLM_GEN,
}  # fmt: skip


def vllm_kernel(
    storage: Storage, card: Accelerator | None, version: Version, options: Mapping[str, Any]
) -> tuple[ExpertKernel | None, ExpertKernel | None]:
    """What a start of vLLM takes for the model's experts, and the next in its order where that depends on what is installed."""
    if not _applies(storage, card):
        return None, None
    generation = _generation(card)
    triton = TRITON_HOPPER if generation == 9 else TRITON
    asked = BY_FLAG.get(str(options.get("moe_backend")))
    if asked:
        return (triton if asked is TRITON else asked), None
    if generation == 0:
        return ROCM, None
    if options.get("enable_lora") or generation not in (9, 10):
        return MARLIN, None
    if generation == 10:
        return TRTLLM_GEN, triton
    return (triton, MARLIN) if at(version, INSTALLS_TRITON_KERNELS) else (MARLIN, triton)


def sglang_kernel(storage: Storage, card: Accelerator | None, options: Mapping[str, Any]) -> ExpertKernel | None:
    """What a start of SGLang takes for the model's experts in MXFP4."""
    if not _applies(storage, card):
        return None
    generation = _generation(card)
    asked = BY_FLAG.get(str(options.get("moe_runner_backend")), TRTLLM_GEN if generation == 10 else TRITON)
    return TRITON_HOPPER if asked is TRITON and generation == 9 else ROCM if generation == 0 else asked


def tensorrt_llm_kernel(storage: Storage) -> ExpertKernel | None:
    """TensorRT-LLM's, whatever the card."""
    return TENSORRT_LLM if storage.name == "mxfp4" else None


def pad_of(kernel: ExpertKernel | None) -> ExpertPad:
    """The widths a kernel wants; those of the checkpoint where none is known."""
    return kernel.pad if kernel else NO_PAD


def named_kernel(
    model: Model, storage: Storage, kernel: ExpertKernel | None, other: ExpertKernel | None, ranks: int
) -> tuple[Assumption, ...]:
    """What the answer says of the kernel it assumed: its padding on one of ``ranks``, and what the other one would take."""
    if kernel is None:
        return ()
    plain = routed_bytes(model, storage, NO_PAD)
    own = routed_bytes(model, storage, kernel.pad) - plain
    because = f"kernels of that version and card; it pads experts by {gib(round(own / ranks))} a rank"
    if other is not None:
        more = (routed_bytes(model, storage, other.pad) - plain - own) / ranks
        than = f"{gib(round(abs(more)))} {'more' if more >= 0 else 'less'}"
        because += f"; where it is not installed, {other.name} is taken and needs {than}"
    return (Assumption("moe_backend", kernel.name, because),)


@by_identity(2, most=64)
def routed_bytes(model: Model, storage: Storage, pad: ExpertPad) -> float:
    """Bytes of all routed experts in those widths, uncut."""
    routed = ((tensor, block) for block in model.blocks for tensor in block.tensors if is_routed(tensor))
    layout = cut(1, expert_pad=pad)
    return sum(storage.share_bytes(tensor, share(tensor, layout), block=block) * block.count for tensor, block in routed)


def _applies(storage: Storage, card: Accelerator | None) -> bool:
    return storage.name == "mxfp4" and card is not None and (card.capability is not None or bool(card.target))


def _generation(card: Accelerator | None) -> int:
    """The major compute capability, 0 for AMD's cards."""
    return card.capability[0] if card is not None and card.capability else 0
