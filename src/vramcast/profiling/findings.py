"""What limits a trace, in sentences with the numbers that say so, and what is usually tried about it."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from vramcast.profiling.report import Report

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
