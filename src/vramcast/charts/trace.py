"""Pictures of a profiler trace: where the GPU's time went, its streams over time, its products under the roofs."""

from typing import Any

from vramcast.charts.answer import roofline
from vramcast.charts.pictures import Bar, Lanes, Part, Plot, Span
from vramcast.hardware.accelerator import Accelerator
from vramcast.language import Language
from vramcast.units import time_text

_MOST_BARS, _MOST_STREAMS, _PIXELS = 600, 8, 720


def parts_of(report: Any, say: Language) -> Bar:
    """The recorded time of the busiest GPU by what it did."""
    where = report.where
    seconds = {
        "compute": where.compute_s, "exposed_communication": where.exposed_communication_s,
        "exposed_copies": where.exposed_copies_s, "idle": where.idle_s,
    }  # fmt: skip
    parts = tuple(_part(name, value, where.span_s, say) for name, value in seconds.items() if value > 0)
    return Bar(title=f"{say('trace-time')}: {report.gpu}", parts=parts)


def _part(name: str, seconds: float, whole: float, say: Language) -> Part:
    label = say.word("trace", name)
    return Part(name, label, seconds, f"{label}: {time_text(seconds)}, {seconds / whole:.1%}")


def lanes_of(trace: Any, report: Any, say: Language) -> Lanes:
    """The streams with most work, coloured by class; neighbours closer than a pixel are drawn as one."""
    from vramcast.charts.profile import GROUPS, stream_bars

    bars, order = stream_bars(trace, report, most=_MOST_BARS, streams=_MOST_STREAMS, pixels=_PIXELS)
    lanes = tuple(
        (name, tuple(Span(b["start"] / 1e3, b["end"] / 1e3, b["what"]) for b in bars if b["stream"] == name)) for name in order
    )
    met = {span.group for _, spans in lanes for span in spans}
    return Lanes(title=f"{say('trace-streams')}: {report.gpu}", lanes=lanes, groups={n: c for n, c in GROUPS.items() if n in met})


class _Product:
    """A product of the trace as the roofline takes operators."""

    def __init__(self, shape: Any) -> None:
        self.name, self.moment = f"{shape.kind} {shape.dtype}", "prefill"
        self.flops, self.bytes, self.seconds = shape.flops, shape.bytes, shape.seconds


def roofline_of(report: Any, card: Accelerator, say: Language) -> Plot | None:
    """The products of the trace under the card's roofs; None where their shapes were not recorded."""
    found = [s for s in report.shapes if s.flops and s.bytes and s.seconds and s.dtype in card.flops]
    if not found:
        return None
    main = max(found, key=lambda s: s.seconds).dtype
    return roofline([_Product(s) for s in found if s.dtype == main], card, main, say, title=report.gpu)
