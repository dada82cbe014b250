"""Pictures as plain SVG text: drawn in a millisecond, without a script, for the page, notebooks and files alike.

Text and grid take the colour of what they stand in (``currentColor``), parts the palette's. Every text is escaped; every picture
has a title for readers who listen. A picture is drawn for a width in pixels, so that its letters keep their size on a phone.
"""

from collections.abc import Iterable
from html import escape
from unicodedata import east_asian_width

from vramcast.charts.palette import VERDICTS, colour_of
from vramcast.charts.pictures import Axis, Bar, Cell, Grid, Lanes, Moment, Moments, Part, Picture, Plot, Point, Series, Strips
from vramcast.charts.scales import Scale, scale_of, written
from vramcast.units import gib

WIDE, NARROW = 800, 328
_LETTER = 7.2  # width of a letter of 13 px, on average
_GIB, _TIME = Axis("GiB", "memory"), Axis("", "time")
_BOLD, _SMALL = ' font-weight="600"', ' font-size="12"'
_HALO = ' paint-order="stroke" stroke="Canvas" stroke-width="4" stroke-linejoin="round"'  # of words that stand on bars
_FILLED = {"fits": 1.0, "tight": 0.8, "partly": 0.22}


def drawn(picture: Picture, *, width: int = WIDE) -> str:
    """The picture as one ``<svg>`` element of that width."""
    draw = {Bar: _bar, Moments: _moments, Grid: _grid, Plot: _plot, Lanes: _lanes, Strips: _strips}[type(picture)]
    found: str = draw(picture, width)  # type: ignore[operator]
    return found


def height_of(text: str) -> float:
    """The height of a drawn picture."""
    return float(text.split('height="', 1)[1].split('"', 1)[0])


def _svg(title: str, width: float, height: float, body: str, *, more: str = "") -> str:
    frame = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"{more}'
    font = 'font-size="13" font-family="inherit" fill="currentColor"'
    role = "group" if "<a " in body else "img"  # what stands in an image is not read aloud, and links must be
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="{role}" class="chart" {frame} {font}>'
    return f"{head}<title>{escape(title)}</title>{body}</svg>"


