"""Pictures of an answer one below the other, for files and notebooks: the same pictures as the page draws."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from vramcast.charts.answer import card_bar, step_moments, title_of
from vramcast.charts.palette import colour_of
from vramcast.charts.pictures import Bar, Grid, Moments, Part, Picture
from vramcast.charts.svg import WIDE, drawn, height_of
from vramcast.charts.write import check_file
from vramcast.errors import MissingError
from vramcast.language import Language
from vramcast.ledger import Forecast
from vramcast.units import gib

_EDGE, _GAP, _LINE = 24, 14, 22
_FONT = "system-ui, 'DejaVu Sans', 'Noto Sans CJK SC', sans-serif"


def pictures_of(forecast: Forecast, say: Language) -> list[Picture]:
    """The card, and the moments of a training step."""
    moments = step_moments(forecast, say)
    return [card_bar(forecast, say), *([moments] if moments else [])]


def sheet(pictures: Sequence[Picture], *, title: str, said: str, card: str = "GiB", hint: str = "") -> str:
    """One ``<svg>`` on white: title, a line below it, the pictures, and under a bar the names of its parts.

    ``card``: what stands at the bar's end; ``hint``: how the cells of a map are read.
    """
    y, out = float(_EDGE + 14), []
    out.append(f'<text x="{_EDGE}" y="{y}" font-size="17" font-weight="600">{escape(title)}</text>')
    y += _LINE
    out.append(f'<text x="{_EDGE}" y="{y}" font-size="14">{escape(said)}</text>')
    y += _GAP
    for picture in pictures:
        if isinstance(picture, Grid):
            out.append(_heading(picture.title.partition(":")[0], y + _LINE))
            y += 2 * _LINE
        body = drawn(picture).replace('stroke="Canvas"', 'stroke="#ffffff"')
        high = height_of(body)
        out.append(body.replace("<svg ", f'<svg x="{_EDGE}" y="{y:.0f}" ', 1))
        y += high + _GAP
        if isinstance(picture, Bar):
            names, rows = _names(picture, _elsewhere(picture, pictures), y, card)
            out.append(names)
            y += rows * _LINE + _GAP
        if isinstance(picture, Grid) and hint:
            out.append(f'<text x="{_EDGE}" y="{y:.0f}" font-size="12" fill-opacity=".75">{escape(hint)}</text>')
            y += _LINE
    wide, high = WIDE + 2 * _EDGE, y + _EDGE - _GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high:.0f}" width="{wide}" height="{high:.0f}"'
    style = f'font-family="{escape(_FONT)}" color="#16191d" fill="#16191d"'
    return f'{head} {style}><rect width="100%" height="100%" fill="#ffffff"/>{"".join(out)}</svg>'


def _heading(text: str, y: float) -> str:
    return f'<text x="{_EDGE}" y="{y:.0f}" font-size="14" font-weight="600">{escape(text)}</text>'


def _elsewhere(bar: Bar, pictures: Sequence[Picture]) -> list[Part]:
    """Parts of a step's other moments that the bar, its peak, does not have."""
    moments = [moment for picture in pictures if isinstance(picture, Moments) for moment in picture.moments]
    known = {part.name for part in bar.parts}
    return list({part.name: part for moment in moments for part in moment.parts if part.name not in known}.values())


def _names(bar: Bar, others: Sequence[Part], y: float, card: str) -> tuple[str, int]:
    """The parts of a bar by colour, name and size, in rows, and how many rows; the card's end at the right of the last."""
    out, x, row, room = [], float(_EDGE), 0, 26 + _wide(card)
    for part in (*bar.parts, *others):
        text = part.label if part in others else f"{part.label} {gib(int(part.size))}"
        wide = 34 + _wide(text)
        if x > _EDGE and x + wide > WIDE + _EDGE:
            x, row = float(_EDGE), row + 1
        at = y + row * _LINE
        out.append(f'<rect x="{x:.0f}" y="{at:.0f}" width="11" height="11" rx="2" fill="{colour_of(part.name)}"/>')
        out.append(f'<text x="{x + 16:.0f}" y="{at + 10:.0f}" font-size="13">{escape(text)}</text>')
        x += wide
    if x + room > WIDE + _EDGE:
        row += 1
    end = f'<text x="{WIDE + _EDGE}" y="{y + row * _LINE + 10:.0f}" font-size="13" text-anchor="end">┆ {escape(card)}</text>'
    return "".join(out) + (end if card != "GiB" else ""), row + 1


def _wide(text: str) -> float:
    """About how wide a text of 13 pixels stands."""
    return sum(7.4 if letter.isascii() else 13 for letter in text)


def write_answer(forecast: Forecast, file: str, say: Language, *, said: str, more: tuple[Picture, ...] = ()) -> None:
    """Write the pictures of an answer, and ``more`` of its own, to a .svg, .html or .png file.

    Raises QuestionError for another ending or a folder that is not there, MissingError for .png without the [charts] extra.
    """
    path = check_file(file)
    card = f"{forecast.workload['gpu']} {gib(forecast.fit.capacity_bytes, 1)}" if forecast.fit.capacity_bytes else "GiB"
    hint = say("map-hint").rpartition(";")[0] if more else ""
    text = sheet([*pictures_of(forecast, say), *more], title=title_of(forecast, say), said=said, card=card, hint=hint)
    if path.suffix.lower() == ".html":
        title = escape(title_of(forecast, say))
        head = f'<!doctype html><html lang="{say.code}"><meta charset="utf-8"><title>{title}</title>'
        path.write_text(f'{head}<body style="margin:1rem">{text}</body></html>', encoding="utf-8")
    elif path.suffix.lower() == ".svg":
        path.write_text(text, encoding="utf-8")
    else:
        _write_png(path, text)


def _write_png(path: Path, text: str) -> None:
    try:
        import vl_convert
    except ImportError:
        raise MissingError.extra("charts", "drawing a plot") from None
    path.write_bytes(vl_convert.svg_to_png(text, scale=2))
