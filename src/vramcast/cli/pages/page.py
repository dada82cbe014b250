"""A page of styled lines: drawn with colours and bars in a terminal, plain text when piped. The content is the same value.

A ``Page`` is built once from spans (text, style). ``show`` picks the drawing; rich is imported only when a terminal is drawn.
In a terminal a line that is too long goes on below, under where its text began; a bar is always shorter than the line. Without
colours (NO_COLOR) every part of a bar has its own pattern, and where the output cannot hold the characters, letters stand for
them.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from unicodedata import east_asian_width

import msgspec

from vramcast.cli.pages.characters import LETTERS, PATTERNS, holds_unicode, written
from vramcast.untrusted import printable

Span = tuple[str, str]

COLOURS = {
    "weights": "dodger_blue1", "kv_cache": "medium_spring_green", "state": "spring_green3", "activations": "orange1",
    "logits": "gold1", "graphs": "orchid", "workspace": "plum2", "communication": "salmon1", "context": "grey58",
    "gradients": "turquoise2", "optimizer": "medium_purple1", "master_weights": "slate_blue1", "loss": "gold1",
    "gathered": "salmon1", "gathered_ahead": "salmon1", "temporaries": "plum2", "gradient_copy": "plum2",
    "fragmentation": "grey50", "free": "grey23",
    "missing": "red3", "good": "bold green", "warn": "bold yellow", "bad": "bold red", "title": "bold", "faint": "grey62",
    "number": "bold",
}  # fmt: skip
WIDEST, NARROWEST = 130, 40
_CLOSING, _OPENING = " ，；：。、）”%…,;:.)", "（“("


class Line(msgspec.Struct, frozen=True):
    """Spans in reading order; ``hang``: the column under which the line goes on when it is too long."""

    spans: tuple[Span, ...]
    hang: int = 2

    def __iter__(self):  # type: ignore[no-untyped-def]
        """The spans."""
        return iter(self.spans)


class Page:
    """Lines of spans in the order they will be read."""

    def __init__(self, *, terminal: bool | None = None) -> None:
        self.lines: list[Line] = []
        self.terminal = is_terminal() if terminal is None else terminal
        self.width = max(NARROWEST, min(shutil.get_terminal_size((80, 30)).columns, WIDEST))
        self.coloured = not os.environ.get("NO_COLOR")

    def line(self, *spans: Span | str, hang: int | None = None) -> None:
        """One line; a bare string has no style. ``hang``: where it goes on when too long; under its first letter by default."""
        pairs = ((s, "") if isinstance(s, str) else s for s in spans)
        styled = tuple((printable(text), style) for text, style in pairs)
        whole = "".join(text for text, _ in styled)
        self.lines.append(Line(styled, len(whole) - len(whole.lstrip()) + 2 if hang is None else hang))

    def blank(self) -> None:
        """An empty line."""
        self.lines.append(Line(()))

    def heading(self, text: str) -> None:
        """A line that opens a section."""
        self.blank()
        self.line((text, "title"))

    def mark(self, style: str) -> str:
        """The character that stands for a part in bars: a full block in colour, else a pattern, else a letter."""
        if not holds_unicode():
            return LETTERS.get(style, "#")
        return PATTERNS.get(style, "█") if not self.coloured else "░" if style == "free" else "█"

    def bar(self, parts: Iterable[tuple[str, int]], *, total: int, label: str, end: int | None = None) -> None:
        """A bar of parts of a whole, only in a terminal: (style, amount), the rest drawn as free.

        ``end``: an amount within the whole where a line is drawn across, such as the end of the card.
        """
        if not self.terminal or total <= 0:
            return
        room = max(10, self.width - len(label) - 4)
        cells = [style for style, count in _cells(list(parts), total, room) for _ in range(count)]
        cells += ["free"] * (room - len(cells))
        spans = [(self.mark(style), style) for style in cells]
        if end is not None and end < total:
            spans[min(room - 1, round(end / total * room))] = ("│", "bad")
        self.line("  ", *_merged(spans), (f" {label}", "faint"))

    def table(
        self, rows: Sequence[tuple[str, ...]], *, styles: tuple[str, ...] = (), right: frozenset[int] = frozenset()
    ) -> None:
        """Columns padded to their widest cell; columns in ``right`` are aligned right; the last goes on under itself."""
        widths = [max(cells(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
        hang = min(2 + sum(width + 2 for width in widths[:-1]), self.width // 2)
        for row in rows:
            padded = [filled(cell, w, right=i in right) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
            styled = [(cell, styles[i] if i < len(styles) else "") for i, cell in enumerate(padded)]
            self.line("  ", *(span for cell in styled for span in (cell, ("  ", ""))), hang=hang)

    def fitted(self, text: str, *, used: int) -> str:
        """The text, cut to what is left of a terminal's line after ``used`` columns; whole when piped."""
        room = max(12, self.width - used)
        if not self.terminal or cells(text) <= room:
            return text
        kept = text[: room - 1]
        while cells(kept) > room - 1:
            kept = kept[:-1]
        return kept + "…"

    def text(self) -> str:
        """The page as plain text, one line each, as it is piped."""
        return "\n".join("".join(text for text, _ in line).rstrip() for line in self.lines) + "\n"

    def show(self) -> None:
        """Write the page to standard output."""
        if self.terminal:
            _draw([piece for line in self.lines for piece in wrapped(line, self.width)], self.width)
        else:
            sys.stdout.write(written(self.text()))


