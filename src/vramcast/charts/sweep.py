"""A sweep as lines: device memory over the last axis, one line per point of the others, coloured by verdict."""

from typing import Any

from vramcast.charts.write import altair, write_chart
from vramcast.units import GiB

_COLOURS = {"fits": "#2e9e5b", "tight": "#d99a1c", "partly": "#c9692b", "no": "#cc3b3b", "unknown": "#5b7bb0"}


def draw_sweep(rows: list[dict[str, Any]], axes: list[str], file: str) -> None:
    """Write the plot. ``rows`` hold the axes' values, ``verdict`` and ``device_bytes``."""
    alt = altair()
    across, others = axes[-1], axes[:-1]
    values = [
        {
            "across": row[across],
            "line": ", ".join(f"{name}={row[name]}" for name in others) or across,
            "GiB": row["device_bytes"] / GiB,
            "verdict": row["verdict"],
        }
        for row in rows
    ]
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("across:Q", title=across.replace("_", " "), axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("GiB:Q", title="device memory, GiB"),
    )
    lines = base.mark_line(opacity=0.6).encode(
        detail="line:N", strokeDash=alt.StrokeDash("line:N", title=", ".join(others) or None)
    )
    scale = alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values()))
    marks = base.mark_point(filled=True, size=70).encode(
        color=alt.Color("verdict:N", scale=scale), tooltip=["line:N", "GiB:Q", "verdict:N"]
    )
    write_chart((lines + marks).properties(width=520, height=320), file)
