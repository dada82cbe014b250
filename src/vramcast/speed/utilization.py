"""How well a card was used: model FLOPs by the convention asked, against the dense rate of the type; MFU and HFU.

MFU = FLOPs of the model's forward and backward pass per second / (cards x dense rate); HFU adds what activation checkpointing
computes again (PaLM, arXiv 2204.02311, appendix B; Korthikanti et al., arXiv 2205.05198). What people print under one name
differs by how attention and parameters are counted, so every answer carries its convention:

* ``causal``: every matrix product that a token meets, the causal half of attention once, windows as they are. Megatron-Bridge,
  Megatron-Kwai, this program.
* ``full``: 6 FLOPs per parameter that a token meets (input embedding left out when untied) and 12·L·H·Q·T for attention without
  its mask. PaLM, Megatron-LM, NeMo's older tables, MaxText, torchtitan, nanoGPT, nanochat, llm-foundry, fms-fsdp.
* ``6n``: 6 FLOPs per parameter that a token meets, no attention. Hugging Face Trainer's total_flos, scaling-law papers.
"""

from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.models.operations import Batch, LatentScores, Operation, Pointwise, Scores, backward, operations, recomputed
from vramcast.models.operations.counts import full_attention_flops

CONVENTIONS = {
    "causal": "causal half: Megatron-Bridge, here",
    "full": "full attention: PaLM, torchtitan",
    "6n": "no attention: HF's total_flos",
}
RECOMPUTATION = ("none", "selective", "full")
_ATTENTION_BACKWARD = 2.0  # MFU counts two products for each of the forward's; kernels run 2.5 (FlashAttention recomputes)
_LABELS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "tf32": "tf32", "fp32": "fp32", "fp4": "fp4", "int8": "int8"}
_SPARSE = 2.0  # structured sparsity doubles the rate that data sheets print large


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs of training on one token: ``model`` by convention, ``recomputed`` what checkpointing runs again (0 without)."""

    model: dict[str, float]
    recomputed: float


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The rate that 100 % means: FLOP/s of one card, dense."""

    card: str
    dtype: str
    flops_per_s: float

    @property
    def label(self) -> str:
        """``989 TFLOP/s (H100 SXM5 80GB, bf16, dense)``."""
        return f"{self.flops_per_s / 1e12:,.0f} TFLOP/s ({self.card}, {self.dtype}, dense)"


class Utilization(msgspec.Struct, frozen=True, kw_only=True):
    """One run against one card's rate, per card. ``mfu`` by convention; ``hfu`` with what is computed again, causal."""

    flops_per_s: dict[str, float]
    mfu: dict[str, float]
    hfu: float | None
    notes: tuple[str, ...] = ()


def training_work(model: Model, *, seq: int, frozen: bool = False, recomputation: str = "none") -> Work:
    """FLOPs of forward and backward on one token of a sequence of ``seq``, by convention.

    ``frozen``: weights get no gradient (LoRA, QLoRA): 4 FLOPs per parameter in place of 6; the adapters' own work is left out.
    Raises QuestionError for a length below one and an unknown recomputation.
    """
    if seq < 1:
        raise QuestionError(f"a sequence of {seq} tokens: ask for at least one")
    if recomputation not in RECOMPUTATION:
        raise QuestionError(f"unknown recomputation {recomputation!r}: use one of {', '.join(RECOMPUTATION)}")
    batch = Batch(prefills=1, prefill_tokens=seq, all_logits=True)
    forward = tuple(one for one in operations(model) if not isinstance(one, Pointwise))
    products = _products(forward, batch) + _products(backward(forward, frozen=frozen), batch)
    scores = sum(_flops(one, batch) for one in forward if isinstance(one, Scores | LatentScores))
    each = (4 if frozen else 6) * (model.active_parameters - _embedding(model))
    again = () if recomputation == "none" else recomputed(forward, selective=recomputation == "selective")
    return Work(
        model={
            "causal": (products + (1 + _ATTENTION_BACKWARD) * scores) / seq,
            "full": each + (1 + _ATTENTION_BACKWARD) * full_attention_flops(model, seq=seq) / seq,
            "6n": float(each),
        },
        recomputed=sum(_flops(one, batch) for one in again) / seq,
    )


def _products(found: tuple[Operation, ...], batch: Batch) -> float:
    return sum(_flops(one, batch) for one in found if not isinstance(one, Scores | LatentScores | Pointwise))


def _flops(one: Operation, batch: Batch) -> float:
    return float(one.count * one.flops(batch))


def _embedding(model: Model) -> int:
    return 0 if model.tied else sum(t.elements for t in model.tensors if t.role in ("embedding", "position"))


def peak_of(card: Accelerator, dtype: str) -> Peak:
    """The card's dense rate for a type. Raises QuestionError with the types that the card has a rate for."""
    rate = card.flops.get(dtype)
    if not rate:
        known = ", ".join(name for name in card.flops if name in _LABELS) or "none"
        raise QuestionError(f"no dense {dtype} rate is known of the {card.name}: its rates are {known}")
    return Peak(card=card.name, dtype=dtype, flops_per_s=rate)


def from_tokens(work: Work, tokens_per_s_per_gpu: Any, peak: Peak) -> Utilization:
    """Utilisation of a run that trains so many tokens per second on each card."""
    rates = {name: each * tokens_per_s_per_gpu for name, each in work.model.items()}
    hardware = (work.model["causal"] + work.recomputed) * tokens_per_s_per_gpu
    mfu = {name: rate / peak.flops_per_s for name, rate in rates.items()}
    return Utilization(
        flops_per_s=rates,
        mfu=mfu,
        hfu=hardware / peak.flops_per_s,
        notes=_impossible(max(mfu.values()), peak),
    )


def from_flops(flops_per_s: float, peak: Peak) -> Utilization:
    """Utilisation of a run whose FLOP/s per card are told; by which convention is the teller's."""
    share = flops_per_s / peak.flops_per_s
    return Utilization(flops_per_s={"as told": flops_per_s}, mfu={"as told": share}, hfu=None, notes=_impossible(share, peak))


def _impossible(share: float, peak: Peak) -> tuple[str, ...]:
    """What is probably wrong where more than the dense rate comes out."""
    if share <= 1:
        return ()
    sparse = f"the sparse rate of data sheets ({_SPARSE * peak.flops_per_s / 1e12:,.0f} TFLOP/s) helps no dense matmul"
    return (
        f"{share:.0%} of the dense rate cannot be: check the card, whether the throughput is of one card or of all, the "
        f"sequence's length and the type ({peak.dtype}); {sparse}",
    )
