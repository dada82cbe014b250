"""A page of styled lines: drawn with colours and bars in a terminal, plain text when piped. The content is the same value.

A ``Page`` is built once from spans (text, style). ``show`` picks the drawing; rich is imported only when a terminal is drawn.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence

from vramcast.untrusted import printable

Span = tuple[str, str]

COLOURS = {
    "weights": "dodger_blue1", "kv_cache": "medium_spring_green", "state": "spring_green3", "activations": "orange1",
    "logits": "gold1", "graphs": "orchid", "workspace": "plum2", "communication": "salmon1", "context": "grey58",
    "gradients": "turquoise2", "optimizer": "medium_purple1", "master_weights": "slate_blue1", "loss": "gold1",
    "gathered": "salmon1", "temporaries": "plum2", "gradient_copy": "plum2", "free": "grey23",
    "good": "bold green", "warn": "bold yellow", "bad": "bold red", "title": "bold", "faint": "grey62", "number": "bold",
}  # fmt: skip


class Page:
    """Lines of spans in the order they will be read."""

    def __init__(self, *, terminal: bool | None = None) -> None:
        self.lines: list[tuple[Span, ...]] = []
        self.terminal = is_terminal() if terminal is None else terminal
        self.width = min(shutil.get_terminal_size((110, 30)).columns, 130)

    def line(self, *spans: Span | str) -> None:
        """One line; a bare string has no style."""
        pairs = ((s, "") if isinstance(s, str) else s for s in spans)
        self.lines.append(tuple((printable(text), style) for text, style in pairs))

    def blank(self) -> None:
        """An empty line."""
        self.lines.append(())

    def heading(self, text: str) -> None:
        """A line that opens a section."""
        self.blank()
        self.line((text, "title"))

    def bar(self, parts: Iterable[tuple[str, int]], *, total: int, label: str) -> None:
        """A bar of coloured parts of a whole, only in a terminal: (style, amount), the rest drawn as free."""
        if not self.terminal or total <= 0:
            return
        room = max(20, self.width - len(label) - 4)
        spans = [("█" * cells, style) for style, cells in _cells(list(parts), total, room)]
        free = room - sum(len(text) for text, _ in spans)
        self.line("  ", *spans, ("░" * max(0, free), "free"), (f" {label}", "faint"))

    def table(
        self, rows: Sequence[tuple[str, ...]], *, styles: tuple[str, ...] = (), right: frozenset[int] = frozenset()
    ) -> None:
        """Columns padded to their widest cell; columns in ``right`` are aligned right."""
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
        for row in rows:
            cells = [cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
            styled = [(cell, styles[i] if i < len(styles) else "") for i, cell in enumerate(cells)]
            self.line("  ", *(span for cell in styled for span in (cell, ("  ", ""))))

    def fitted(self, text: str, *, used: int) -> str:
        """The text, cut to what is left of a terminal's line after ``used`` columns; whole when piped."""
        room = max(20, self.width - used)
        return text if not self.terminal or len(text) <= room else text[: room - 1] + "…"

    def show(self) -> None:
        """Write the page to standard output."""
        if self.terminal:
            _draw(self.lines)
        else:
            sys.stdout.write("\n".join("".join(text for text, _ in line).rstrip() for line in self.lines) + "\n")


def is_terminal() -> bool:
    """Whether standard output is a person's terminal (FORCE_COLOR counts as one)."""
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


def _cells(parts: list[tuple[str, int]], total: int, room: int) -> list[tuple[str, int]]:
    """Whole cells for each part so that the drawn length of the first k parts is right to half a cell."""
    cells, done, drawn = [], 0, 0
    for style, amount in parts:
        done += amount
        end = min(room, round(done / total * room))
        cells.append((style, max(0, end - drawn)))
        drawn = max(drawn, end)
    return cells


def _draw(lines: list[tuple[Span, ...]]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=False)
    for line in lines:
        console.print(Text.assemble(*((text, COLOURS.get(style, style)) for text, style in line)), no_wrap=False)