def cells(text: str) -> int:
    """Columns that a text takes in a terminal: two for a Chinese letter."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def filled(text: str, width: int, *, right: bool = False) -> str:
    """The text with spaces to so many columns, behind it or before it."""
    space = " " * max(0, width - cells(text))
    return space + text if right else text + space


def is_terminal() -> bool:
    """Whether standard output is a person's terminal (FORCE_COLOR counts as one)."""
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


def wrapped(line: Line, width: int) -> list[tuple[Span, ...]]:
    """The line in pieces no longer than ``width``, cut between words, the later ones under its hang."""
    spans = _without_trailing_space(line.spans)
    if sum(cells(text) for text, _ in spans) <= width:
        return [spans]
    hang = min(line.hang, width - 12)
    pieces: list[list[Span]] = [[]]
    used = 0
    for word, style in _words(spans):
        if used + cells(word.rstrip()) > width and used > (hang if len(pieces) > 1 else 0):
            pieces.append([(" " * hang, "")])
            used = hang
        shown = word.lstrip() if used == hang and len(pieces) > 1 else word
        pieces[-1].append((shown, style))
        used += cells(shown)
    return [tuple(_without_trailing_space(tuple(piece))) for piece in pieces]


def _words(spans: Iterable[Span]) -> Iterable[Span]:
    """The spans cut after each run of spaces and between Chinese letters, so that a line can be broken there."""
    for text, style in spans:
        start = 0
        for place in range(1, len(text)):
            if (text[place] != " " and text[place - 1] == " ") or _parts(text[place - 1], text[place]):
                yield text[start:place], style
                start = place
        if text[start:]:
            yield text[start:], style


def _parts(before: str, after: str) -> bool:
    """Whether a line may go on below between these letters: next to a Chinese one, never before a mark that closes."""
    return not (before + after).isascii() and after not in _CLOSING and before not in _OPENING and "W" in map(
        east_asian_width, (before, after)
    )  # fmt: skip


def _without_trailing_space(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    kept = list(spans)
    while kept and not kept[-1][0].strip():
        kept.pop()
    return (*kept[:-1], (kept[-1][0].rstrip(), kept[-1][1])) if kept else ()


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Neighbours of one style joined."""
    merged: list[Span] = []
    for text, style in spans:
        if merged and merged[-1][1] == style:
            merged[-1] = (merged[-1][0] + text, style)
        else:
            merged.append((text, style))
    return merged


def _cells(parts: list[tuple[str, int]], total: int, room: int) -> list[tuple[str, int]]:
    """Whole cells for each part so that the drawn length of the first k parts is right to half a cell."""
    cells, done, drawn = [], 0, 0
    for style, amount in parts:
        done += amount
        end = min(room, round(done / total * room))
        cells.append((style, max(0, end - drawn)))
        drawn = max(drawn, end)
    return cells


def _draw(lines: list[tuple[Span, ...]], width: int) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, width=width, legacy_windows=False)
    for line in lines:
        text = Text.assemble(*((written(text), COLOURS.get(style, style)) for text, style in line))
        console.print(text, no_wrap=True, overflow="ignore", crop=False)
