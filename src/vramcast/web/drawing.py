"""Templates to HTML: every value is escaped unless it is one of our own pictures."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vramcast.charts.pictures import Bar, Picture
from vramcast.charts.svg import NARROW
from vramcast.charts.svg import drawn as svg
from vramcast.untrusted import printable

_FOLDER = Path(__file__).parent / "templates"
_ABSENT = {
    "problem": None, "answer": None, "more_link": "", "json_link": "", "lines": (), "corrected": "", "found": "", "trace": None,
    "printed": "", "rest_link": "", "answered": "", "plan": None, "example": False,
}  # fmt: skip


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str and "\n" not in value else value,
    )  # fmt: skip
    found.auto_reload = False
    return found


def drawn(template: str, shown: dict[str, Any]) -> str:
    """The template with these values; what an answer may lack is empty."""
    return _environment().get_template(template).render({**_ABSENT, **shown})


def pictured(picture: Picture | None) -> str:
    """The picture as the page shows it: for a wide place and for a phone, of which one is seen; "" for none."""
    if picture is None:
        return ""
    if isinstance(picture, Bar):
        return svg(picture)
    return f'<div class="wide-picture">{svg(picture)}</div><div class="narrow-picture">{svg(picture, width=NARROW)}</div>'
