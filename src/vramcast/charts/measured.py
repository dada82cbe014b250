"""Measured beside forecast and trace over a sweep: points for what was measured, lines for what was said before."""

from typing import Any

from vramcast.charts.write import altair, write_chart
from vramcast.units import GiB


def draw_measured(rows: list[dict[str, Any]], axes: list[str], file: str) -> None:
    """Write the plot. ``rows`` hold the axes' values, ``figures`` (measured), ``forecast`` and maybe ``trace``, in bytes."""
    alt = altair()
    across, others = axes[-1], axes[:-1]
    base = alt.Chart(alt.Data(values=[v for row in rows for v in _values(row, across, others)])).encode(
        x=alt.X("across:Q", title=across.replace("_", " "), axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("GiB:Q", title="allocated memory, GiB"),
        color=alt.Color("line:N", title=", ".join(others) or None),
    )
    lines = base.transform_filter("datum.what == 'forecast'").mark_line()
    dashes = base.transform_filter("datum.what == 'trace'").mark_line(strokeDash=[4, 3])
    points = base.transform_filter("datum.what == 'measured'").mark_point(filled=True, size=70)
    title = "points measured, lines forecast" + (", dashes traced" if any(row.get("trace") for row in rows) else "")
    write_chart((lines + dashes + points).properties(width=520, height=320, title=title), file)


def _values(row: dict[str, Any], across: str, others: list[str]) -> list[dict[str, Any]]:
    """One value per level of evidence that the row has."""
    line = ", ".join(f"{name}={row[name]}" for name in others) or across
    sizes = {
        "forecast": row["forecast"].get("allocated_bytes"),
        "trace": row.get("trace", {}).get("allocated"),
        "measured": row["figures"].get("allocated"),
    }
    return [
        {"across": row[across], "line": line, "what": what, "GiB": size / GiB} for what, size in sizes.items() if size is not None
    ]
