"""A sweep as lines: memory needed over the last axis, one coloured line per point of the others, the card as a line across."""

from typing import Any

from vramcast.charts.palette import SERIES
from vramcast.charts.write import altair, write_chart
from vramcast.units import GiB, gib

_WIDTH, _WIDE = 560, 16  # pixels; from so many times its least value an axis counts in doublings
_SHAPES = {"fits": "circle", "tight": "diamond", "partly": "triangle-up", "no": "cross", "unknown": "square"}


def draw_sweep(rows: list[dict[str, Any]], axes: list[str], file: str, *, title: str = "") -> None:
    """Write the plot. ``rows`` hold the axes' values, ``verdict``, ``needed_bytes`` (or ``device_bytes``), ``capacity_bytes``."""
    alt = altair()
    across, others = axes[-1], axes[:-1]
    name = ", ".join(others).replace("_", " ")
    values = [
        {
            "across": row[across],
            "series": ", ".join(_said(row[other]) for other in others) or across,
            "GiB": row.get("needed_bytes", row["device_bytes"]) / GiB,
            "verdict": row["verdict"],
        }
        for row in rows
    ]
    base = alt.Chart(alt.Data(values=values)).encode(x=_across(values, across, alt), y=alt.Y("GiB:Q", title="memory needed, GiB"))
    shades = alt.Scale(range=list(SERIES))
    colour = alt.Color("series:N", title=name or None, sort=None, scale=shades, legend=alt.Legend() if others else None)
    present = [verdict for verdict in _SHAPES if any(v["verdict"] == verdict for v in values)]
    shape = alt.Shape("verdict:N", scale=alt.Scale(domain=present, range=[_SHAPES[v] for v in present]))
    lines = base.mark_line().encode(color=colour)
    marks = base.mark_point(filled=True, size=80).encode(color=colour, shape=shape, tooltip=["series:N", "GiB:Q", "verdict:N"])
    layers = [lines, marks, *_card(rows, alt)]
    write_chart(alt.layer(*layers).properties(width=_WIDTH, height=340, title=title), file)


def _across(values: list[dict[str, Any]], name: str, alt: Any) -> Any:
    """The axis across: its own values as ticks where they are numbers, else in their order."""
    ticks = list(dict.fromkeys(v["across"] for v in values))
    words = {"context": "context, tokens", "seq": "sequence, tokens"}.get(name, name.replace("_", " "))
    if all(isinstance(tick, int | float) for tick in ticks):
        spread = alt.Scale(type="log", base=2) if min(ticks) > 0 and max(ticks) >= _WIDE * min(ticks) else alt.Scale(zero=False)
        return alt.X("across:Q", title=words, scale=spread, axis=alt.Axis(values=ticks, format=_ticks_as(ticks)))
    return alt.X("across:N", title=words, sort=None)


def _said(value: Any) -> str:
    """A value as people write it: 16,384."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _ticks_as(ticks: list[float]) -> str:
    """Whole numbers without a fraction."""
    return ",d" if all(isinstance(tick, int) for tick in ticks) else ""


def _card(rows: list[dict[str, Any]], alt: Any) -> list[Any]:
    """A line where the card ends, when all points are of one card."""
    sizes = {row.get("capacity_bytes") or 0 for row in rows}
    size = sizes.pop() if len(sizes) == 1 else 0
    if not size:
        return []
    data = alt.Chart(alt.Data(values=[{"GiB": size / GiB, "label": f"the card: {gib(size, 1)}"}]))
    rule = data.mark_rule(strokeDash=[6, 4], color="#b22222").encode(y="GiB:Q")
    text = data.mark_text(align="right", dx=-4, dy=10, color="#b22222").encode(y="GiB:Q", x=alt.value(_WIDTH), text="label:N")
    return [rule, text]
