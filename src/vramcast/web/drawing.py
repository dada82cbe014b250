"""Templates to HTML: every value is escaped unless it is one of our own pictures."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vramcast.untrusted import printable

_FOLDER = Path(__file__).parent / "templates"
_ABSENT = {"problem": None, "answer": None, "map_link": "", "json_link": "", "lines": (), "corrected": "", "found": ""}


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
