"""One trace as an answer: where the time went, on what, what limits it in sentences with numbers, and what is usually tried."""

from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.profiling.breakdown import GpuTime, Work, where_time_went, work_of
from vramcast.profiling.events import SYNC, Origin, Reading, Trace
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
from vramcast.profiling.operators import CollectiveRow, ShapeRow, collective_rows, shaped_work
from vramcast.profiling.peers import Hta, TraceLens, as_hta, as_tracelens
from vramcast.profiling.steps import StepRow, step_rows

_SLOW_COPY_SHARE = 0.05


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One observation: what was seen, what would help, and the seconds of the span it is about."""

    limit: str
    seen: str
    remedy: str
    seconds: float


def findings_of(report: "Report") -> tuple[Finding, ...]:
    """The observations, the one that costs most first."""
    found = [*_idle(report), *_communication(report), *_copies(report), *_units(report), *_small(report)]
    return tuple(sorted(found, key=lambda f: -f.seconds))


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "0 %"


# Cause of idle time, the share of the span from which it is worth saying, what was seen, what is tried.
_IDLE = (
    (
        "host",
        0.05,
        "the GPU waits for launches {share} of the time; {kernels:,} kernels of {mean:,.1f} us on average, {short:.0%} of them "
        "under 10 us",
        "larger batches, torch.compile or CUDA graphs, fused kernels; look for Python between launches",
    ),
    (
        "data",
        0.02,
        "the GPU waits for the data loader {share} of the time",
        "more loader workers, prefetching, pinned memory, work moved out of __getitem__",
    ),
    (
        "synchronisation",
        0.03,
        "the GPU runs dry after the host waited for it: {share} of the time",
        "fewer .item(), .cpu(), print of tensors, torch.cuda.synchronize; non_blocking copies from pinned memory",
    ),
    (
        "dependency",
        0.05,
        "launched work waits in its stream {share} of the time (events, other streams, gaps between kernels)",
        "CUDA graphs close the gaps between kernels; look for waits between streams",
    ),
)


def _idle(report: "Report") -> list[Finding]:
    span, launch = report.where.span_s, report.launching
    facts = {"kernels": launch.kernels, "mean": launch.mean_kernel_s * 1e6, "short": launch.short_share}
    found = []
    for cause, least, seen, remedy in _IDLE:
        seconds = report.where.idle[cause]
        if seconds > least * span:
            told = seen.format(share=_percent(seconds, span), **facts)
            found.append(Finding(limit=cause, seen=told, remedy=remedy, seconds=seconds))
    return found


def _communication(report: "Report") -> list[Finding]:
    where = report.where
    if where.exposed_communication_s <= 0.03 * where.span_s:
        return []
    hidden = where.hidden_share or 0.0
    largest = report.collectives[0] if report.collectives else None
    about = f"; most of it {largest.name} ({largest.seconds * 1e3:,.1f} ms)" if largest else ""
    return [
        Finding(
            limit="communication",
            seen=f"communication that nothing hides takes {_percent(where.exposed_communication_s, where.span_s)} of the time; "
            f"{hidden:.0%} of {where.communication_s * 1e3:,.1f} ms is behind compute{about}",
            remedy="overlap (prefetch, bucket size), fewer bytes (sharding inside the node, lower precision), faster links; a "
            "rank that waits for a slower one spends it here too",
            seconds=where.exposed_communication_s,
        )
    ]


def _copies(report: "Report") -> list[Finding]:
    where = report.where
    if where.exposed_copies_s <= _SLOW_COPY_SHARE * where.span_s:
        return []
    largest = report.copies[0]
    return [
        Finding(
            limit="copies",
            seen=f"memory copies that nothing hides take {_percent(where.exposed_copies_s, where.span_s)}, most of it "
            f"{largest.name}",
            remedy="pinned memory and non_blocking=True, copies on a stream of their own, fewer device-to-device copies",
            seconds=where.exposed_copies_s,
        )
    ]


def _units(report: "Report") -> list[Finding]:
    plain = [s for s in report.shapes if s.kind == "GEMM" and not s.matrix_units]
    seconds = sum(s.seconds for s in plain)
    if seconds <= 0.03 * report.where.span_s:
        return []
    return [
        Finding(
            limit="precision",
            seen=f"matmuls of {_percent(seconds, report.where.compute_s)} of the compute time run without tensor cores "
            f"({plain[0].dtype}, {plain[0].kernel})",
            remedy="bf16 or fp16 autocast, or torch.set_float32_matmul_precision('high') for TF32; sizes that are multiples of 8",
            seconds=seconds,
        )
    ]


def _small(report: "Report") -> list[Finding]:
    bandwidth = ("elementwise", "index and copy", "norm", "activation", "reduction", "dropout and random", "rotary")
    rows = [row for row in report.classes if row.name in bandwidth]
    seconds = sum(row.seconds for row in rows)
    if seconds <= 0.25 * report.where.compute_s or seconds <= 0.05 * report.where.span_s:
        return []
    names = ", ".join(row.name for row in rows[:3])
    return [
        Finding(
            limit="bandwidth",
            seen=f"kernels that only move memory ({names}) take {_percent(seconds, report.where.compute_s)} of the compute time",
            remedy="torch.compile or fused kernels (norm, rotary, activation, loss); tensors kept in bf16",
            seconds=seconds,
        )
    ]


MOST_KERNELS = 40
_MOST_SHAPES = 200


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of the trace and its breakdown."""

    index: int
    name: str
    where: GpuTime


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
    where: GpuTime
    matrix_share: float | None
    sm_efficiency: float | None
    devices: tuple[Device, ...]
    steps: tuple[StepRow, ...]
    classes: tuple[ClassRow, ...]
    kernels: tuple[KernelRow, ...]
    arithmetic: Arithmetic | None
    shapes: tuple[ShapeRow, ...]
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


def _beside(shape: ShapeRow, card: Accelerator | None) -> ShapeRow:
    """The shape with its share of the card's dense rate; ordinary units are held against the fp32 rate."""
    rate = card.flops.get(shape.dtype) if card else None
    return msgspec.structs.replace(shape, peak_share=shape.flops_per_s / rate) if rate else shape


def _arithmetic(shapes: tuple[ShapeRow, ...], span_s: float, card: Accelerator | None) -> Arithmetic | None:
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
