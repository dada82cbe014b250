"""A trace's matmuls, attentions and collectives against their laws: the time this card's kernels reach when measured alone.

The laws are fitted on isolated kernels; in sustained training the same matmul runs 1.1 to 1.3 times as long (power, layouts,
accumulation into gradients), so 80 % of attainable is good there. No law: batched matmuls, backward passes of attention, groups
that leave the node, and types without a measured law; those stay empty.
"""

import msgspec

from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.profiling.operators import CollectiveRow, ShapeRow
from vramcast.profiling.report import Finding, Report
from vramcast.speed.kernels.attention import decode_attention, prefill_attention
from vramcast.speed.kernels.collectives import all_gather, all_reduce, all_to_all, reduce_scatter
from vramcast.speed.kernels.gemm import RECIPES, gemm
from vramcast.speed.kernels.law import Estimate

_CARDS_OF_A_NODE = 8
_MOSTLY_WAITING = 0.4  # of a collective's time: above it the links explain most
_ATTENTION_TYPES = ("bf16", "fp16", "fp8")


def with_attainable(report: Report, card: Accelerator | None) -> Report:
    """The report with ``attainable_s`` of every shape and collective that a law covers; unchanged without a card."""
    if card is None:
        return report
    shapes = tuple(msgspec.structs.replace(s, attainable_s=_seconds(_of_shape, s, card)) for s in report.shapes)
    rows = (msgspec.structs.replace(c, attainable_s=_seconds(_of_collective, c, card)) for c in report.collectives)
    collectives = tuple(rows)
    findings = (*report.findings, *_waiting(report, collectives))
    return msgspec.structs.replace(report, shapes=shapes, collectives=collectives, findings=findings)


def _waiting(report: Report, rows: tuple[CollectiveRow, ...]) -> tuple[Finding, ...]:
    """Collectives that take far longer than their bytes need on such links: ranks that arrive late."""
    covered = [row for row in rows if row.attainable_s]
    taken = sum(row.seconds for row in covered)
    alone = sum((row.attainable_s or 0.0) * row.calls for row in covered)
    if not covered or alone > _MOSTLY_WAITING * taken or taken < 0.05 * report.where.span_s:
        return ()
    return (
        Finding(
            limit="stragglers",
            seen=f"collectives take {taken * 1e3:,.1f} ms where {alone * 1e3:,.1f} ms would do on such links: the rest is "
            "waiting for ranks that arrive later, or a slower link than the card's own",
            remedy="`vramcast profile FOLDER` with every rank's trace names the slow one; balance the work, check the topology",
            seconds=taken - alone,
        ),
    )


def attained(shapes: tuple[ShapeRow, ...], kind: str) -> float | None:
    """Attainable over taken time, of all shapes of a kind that have a law; None when none has."""
    covered = [s for s in shapes if s.kind == kind and s.attainable_s]
    taken = sum(s.seconds for s in covered)
    return sum((s.attainable_s or 0.0) * s.calls for s in covered) / taken if taken else None


def _seconds(law: object, row: ShapeRow | CollectiveRow, card: Accelerator) -> float | None:
    try:
        estimate = law(row, card)  # type: ignore[operator]
    except VramcastError:
        return None
    return float(estimate.seconds) if estimate is not None else None


def _of_shape(shape: ShapeRow, card: Accelerator) -> Estimate | None:
    return _of_matmul(shape, card) if shape.kind == "GEMM" else _of_attention(shape, card)


def _of_matmul(shape: ShapeRow, card: Accelerator) -> Estimate | None:
    batch, m, n, k = shape.shape
    if batch > 1 or shape.dtype not in RECIPES:
        return None
    return gemm(card=card, m=m, n=n, k=k, weight=shape.dtype)


def _of_attention(shape: ShapeRow, card: Accelerator) -> Estimate | None:
    batch, heads, queries, keys, size = shape.shape
    if "backward" in shape.operator.lower() or shape.dtype not in _ATTENTION_TYPES or keys < queries:
        return None
    dtype = "fp8" if shape.dtype == "fp8" else "bf16"
    if queries == 1:
        return decode_attention(
            card=card, batch=batch, context_tokens_sum=batch * keys, heads=heads, kv_heads=shape.kv_heads, head_dim=size
        )
    return prefill_attention(
        card=card,
        new=queries,
        past=keys - queries,
        heads=heads,
        kv_heads=shape.kv_heads,
        head_dim=size,
        batch=batch,
        dtype=dtype,
        masked=bool(shape.causal),
    )


_COLLECTIVES = (
    ("allreduce", all_reduce),
    ("reduce_scatter", reduce_scatter),
    ("reducescatter", reduce_scatter),
    ("allgather", all_gather),
    ("all_to_all", all_to_all),
    ("alltoall", all_to_all),
)


def _of_collective(row: CollectiveRow, card: Accelerator) -> Estimate | None:
    if not row.bytes or not 1 < row.ranks <= _CARDS_OF_A_NODE:
        return None
    name = row.name.lower().replace("all_gather", "allgather").replace("all_reduce", "allreduce")
    law = next((law for part, law in _COLLECTIVES if part in name), None)
    return law(card=card, world=row.ranks, size_bytes=float(row.bytes)) if law else None
