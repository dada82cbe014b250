"""One trace as an answer: where the time went, on what, what limits, and what to try; a value that the page and --json print."""

from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.profiling.breakdown import Where, Work, where_time_went, work_of
from vramcast.profiling.events import SYNC, Origin, Reading, Trace
from vramcast.profiling.findings import Finding, findings_of
from vramcast.profiling.intervals import distinct
from vramcast.profiling.measures import (
    ClassRow,
    CopyRow,
    KernelRow,
    Launching,
    RangeRow,
    class_rows,
    copy_rows,
    kernel_rows,
    launching,
    matrix_share,
    range_rows,
)
from vramcast.profiling.operators import CollectiveRow, Shaped, collective_rows, shaped_work
from vramcast.profiling.peers import Hta, TraceLens, as_hta, as_tracelens
from vramcast.profiling.steps import StepRow, step_rows

MOST_KERNELS = 40
_MOST_SHAPES = 200


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of the trace and its breakdown."""

    index: int
    name: str
    where: Where


class Arithmetic(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs of the matmuls and attentions whose shapes are in the trace, over the GPU's whole span.

    ``peak_share``: their time at the card's dense rates over the span (a lower bound of HFU), None without a card.
    """

    flops: float
    flops_per_s: float
    peak_share: float | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one file. ``where`` and the tables are of the GPU that worked most; ``devices`` has all of them."""

    file: str
    origin: Origin
    reading: Reading
    gpu: str
    device: int
    where: Where
    matrix_share: float | None
    sm_efficiency: float | None
    devices: tuple[Device, ...]
    steps: tuple[StepRow, ...]
    classes: tuple[ClassRow, ...]
    kernels: tuple[KernelRow, ...]
    arithmetic: Arithmetic | None
    shapes: tuple[Shaped, ...]
    collectives: tuple[CollectiveRow, ...]
    copies: tuple[CopyRow, ...]
    launching: Launching
    ranges: tuple[RangeRow, ...]
    findings: tuple[Finding, ...]
    hta: Hta | None
    tracelens: TraceLens | None


def report_of(trace: Trace, *, file: str, card: Accelerator | None = None) -> Report | None:
    """The answer about a trace, None when no GPU worked in it. ``card``: whose rates to hold kernels against."""
    real = trace.kind != SYNC
    if not real.any():
        return None
    works = {int(d): work_of(trace, real & (trace.device == d)) for d in distinct(trace.device[real])}
    devices = tuple(
        Device(index=d, name=gpu_name(trace.origin, d), where=where_time_went(trace, work)) for d, work in works.items()
    )
    main = max(devices, key=lambda d: d.where.busy_s)
    work = works[main.index]
    classes, shapes = class_rows(trace, work), shaped_work(trace, work.chosen)
    report = Report(
        file=file,
        origin=trace.origin,
        reading=trace.reading,
        gpu=card.name if card else main.name,
        device=main.index,
        where=main.where,
        matrix_share=matrix_share(classes),
        sm_efficiency=_sm_efficiency(trace, work),
        devices=devices,
        steps=step_rows(trace, work),
        classes=classes,
        kernels=kernel_rows(trace, work, most=MOST_KERNELS),
        arithmetic=_arithmetic(shapes, main.where.span_s, card),
        shapes=tuple(_beside(shape, card) for shape in shapes[:_MOST_SHAPES]),
        collectives=collective_rows(trace, work.chosen),
        copies=copy_rows(trace, work),
        launching=launching(trace, work),
        ranges=range_rows(trace, work),
        findings=(),
        hta=as_hta(trace),
        tracelens=as_tracelens(trace),
    )
    return msgspec.structs.replace(report, findings=findings_of(report))


def gpu_name(origin: Origin, device: int) -> str:
    """The name of a device as the trace tells it, "" when it does not."""
    return origin.gpu_names[device] if 0 <= device < len(origin.gpu_names) else ""


def _beside(shape: Shaped, card: Accelerator | None) -> Shaped:
    """The shape with its share of the card's dense rate; ordinary units are held against the fp32 rate."""
    rate = card.flops.get(shape.dtype) if card else None
    return msgspec.structs.replace(shape, peak_share=shape.flops_per_s / rate) if rate else shape


def _arithmetic(shapes: tuple[Shaped, ...], span_s: float, card: Accelerator | None) -> Arithmetic | None:
    if not shapes or not span_s:
        return None
    flops = sum(s.flops * s.calls for s in shapes)
    at_peak = sum(s.flops * s.calls / rate for s in shapes if card and (rate := card.flops.get(s.dtype)))
    return Arithmetic(flops=flops, flops_per_s=flops / span_s, peak_share=at_peak / span_s if card else None)


def _sm_efficiency(trace: Trace, work: Work) -> float | None:
    """Kernels' mean of min(blocks per SM, 1) weighted by their time (PyTorch's definition); None when not told."""
    import numpy as np

    told = work.chosen & np.isfinite(trace.blocks_per_sm)
    length: Any = (trace.end - trace.start)[told]
    return float((np.minimum(trace.blocks_per_sm[told], 1) * length).sum() / length.sum()) if length.sum() else None
