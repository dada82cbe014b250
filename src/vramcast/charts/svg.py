"""Pictures as plain SVG text, for pages that must draw in a millisecond and without a script: the card's bar, a heat map, curves.

Every text is escaped; every picture has a ``title`` and a ``desc`` for readers who listen. Sizes in pixels of a viewBox that the
page scales. Colours come from ``charts.palette``.
"""

from collections.abc import Sequence
from html import escape

from vramcast.charts.palette import VERDICTS, colour_of

_WIDTH = 960
_HEADS = 'xmlns="http://www.w3.org/2000/svg" role="img" class="chart"'


def card_bar(
    parts: Sequence[tuple[str, float, str]], *, capacity: float | None, low: float | None, high: float | None, title: str
) -> str:
    """The stacked bar of one card: ``parts`` are (term, bytes, text to hover); the card's end and the interval are drawn over it.

    ``capacity``, ``low`` and ``high`` in the unit of the parts. It has no text of its own, so that a page may stretch it.
    """
    whole = max(sum(size for _, size, _ in parts), capacity or 0, high or 0) * 1.02 or 1
    x, rects = 0.0, []
    for name, size, text in parts:
        width = size / whole * _WIDTH
        place = f'x="{x:.1f}" y="8" width="{max(0.0, width):.1f}" height="44"'
        kind = f'class="part {escape(name)}" data-term="{escape(name)}" fill="{colour_of(name)}"'
        rects.append(f"<rect {place} {kind}><title>{escape(text)}</title></rect>")
        x += width
    marks = ""
    if low is not None and high is not None:
        a, b = low / whole * _WIDTH, high / whole * _WIDTH
        marks += f'<path d="M{a:.1f} 58v10M{a:.1f} 63H{b:.1f}M{b:.1f} 58v10" class="interval" fill="none"/>'
    if capacity:
        marks += f'<path d="M{capacity / whole * _WIDTH:.1f} 0V60" class="edge"/>'
    free = f'<rect x="0" y="8" width="{(capacity or whole) / whole * _WIDTH:.1f}" height="44" class="free"/>'
    frame = f'viewBox="0 0 {_WIDTH} 70" preserveAspectRatio="none" height="70"'
    return f"<svg {_HEADS} {frame}><title>{escape(title)}</title>{free}{''.join(rects)}{marks}</svg>"


def heat_map(
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Sequence[Sequence[tuple[str, str, str]]],
    *,
    title: str,
    axes: tuple[str, str],
) -> str:
    """A grid of verdicts: ``cells[row][column]`` is (verdict, text shown, text to hover); ``axes``: names of columns and rows."""
    left, top, height = 92, 40, 34
    width = (_WIDTH - left) / max(1, len(columns))
    out = [f'<text x="{left}" y="14">{escape(axes[0])}</text><text x="4" y="{top - 8}">{escape(axes[1])}</text>']
    for i, name in enumerate(columns):
        out.append(f'<text x="{left + (i + 0.5) * width:.1f}" y="{top - 8}" text-anchor="middle">{escape(name)}</text>')
    for j, name in enumerate(rows):
        y = top + j * height
        out.append(f'<text x="{left - 8}" y="{y + 22}" text-anchor="end">{escape(name)}</text>')
        for i, (verdict, text, hover) in enumerate(cells[j]):
            x = left + i * width
            out.append(
                f'<g class="cell {escape(verdict)}"><rect x="{x + 1:.1f}" y="{y + 1}" width="{width - 2:.1f}" '
                f'height="{height - 2}" '
                f'rx="3" fill="{VERDICTS.get(verdict, VERDICTS["unknown"])}"/><text x="{x + width / 2:.1f}" y="{y + 22}" '
                f'text-anchor="middle">{escape(text)}</text><title>{escape(hover)}</title></g>'
            )
    high = top + len(rows) * height + 4
    return f'<svg {_HEADS} viewBox="0 0 {_WIDTH} {high}"><title>{escape(title)}</title>{"".join(out)}</svg>'


def timeline(instants: Sequence[tuple[str, float, str]], *, capacity: float | None, title: str) -> str:
    """The instants of a training step as columns: (name, bytes, text to hover); the largest binds, the card's end is a line."""
    whole = max([size for _, size, _ in instants] + [capacity or 0]) * 1.05 or 1
    peak = max((size for _, size, _ in instants), default=0)
    high, width = 190, _WIDTH / max(1, len(instants))
    out = []
    for i, (name, size, hover) in enumerate(instants):
        tall = size / whole * high
        kind = "peak" if size == peak else "moment"
        place = f'x="{i * width + 3:.1f}" y="{high - tall:.1f}" width="{width - 6:.1f}" height="{tall:.1f}"'
        out.append(f'<g class="{kind}"><rect {place} rx="2"/><title>{escape(hover)}</title></g>')
        out.append(_two_lines(name, x=(i + 0.5) * width, y=high + 16))
    if capacity:
        y = high - capacity / whole * high
        out.append(f'<path d="M0 {y:.1f}H{_WIDTH}" class="edge"/>')
    return f'<svg {_HEADS} viewBox="0 0 {_WIDTH} {high + 40}"><title>{escape(title)}</title>{"".join(out)}</svg>'


def _two_lines(text: str, *, x: float, y: float) -> str:
    """A label in the middle of its column, on two lines where it has several words."""
    words = text.split()
    half = (len(words) + 1) // 2 if len(text) > 14 else len(words)
    lines = [" ".join(words[:half]), " ".join(words[half:])]
    spans = "".join(f'<tspan x="{x:.1f}" dy="{15 * bool(i)}">{escape(line)}</tspan>' for i, line in enumerate(lines) if line)
    return f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{spans}</text>'