def _wide(text: str) -> float:
    """About how wide a text is drawn: a Chinese letter takes the room of two."""
    return _LETTER * sum(1.85 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _text(x: float, y: float, text: str, *, anchor: str = "start", soft: bool = True, more: str = "") -> str:
    tone = ' fill-opacity=".72"' if soft else ""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{place}{tone}{more}>{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, look: str, *, hover: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{max(0.0, height):.1f}"'
    return f"<rect {place} {look}><title>{escape(hover)}</title></rect>" if hover else f"<rect {place} {look}/>"


def _line(x1: float, y1: float, x2: float, y2: float, more: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" fill="none" stroke="currentColor" {more}/>'


def _bar(bar: Bar, width: int) -> str:
    """It has no text of its own, so that a page may stretch it; the error bar stands under it."""
    whole = max(sum(part.size for part in bar.parts), bar.capacity or 0, bar.high or 0) * 1.01 or 1
    x, out = (
        0.0,
        [_rect(0, 6, (bar.capacity or whole) / whole * width, 40, 'class="free" fill="currentColor" fill-opacity=".09"')],
    )
    for part in bar.parts:
        size = part.size / whole * width
        out.append(_rect(x, 6, size, 40, _of_term(part), hover=part.hover))
        x += size
    if bar.low is not None and bar.high is not None:
        low, high = bar.low / whole * width, bar.high / whole * width
        out.append(
            f'<path d="M{low:.1f} 50v10M{low:.1f} 55H{high:.1f}M{high:.1f} 50v10" class="interval" fill="none" '
            'stroke="currentColor" stroke-width="2" vector-effect="non-scaling-stroke"/>'
        )
    if bar.capacity:
        at = bar.capacity / whole * width
        out.append(
            _line(at, 0, at, 52, 'class="edge" stroke-width="2" stroke-dasharray="5 3" vector-effect="non-scaling-stroke"')
        )
    return _svg(bar.title, width, 62, "".join(out), more=' preserveAspectRatio="none"')


def _of_term(part: Part) -> str:
    name = escape(part.name)
    hatch = ' fill-opacity=".4"' if part.name == "missing" else ""
    return f'class="part {name}" data-term="{name}" fill="{colour_of(part.name)}"{hatch}'


def _moments(steps: Moments, width: int) -> str:
    """Stacked columns, one a moment, the largest marked by its size; names on as many lines as they need."""
    high, left = 200.0, 40.0
    peak = max((m.size for m in steps.moments), default=0)
    scale = scale_of(_GIB, [peak, steps.capacity or 0], start=high, end=22)
    slot = (width - left) / max(1, len(steps.moments))
    out = list(_grid_lines(scale, left, width))
    names = [_lines_of(m.label, max(6, int(slot / 6.4))) for m in steps.moments]
    for i, moment in enumerate(steps.moments):
        x, wide = left + i * slot + slot * 0.14, slot * 0.72
        out.append(_column(moment, scale, x, wide))
        strong = moment.size == peak
        size = gib(moment.size, 1).removesuffix(" GiB")
        out.append(
            _text(
                x + wide / 2, scale.place(moment.size) - 6, size, anchor="middle", soft=not strong, more=_BOLD if strong else ""
            )
        )
        for j, line in enumerate(names[i]):
            out.append(_text(x + wide / 2, high + 18 + 15 * j, line, anchor="middle", soft=not strong, more=_SMALL))
    if steps.capacity:
        y = scale.place(steps.capacity)
        out.append(_line(left, y, width, y, 'stroke-width="1.5" stroke-dasharray="5 3"'))
        out.append(_text(width, y - 6, steps.capacity_label, anchor="end", soft=False, more=_HALO))
    deepest = max((len(lines) for lines in names), default=1)
    return _svg(steps.title, width, high + 12 + 15 * deepest, "".join(out))


def _column(moment: Moment, scale: Scale, x: float, wide: float) -> str:
    out, below = [], 0.0
    for part in moment.parts:
        top, bottom = scale.place(below + part.size), scale.place(below)
        out.append(_rect(x, top, wide, bottom - top, _of_term(part), hover=part.hover))
        below += part.size
    return "".join(out)


def _lines_of(text: str, most: int) -> list[str]:
    """The words of a label on lines of at most so many letters; a text without spaces is cut where a line is full."""
    if not text.isascii():
        each = max(2, most // 2)  # letters of Chinese are twice as wide
        return [text[i : i + each] for i in range(0, len(text), each)]
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + len(word) < most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _grid_lines(scale: Scale, left: float, right: float) -> Iterable[str]:
    """Horizontal lines with their values, for an axis that goes up."""
    for tick in scale.ticks(5):
        y = scale.place(tick)
        yield _line(left, y, right, y, 'stroke-opacity=".14"')
        yield _text(left - 6, y + 4, written(tick, scale.axis.form), anchor="end", more=_SMALL)


def _grid(grid: Grid, width: int) -> str:
    """Cells that fit are filled, those that serve less half filled, the others outlined: told apart without hue."""
    left, top, tall = 44.0, 44.0, 34.0
    slot = (width - left) / max(1, len(grid.columns))
    out = [_text(0, 13, f"{grid.down} \u2193", more=_SMALL), _text(width, 13, f"{grid.across} \u2192", anchor="end", more=_SMALL)]
    for i, name in enumerate(grid.columns):
        out.append(_text(left + (i + 0.5) * slot, top - 8, name, anchor="middle"))
    for j, name in enumerate(grid.rows):
        out.append(_text(left - 10, top + j * tall + 21, name, anchor="end"))
        out += [_cell(cell, left + i * slot, top + j * tall, slot, tall) for i, cell in enumerate(grid.cells[j])]
    return _svg(grid.title, width, top + len(grid.rows) * tall + 4, "".join(out))


def _cell(cell: Cell, x: float, y: float, wide: float, tall: float) -> str:
    colour, opacity = VERDICTS.get(cell.verdict, VERDICTS["unknown"]), _FILLED.get(cell.verdict, 0.0)
    look = f'rx="4" fill="{colour}" fill-opacity="{opacity}" stroke="{colour}" stroke-opacity="{1 if opacity else 0.45}"'
    body = _rect(x + 2, y + 2, wide - 4, tall - 4, look, hover=cell.hover)
    body += f'<text x="{x + wide / 2:.1f}" y="{y + 21:.1f}" text-anchor="middle"{_inks(opacity)}>{escape(cell.text)}</text>'
    if cell.here:
        body += _rect(x + 1, y + 1, wide - 2, tall - 2, 'rx="5" fill="none" stroke="currentColor" stroke-width="2.5"')
    named = f'class="cell {escape(cell.verdict)}"'
    return f'<a href="{escape(cell.link)}" {named}>{body}</a>' if cell.link else f"<g {named}>{body}</g>"


def _inks(opacity: float) -> str:
    return ' fill="#fff"' if opacity > 0.5 else ' fill-opacity=".8"' if opacity else ' fill-opacity=".6"'


def _plot(plot: Plot, width: int) -> str:
    """Curves and points; a series is named in the legend, a point by its mark where there is room."""
    left, right, bottom = 62.0, width - 14.0, 250.0
    points = [p for one in plot.series for p in one.points]
    named = [one for one in plot.series if one.name]
    legend, rows = _legend([(one.name, one.colour) for one in named], width)
    top = 26.0 + 20 * rows
    bottom += 20 * rows
    x = scale_of(plot.x, [p.x for p in points], start=left, end=right)
    y = scale_of(plot.y, [p.y for p in points], start=bottom, end=top + 6)
    out = [legend, _text(0, 20 * rows + 12, plot.y.title, more=_SMALL), *_grid_lines(y, left, right)]
    for tick in x.ticks(max(3, int(width / 90))):
        out.append(_text(x.place(tick), bottom + 18, written(tick, plot.x.form), anchor="middle", more=_SMALL))
        out.append(_line(x.place(tick), bottom, x.place(tick), bottom + 4, 'stroke-opacity=".5"'))
    out.append(_line(left, bottom, right, bottom, 'stroke-opacity=".5"'))
    out.append(_text(right, bottom + 38, plot.x.title, anchor="end", more=_SMALL))
    for one in plot.series:
        out.append(_series(one, x, y))
    out.append(_marks(points, x, y))
    return _svg(plot.title, width, bottom + 44, "".join(out))


def _series(one: Series, x: Scale, y: Scale) -> str:
    path = "L".join(f"{x.place(p.x):.1f} {y.place(p.y):.1f}" for p in one.points)
    line = (
        f'<path d="M{path}" fill="none" stroke="{one.colour}" stroke-width="2" stroke-linejoin="round"/>'
        if one.line and path
        else ""
    )
    dots = "".join(
        f'<circle cx="{x.place(p.x):.1f}" cy="{y.place(p.y):.1f}" r="4.5" fill="{p.colour or one.colour}" class="dot-mark">'
        f"<title>{escape(p.hover)}</title></circle>"
        for p in one.points
        if one.dots
    )
    return line + dots


def _marks(points: list[Point], x: Scale, y: Scale) -> str:
    """The marks that run over no other, over no point, no edge and no axis: above their points, else below, else left out."""
    taken = [(x.place(p.x) - 4, x.place(p.x) + 4, y.place(p.y) + 4) for p in points]
    out = []
    for p in points:
        if not p.mark:
            continue
        at, wide = x.place(p.x), _wide(p.mark) * 0.92
        start = min(max(x.start, at - wide / 2), x.end - wide)
        for height in (y.place(p.y) - 9, y.place(p.y) + 18):
            alone = not any(abs(h - height) < 12 and start < e + 2 and s < start + wide + 2 for s, e, h in taken)
            if alone and height <= y.start:
                taken.append((start, start + wide, height))
                out.append(_text(start, height, p.mark, more=_SMALL))
                break
    return "".join(out)


def _legend(names: list[tuple[str, str]], width: int) -> tuple[str, int]:
    """The names of the colours in rows, and how many rows; none for a single one."""
    if len(names) < 2:
        return "", 0
    out, x, row = [], 0.0, 0
    for name, colour in names:
        wide = 22 + _wide(name)
        if x and x + wide > width:
            x, row = 0.0, row + 1
        out.append(_rect(x, 20 * row + 2, 11, 11, f'rx="2" fill="{colour}"'))
        out.append(_text(x + 16, 20 * row + 12, name, more=_SMALL))
        x += wide + 8
    return "".join(out), row + 1


def _lanes(lanes: Lanes, width: int) -> str:
    """Streams over time, neighbours closer than a pixel already joined."""
    left = min(96.0, 10 + 7 * max((len(name) for name, _ in lanes.lanes), default=1))
    legend, rows = _legend(list(lanes.groups.items()), width)
    top, tall = 8.0 + 20 * rows, 26.0
    ends = [span.end for _, spans in lanes.lanes for span in spans] or [1.0]
    x = Scale(axis=_TIME, low=0.0, high=max(ends) or 1.0, start=left, end=width - 14.0)
    out = [legend]
    for j, (name, spans) in enumerate(lanes.lanes):
        y = top + j * tall
        out.append(_text(left - 8, y + 17, name, anchor="end", more=_SMALL))
        out.append(_rect(left, y + 3, x.end - left, tall - 6, 'rx="3" fill="currentColor" fill-opacity=".06"'))
        for span in spans:
            a, b = x.place(span.start), x.place(span.end)
            out.append(
                _rect(a, y + 3, max(0.7, b - a), tall - 6, f'fill="{lanes.groups.get(span.group, "#999")}"', hover=span.group)
            )
    bottom = top + len(lanes.lanes) * tall
    for tick in x.ticks(max(3, int(width / 110))):
        out.append(_text(x.place(tick), bottom + 16, written(tick, "time"), anchor="middle", more=_SMALL))
    return _svg(lanes.title, width, bottom + 22, "".join(out))


_RATIOS = (0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 4.0)


def _strips(strips: Strips, width: int) -> str:
    """A dot to a group, a band over the middle nine tenths, a stroke at the median; dots beyond the axis stand at its end."""
    left, right, tall, top = 168.0, width - 74.0, 30.0, 30.0
    bottom = top + len(strips.strips) * tall
    x = Scale(axis=Axis("", log=True), low=_RATIOS[0], high=_RATIOS[-1], start=left, end=right)
    out = []
    for tick in _RATIOS:
        exact = tick == 1.0
        out.append(_line(x.place(tick), top - 6, x.place(tick), bottom, f'stroke-opacity="{0.7 if exact else 0.14}"'))
        name = "exact" if exact else f"{tick - 1:+.0%}" if tick < 2 else f"x {tick:.0f}"
        out.append(_text(x.place(tick), bottom + 16, name, anchor="middle", soft=not exact, more=_SMALL))
    for i, strip in enumerate(strips.strips):
        y = top + (i + 0.5) * tall
        low, high = x.place(strip.low), x.place(strip.high)
        out.append(_text(left - 12, y + 4, strip.name, anchor="end", soft=False))
        out.append(_rect(low, y - 9, high - low, 18, f'rx="3" fill="{strip.colour}" fill-opacity=".22"'))
        out += [
            f'<circle cx="{x.place(ratio):.1f}" cy="{y + (j % 5 - 2) * 2.6:.1f}" r="2.6" fill="{strip.colour}" '
            'fill-opacity=".75"/>'
            for j, ratio in enumerate(strip.ratios)
        ]
        out.append(_line(x.place(strip.middle), y - 11, x.place(strip.middle), y + 11, 'stroke-width="2.5"'))
        out.append(_text(right + 10, y + 4, strip.note, more=_SMALL))
    out.append(_text(0, 12, strips.axis, more=_SMALL))
    return _svg(strips.title, width, bottom + 24, "".join(out))
