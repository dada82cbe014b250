"""Experts in MXFP4 as vLLM's kernels want them: widths rounded up when the weights are created.

Source: vllm/model_executor/layers/quantization/mxfp4.py, get_mxfp4_backend and create_weights. Triton's kernels (Hopper) round
the intermediate width to 64, which gpt-oss has; Marlin's (cards before Hopper, and Blackwell RTX) round it to 128 and the hidden
width to 256; ROCm's round both to 256. gpt-oss-120b under Marlin: 65.97 GiB in a start-up log, 60.8 without the padding.
FlashInfer's kernels (data-centre Blackwell, where FlashInfer is installed) round both to 256.
"""

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Unmodelled
from vramcast.models.inventory import Model
from vramcast.models.sharding import cut, is_routed, share
from vramcast.serving.storage import Storage

MARLIN = (128, 256)
TRITON = (64, 1)
ROCM = FLASHINFER = (256, 256)
NONE = (1, 1)


def expert_pad(storage: Storage, card: Accelerator | None) -> tuple[int, int]:
    """Multiples of an expert's intermediate and hidden width; one where nothing is padded or no card is named."""
    if storage.name != "mxfp4" or card is None:
        return NONE
    if card.capability is None:
        return ROCM if card.target else NONE
    return TRITON if card.capability[0] in (9, 10) else MARLIN


def maybe_padded(model: Model, storage: Storage, card: Accelerator | None, ranks: int) -> tuple[Unmodelled, ...]:
    """What FlashInfer's kernels would add to one of ``ranks``, as a bound: whether it is installed is not known."""
    if storage.name != "mxfp4" or card is None or card.capability is None or card.capability[0] != 10:
        return ()
    routed = [(t, b) for b in model.blocks for t in b.tensors if is_routed(t)]
    plain, wide = (
        sum(storage.share_bytes(t, share(t, cut(1, expert_pad=pad)), block=b) * b.count for t, b in routed)
        for pad in (NONE, FLASHINFER)
    )
    more = round((wide - plain) / ranks)
    what = "FlashInfer's MXFP4 kernels, where installed, pad experts to multiples of 256"
    return (Unmodelled(what, more),) if more else ()
