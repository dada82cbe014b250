"""``vramcast doctor``: what is installed here, and what each missing extra would add."""

import importlib.util
import sys

import click

from vramcast import __version__
from vramcast.cli.page import Page

_EXTRAS = (
    ("torch", ("torch", "transformers", "accelerate", "peft"), "trace a real step; build models that no family describes"),
    ("gpu", ("pynvml",), "read the local card (--gpu local) and measure on it"),
    ("charts", ("altair", "vl_convert"), "plots as PNG, SVG or HTML"),
    ("gguf", ("gguf",), "write GGUF test files"),
    ("cluster", ("ray",), "sweeps over a cluster's GPUs"),
)


@click.command(epilog="\b\nExample:\n  vramcast doctor")
def command() -> int:
    """Show versions, where caches are, and what each extra adds."""
    page = Page()
    page.line(("vramcast ", "title"), __version__, ("   python ", "title"), sys.version.split()[0])
    page.heading("Extras")
    for extra, modules, adds in _EXTRAS:
        missing = [m for m in modules if importlib.util.find_spec(m) is None]
        state = ("installed", "good") if not missing else ("missing", "warn")
        page.line("  ", (extra.ljust(10), "title"), (state[0].ljust(11), state[1]), adds)
        if missing:
            page.line("             ", (f"pip install 'vramcast[{extra}]'", "faint"))
    page.heading("Network and caches")
    page.line("  hub endpoint   ", _hub_endpoint())
    page.line("  hub cache      ", _hub_cache())
    page.show()
    return 0


def _hub_endpoint() -> str:
    import os

    offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co") + (" (HF_HUB_OFFLINE: never contacted)" if offline else "")


def _hub_cache() -> str:
    import os
    from pathlib import Path

    return os.environ.get("HF_HUB_CACHE") or str(Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser() / "hub")
