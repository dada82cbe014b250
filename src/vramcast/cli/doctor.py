"""``vramcast doctor``: the state of this machine, or of a pasted report, and what follows from it; what each extra adds."""

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from vramcast import __version__
from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.cli.pages.page import Page
from vramcast.cli.structs import print_struct
from vramcast.errors import QuestionError
from vramcast.hardware.health import State, this_machine

_EPILOG = """\b
Examples:
  vramcast doctor
  vramcast doctor --json
  nvidia-smi | vramcast doctor -
  vramcast doctor ds_report.txt
  python -m torch.utils.collect_env | vramcast doctor -
"""
_EXTRAS = (
    ("torch", ("torch", "transformers", "accelerate", "peft"), "trace a real step; build models that no family describes"),
    ("gpu", ("pynvml",), "read the local card (--gpu local) and measure on it"),
    ("profile", ("numpy",), "read profiler traces"),
    ("charts", ("altair", "vl_convert"), "plots as PNG, SVG or HTML"),
    ("web", ("litestar", "uvicorn", "jinja2"), "the page and its API (vramcast web)"),
    ("mcp", ("mcp",), "tools for assistants (vramcast mcp)"),
    ("gguf", ("gguf",), "write GGUF test files"),
    ("cluster", ("ray",), "sweeps over a cluster's GPUs"),
)
_STYLES = {"ok": "good", "note": "faint", "warn": "warn", "bad": "bad"}
_MARKS = {"ok": "ok  ", "note": "note", "warn": "warn", "bad": "bad "}


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.argument("what", required=False, metavar="[FILE|-]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(what: str | None, as_json: bool) -> int:
    """Show cards, driver, CUDA, NCCL, links, network cards and versions, each with what follows from it.

    Of this machine, or of a pasted nvidia-smi (also -q and --query-gpu), ds_report or torch.utils.collect_env. Exit code 1 when
    something is wrong.
    """
    from vramcast.planning.health import lines_of

    state = _pasted(what) if what else this_machine()
    lines = lines_of(state)
    if as_json:
        extras = {} if what else {"extras": {extra: not _missing(modules) for extra, modules, _ in _EXTRAS}}
        print_struct("doctor", {}, state=state, lines=lines, **extras)
    else:
        _page(state, lines, own=not what).show()
    return int(any(line.level == "bad" for line in lines))


def _pasted(what: str) -> State:
    from vramcast.reading.environment_reports import MOST_CHARACTERS, read_environment

    try:
        source = sys.stdin.buffer if what == "-" else Path(what).expanduser().open("rb")
        with source:
            data = source.read(MOST_CHARACTERS)
    except OSError as error:
        raise QuestionError(f"cannot read {what}: {error.strerror}") from None
    return read_environment(data.decode("utf-8", "replace"))


def _page(state: State, lines: Any, *, own: bool) -> Page:
    page = Page()
    if own:
        page.line(("vramcast ", "title"), __version__, ("   python ", "title"), state.python)
    page.heading("This machine" if own else f"From {' and '.join(state.told_by)}")
    for line in lines:
        _line(page, line)
    if not any(line.topic == "card" for line in lines):
        page.line("  ", ("no card", "title"), (" is in the report" if not own else " was found", ""))
    _topology(page, state)
    if own:
        _extras(page)
    return page


def _line(page: Page, line: Any) -> None:
    """One fact in as many lines as it needs, what follows from it below."""
    import textwrap

    room = max(40, page.width - 9)
    for n, text in enumerate(textwrap.wrap(line.what, room)):
        page.line("  ", (_MARKS[line.level] if not n else "    ", _STYLES[line.level]), "  ", text)
    for n, text in enumerate(textwrap.wrap(line.so_what, room - 3)):
        page.line("        ", ("-> " if not n else "   ", "faint"), (text, "faint"))


def _topology(page: Page, state: State) -> None:
    """The link matrix in a line, where it was told."""
    if not state.topology:
        return
    from vramcast.hardware.topology import parse_topology

    try:
        topology = parse_topology(state.topology)
    except QuestionError:
        return
    pairs = ", ".join(f"{count} x {link}" for link, count in topology.pairs().items()) or "one card"
    page.line("  ", ("ok  ", "good"), "  ", f"links: {pairs}", ("; `vramcast topology` says what follows", "faint"))


def _missing(modules: tuple[str, ...]) -> list[str]:
    return [m for m in modules if m not in sys.modules and importlib.util.find_spec(m) is None]


def _extras(page: Page) -> None:
    page.heading("Extras")
    for extra, modules, adds in _EXTRAS:
        state = ("missing", "warn") if _missing(modules) else ("installed", "good")
        page.line("  ", (extra.ljust(10), "title"), (state[0].ljust(11), state[1]), adds)
        if _missing(modules):
            page.line("             ", (f"pip install 'vramcast[{extra}]'", "faint"))
    page.heading("Network and caches")
    page.line("  hub endpoint   ", _hub_endpoint())
    page.line("  hub cache      ", _hub_cache())


def _hub_endpoint() -> str:
    offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")
    endpoint = re.sub(r"//[^/@]*@", "//", os.environ.get("HF_ENDPOINT", "https://huggingface.co"))  # no password on a page
    return endpoint + (" (HF_HUB_OFFLINE: never contacted)" if offline else "")


def _hub_cache() -> str:
    return os.environ.get("HF_HUB_CACHE") or str(Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser() / "hub")
