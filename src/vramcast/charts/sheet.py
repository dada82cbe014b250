"""Pictures of an answer one below the other, for files and notebooks: the same pictures as the page draws."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from vramcast.charts.answer import card_bar, step_moments, title_of
from vramcast.charts.palette import colour_of
from vramcast.charts.pictures import Bar, Picture
from vramcast.charts.svg import WIDE, drawn, height_of
from vramcast.charts.write import check_file
from vramcast.errors import MissingError
from vramcast.language import Language
from vramcast.ledger import Forecast

_EDGE, _GAP, _LINE = 24, 14, 22
_FONT = "system-ui, 'DejaVu Sans', 'Noto Sans CJK SC', sans-serif"


def pictures_of(forecast: Forecast, say: Language) -> list[Picture]:
    """The card, and the moments of a training step."""
    moments = step_moments(forecast, say)
    return [card_bar(forecast, say), *([moments] if moments else [])]


def sheet(pictures: Sequence[Picture], *, title: str, said: str) -> str:
    """One ``<svg>`` on white: title, a line below it, the pictures, and under a bar the names of its parts."""
    y, out = float(_EDGE + 14), []
    out.append(f'<text x="{_EDGE}" y="{y}" font-size="17" font-weight="600">{escape(title)}</text>')
    y += _LINE
    out.append(f'<text x="{_EDGE}" y="{y}" font-size="14">{escape(said)}</text>')
    y += _GAP
    for picture in pictures:
        body = drawn(picture)
        high = height_of(body)
        out.append(body.replace("<svg ", f'<svg x="{_EDGE}" y="{y:.0f}" ', 1))
        y += high + _GAP
        if isinstance(picture, Bar):
            names, rows = _names(picture, y)
            out.append(names)
            y += rows * _LINE + _GAP
    wide, high = WIDE + 2 * _EDGE, y + _EDGE - _GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high:.0f}" width="{wide}" height="{high:.0f}"'
    style = f'font-family="{escape(_FONT)}" color="#16191d" fill="#16191d"'
    return f'{head} {style}><rect width="100%" height="100%" fill="#ffffff"/>{"".join(out)}</svg>'


def _names(bar: Bar, y: float) -> tuple[str, int]:
    """The parts of a bar by colour, name and size, in rows, and how many rows."""
    out, x, row = [], float(_EDGE), 0
    for part in bar.parts:
        text = f"{part.label} {part.size / 2**30:,.2f}"
        wide = 26 + sum(7 if letter.isascii() else 13 for letter in text)
        if x > _EDGE and x + wide > WIDE + _EDGE:
            x, row = float(_EDGE), row + 1
        at = y + row * _LINE
        out.append(f'<rect x="{x:.0f}" y="{at:.0f}" width="11" height="11" rx="2" fill="{colour_of(part.name)}"/>')
        out.append(f'<text x="{x + 16:.0f}" y="{at + 10:.0f}" font-size="13">{escape(text)}</text>')
        x += wide
    return "".join(
        out
    ) + f'<text x="{WIDE + _EDGE}" y="{y + row * _LINE + 10:.0f}" font-size="12" text-anchor="end">GiB</text>', row + 1


def write_answer(forecast: Forecast, file: str, say: Language, *, said: str) -> None:
    """Write the pictures of an answer to a .svg, .html or .png file.

    Raises QuestionError for another ending or a folder that is not there, MissingError for .png without the [charts] extra.
    """
    path = check_file(file)
    text = sheet(pictures_of(forecast, say), title=title_of(forecast, say), said=said)
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
