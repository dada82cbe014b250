"""What a picture shows, apart from how it is drawn: values that the page, a notebook, a file and a terminal all draw from.

Sizes are bytes and times seconds; axes say how their numbers are written. ``charts/answer.py`` and ``charts/plans.py`` make
pictures from answers, ``charts/svg.py`` draws them.
"""

import msgspec


class Part(msgspec.Struct, frozen=True):
    """One term of a stack: its name in the ledger, its label in the reader's language, its size, what hovering tells."""

    name: str
    label: str
    size: float
    hover: str = ""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One card as a stacked bar, its end and the error bar of what is needed."""

    title: str
    parts: tuple[Part, ...]
    capacity: float | None = None
    low: float | None = None
    high: float | None = None


class Moment(msgspec.Struct, frozen=True):
    """One instant of a step: its label and what is alive at it."""

    label: str
    parts: tuple[Part, ...]

    @property
    def size(self) -> float:
        """All parts together."""
        return sum(part.size for part in self.parts)


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """The instants of a training step as stacked columns under the end of the card."""

    title: str
    moments: tuple[Moment, ...]
    capacity: float | None = None
    capacity_label: str = ""


class Cell(msgspec.Struct, frozen=True):
    """One question of a grid: its verdict, its text, what hovering tells, where a click leads; whether it was asked."""

    verdict: str
    text: str
    hover: str = ""
    link: str = ""
    here: bool = False


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts over two axes; ``cells[row][column]``."""

    title: str
    across: str
    down: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]


class Axis(msgspec.Struct, frozen=True):
    """``form``: how its numbers are written: number, time or days (seconds), money (dollars), memory (bytes)."""

    title: str
    form: str = "number"
    log: bool = False


class Point(msgspec.Struct, frozen=True):
    """A value of a series; ``mark``: written beside it."""

    x: float
    y: float
    hover: str = ""
    mark: str = ""
    colour: str = ""


class Series(msgspec.Struct, frozen=True):
    """Points of one meaning, joined by a line where they are a curve."""

    name: str
    points: tuple[Point, ...]
    colour: str
    line: bool = True
    dots: bool = True


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """Curves and points over two axes: throughput and latency, a Pareto front, a roofline."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]


class Span(msgspec.Struct, frozen=True):
    """Work of one group on a lane, from start to end in seconds."""

    start: float
    end: float
    group: str


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """Streams over time; ``groups``: colour by name of a group."""

    title: str
    lanes: tuple[tuple[str, tuple[Span, ...]], ...]
    groups: dict[str, str]


class Strip(msgspec.Struct, frozen=True):
    """Ratios of one measure, one to a group; ``low`` and ``high``: between which most of them lie; ``middle``: their median."""

    name: str
    ratios: tuple[float, ...]
    colour: str
    low: float
    middle: float
    high: float
    note: str = ""


class Strips(msgspec.Struct, frozen=True, kw_only=True):
    """Measured over forecast, a strip of dots to a measure, over one logarithmic axis whose middle is an exact forecast."""

    title: str
    axis: str
    strips: tuple[Strip, ...]


Picture = Bar | Moments | Grid | Plot | Lanes | Strips
