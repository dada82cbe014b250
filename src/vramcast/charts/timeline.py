"""The memory of a traced run as a picture: terms stacked over the events, what the allocator holds, phases, the card."""

from typing import Any

from vramcast.charts.write import altair, write_chart
from vramcast.tracing.reports.history import History
from vramcast.units import GiB

# Kept for the whole run first (bottom of the stack), then what comes and goes.
_COLOURS = {
    "weights": "#4c6fa5", "optimizer": "#7a9ccf", "gradients": "#a8c0e4", "kv_cache": "#3f9e8f", "activations": "#e0a030",
    "loss": "#cc5b4a", "gathered": "#8b6bb1", "temporaries": "#c9a6d9", "communication": "#7f7f7f",
}  # fmt: skip
_WIDTH, _HEIGHT = 760, 360
_UNNAMED = {"ready", "between steps"}
_LEAST_SHARE = 0.06  # of the width: a phase that is narrower gets no label


def draw_timeline(found: History, file: str, *, title: str, capacity_bytes: int = 0) -> None:
    """Write the picture; its ending (.png, .svg or .html) decides the format."""
    alt = altair()
    layers = [_terms(alt, found), _reserved(alt, found), *_phases(alt, found)]
    if capacity_bytes:
        layers.append(_line(alt, capacity_bytes / GiB, "the card"))
    peak = max(range(len(found.places)), key=lambda i: sum(values[i] for values in found.terms.values()))
    total = sum(values[peak] for values in found.terms.values())
    layers.append(_peak(alt, found.places[peak], total / GiB, right=peak > len(found.places) // 4))
    chart = alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=alt.Title(title, anchor="start", offset=18))
    write_chart(chart.configure_view(stroke=None).configure_axis(grid=False), file)


def _terms(alt: Any, found: History) -> Any:
    order = [name for name in _COLOURS if name in found.terms]
    values = [
        {"event": place, "term": name, "rank": rank, "GiB": found.terms[name][i] / GiB}
        for rank, name in enumerate(order)
        for i, place in enumerate(found.places)
    ]
    scale = alt.Scale(domain=order, range=[_COLOURS[name] for name in order])
    return (
        alt.Chart(alt.Data(values=values))
        .mark_area(interpolate="step-after", opacity=0.9)
        .encode(
            x=_across(alt, found),
            y=alt.Y("GiB:Q", stack="zero", title="GiB"),
            color=alt.Color("term:N", scale=scale, title=None),
            order=alt.Order("rank:Q"),
            tooltip=["term:N", "GiB:Q", "event:Q"],
        )
    )


def _reserved(alt: Any, found: History) -> Any:
    values = [{"event": p, "GiB": r / GiB} for p, r in zip(found.places, found.reserved, strict=True)]
    line = alt.Chart(alt.Data(values=values)).mark_line(interpolate="step-after", color="#333333", strokeWidth=1.2)
    name = (
        alt.Chart(alt.Data(values=values[-1:]))
        .mark_text(align="right", dy=-7, color="#333333")
        .encode(text=alt.value("reserved"))
    )
    return alt.layer(*(layer.encode(x=_across(alt, found), y="GiB:Q") for layer in (line, name)))


def _phases(alt: Any, found: History) -> list[Any]:
    ends = [*(mark.place for mark in found.marks[1:]), found.places[-1]]
    least = _LEAST_SHARE * found.places[-1]
    shown = [
        {"event": mark.place, "phase": mark.name if end - mark.place >= least else ""}
        for mark, end in zip(found.marks, ends, strict=True)
        if mark.name not in _UNNAMED
    ]
    base = alt.Chart(alt.Data(values=shown)).encode(x=_across(alt, found))
    return [
        base.mark_rule(strokeDash=[2, 3], color="#999999"),
        base.mark_text(align="left", dx=2, color="#555555", fontSize=10).encode(y=alt.value(-7), text="phase:N"),
    ]


def _line(alt: Any, height: float, name: str) -> Any:
    base = alt.Chart(alt.Data(values=[{"GiB": height, "name": name}])).encode(y="GiB:Q")
    label = base.mark_text(align="left", dx=4, dy=9, color="#cc3b3b").encode(x=alt.value(0), text="name:N")
    return base.mark_rule(color="#cc3b3b", strokeWidth=1.5) + label


def _peak(alt: Any, place: int, height: float, *, right: bool) -> Any:
    base = alt.Chart(alt.Data(values=[{"event": place, "GiB": height, "name": f"peak {height:,.2f} GiB"}]))
    base = base.encode(x="event:Q", y="GiB:Q")
    side = {"align": "right", "dx": -8} if right else {"align": "left", "dx": 8}
    text = base.mark_text(dy=-6, fontWeight="bold", **side).encode(text="name:N")
    return base.mark_point(filled=True, size=50, color="#111111") + text


def _across(alt: Any, found: History) -> Any:
    scale = alt.Scale(domain=[0, found.places[-1]], nice=False)
    return alt.X("event:Q", scale=scale, title="allocations and frees, in order", axis=alt.Axis(format=",d", tickCount=6))
