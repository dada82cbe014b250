"""Pictures of an answer: the card, the step moment by moment, users against latency, the roofline, context by users."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vramcast.charts.palette import PHASES, colour_of
from vramcast.charts.pictures import Axis, Bar, Cell, Grid, Moment, Moments, Part, Plot, Point, Series
from vramcast.hardware.accelerator import Accelerator
from vramcast.language import Language, program_and_release
from vramcast.ledger import Forecast, Term
from vramcast.planning.verdict import headline, missing_bytes
from vramcast.units import gib, time_text

_ROOF = "#6e7781"
_OUTER = 1.6  # how far the roofs go beyond the points, as a factor


def terms_of(forecast: Forecast) -> tuple[Term, ...]:
    """The terms of the worst card that are not empty; what the question wants and has no room is one of them."""
    more = missing_bytes(forecast)
    lacking = (
        (Term(name="missing", bytes=more, why="the requests want so much more cache than there is room for"),) if more else ()
    )
    return (*(t for t in forecast.worst.terms if t.bytes), *lacking)


def title_of(forecast: Forecast, say: Language) -> str:
    """``Qwen/Qwen2.5-7B-Instruct, 1 x GeForce RTX 4090, vLLM 0.33.0``."""
    w = forecast.workload
    where = f"{w.get('gpus', 1)} x {w['gpu']}" if w.get("gpu") else say("no-card")
    return f"{forecast.model.id}, {where}, {program_and_release(w)}"


def part_of(term: Term, say: Language) -> Part:
    """A term as a part of a stack, with its formula to hover."""
    label = say.word("term", term.name)
    source = f" [{term.source}]" if term.source else ""
    return Part(term.name, label, float(term.bytes), f"{label}: {gib(term.bytes)}. {say.formula(term.why)}{source}")


def card_bar(forecast: Forecast, say: Language) -> Bar:
    """The worst card as a bar."""
    bar = forecast.worst.interval
    return Bar(
        title=f"{say('memory')}: {title_of(forecast, say)}",
        parts=tuple(part_of(term, say) for term in terms_of(forecast)),
        capacity=forecast.fit.capacity_bytes,
        low=bar.low if bar else None,
        high=bar.high if bar else None,
    )


def step_moments(forecast: Forecast, say: Language) -> Moments | None:
    """The moments of a training step; None for serving, whose moments are no step."""
    rank = forecast.worst
    if "micro_batch" not in forecast.workload or len(rank.instants) < 2:
        return None
    size = forecast.fit.capacity_bytes
    outside = [part_of(term, say) for term in rank.outside if term.bytes]
    return Moments(
        title=f"{say('step-memory')}: {title_of(forecast, say)}",
        moments=tuple(
            Moment(say.moment(i.name), (*(part_of(t, say) for t in i.terms if t.bytes), *outside)) for i in rank.instants
        ),
        capacity=float(size) if size else None,
        capacity_label=f"{forecast.workload['gpu']} {gib(size, 1)}" if size else "",
    )


def users_curve(points: Sequence[Mapping[str, Any]], say: Language, *, title: str, users: float = 0) -> Plot:
    """Throughput of all users against the time each waits for a token, one point for 1, 2, 4 ... users."""
    marks = tuple(
        Point(
            p["tpot_s"], p["tokens_per_s"],
            say("curve-point", users=f"{p['concurrency']:,}", ttft=time_text(p["ttft_s"]), tpot=time_text(p["tpot_s"]),
                rate=f"{p['tokens_per_s']:,.0f}"),
            mark=f"{p['concurrency']:,}", colour=colour_of("workspace") if p["concurrency"] == users else "",
        )
        for p in points
    )  # fmt: skip
    line = Series(say("curve-users"), marks, colour_of("weights"))
    return Plot(
        title=f"{say('curve-title')}: {title}",
        x=Axis(say("tpot-s"), "time"),
        y=Axis(say("curve-y")),
        series=(line,),
    )


def roofline(operators: Sequence[Any], card: Accelerator, dtype: str, say: Language, *, title: str) -> Plot:
    """The operators of a step under the card's roofs: what the bandwidth allows and what the matrix units do."""
    peak = card.flops.get(dtype) or card.flops.get("bf16") or max(card.flops.values())
    bandwidth = card.bandwidth_bytes_per_s
    reached = [(one.flops / one.bytes, one.flops / one.seconds) for one in operators] or [(1.0, 1.0)]
    knee = peak / bandwidth
    low = min(knee, *(x for x, _ in reached)) / _OUTER
    high = max(knee, *(x for x, _ in reached)) * _OUTER
    roof = tuple(Point(x, min(x * bandwidth, peak) / 1e12) for x in (low, knee, high))
    groups = tuple(
        Series(
            say(f"roofline-{moment}"), tuple(_operator(one, say) for one in operators if one.moment == moment), colour, line=False
        )
        for moment, colour in PHASES.items()
    )
    over = Series(say("roofline-roof", card=card.name, dtype=dtype), roof, _ROOF, dots=False)
    return Plot(
        title=f"{say('roofline-title')}: {title}",
        x=Axis(say("roofline-x"), log=True),
        y=Axis("TFLOP/s", log=True),
        series=(over, *groups),
    )


def _operator(one: Any, say: Language) -> Point:
    intensity, rate = one.flops / one.bytes, one.flops / one.seconds / 1e12
    hover = say("roofline-point", name=one.name, intensity=f"{intensity:,.1f}", rate=f"{rate:,.1f}", time=time_text(one.seconds))
    return Point(intensity, rate, hover, mark=one.name)


def users_map(rows: Sequence[Sequence[Any]], say: Language, *, title: str, link: Callable[[int, int], str] | None = None,
              here: tuple[int, int] = (0, 0)) -> Grid:  # fmt: skip
    """Which context and how many users fit. ``link``: where a click on (context, users) leads; ``here``: the pair asked."""
    return Grid(
        title=f"{say('map-title')}: {title}",
        across=say("map-context"),
        down=say("map-users"),
        columns=tuple(_short(one.context) for one in rows[0]),
        rows=tuple(f"{row[0].users:,}" for row in rows),
        cells=tuple(tuple(_cell(one, say, link, here) for one in row) for row in rows),
    )


def _cell(one: Any, say: Language, link: Callable[[int, int], str] | None, here: tuple[int, int]) -> Cell:
    if one.refused:
        return Cell("unknown", "\u2013", one.refused)
    word = say(f"verdict-{one.fit.verdict}")
    need = say("map-cell", users=f"{one.users:,}", context=f"{one.context:,}", needed=gib(one.needed_bytes, 1))
    hover = f"{word}: {need}. {headline(one.fit)}"
    size = f"{one.needed_bytes / 2**30:,.0f}"
    return Cell(
        one.fit.verdict, size, hover, link=link(one.context, one.users) if link else "", here=(one.context, one.users) == here
    )


def _short(count: int) -> str:
    """``32k`` for 32,768."""
    return f"{count // 1024}k" if count >= 1024 and count % 1024 == 0 else f"{count:,}"
