"""Pictures of a plan, from the object that ``--json`` prints: cost against speed, none of the points beaten in both."""

from collections.abc import Mapping, Sequence
from typing import Any

from vramcast.charts.palette import ENGINES, OTHER, colour_of
from vramcast.charts.pictures import Axis, Plot, Point, Series
from vramcast.language import Language
from vramcast.units import DAY_S, time_text

_FRAMEWORK = colour_of("weights")


def serving_front(plan: Mapping[str, Any], say: Language) -> Plot | None:
    """Dollars for a million tokens (cards where no price is known) against the time of a request; None for fewer than two."""
    front: Sequence[Mapping[str, Any]] = plan["front"]
    priced = all(one["usd_per_million_tokens"] for one in front)
    if len(front) < 2:
        return None
    points: dict[str, list[Point]] = {}
    for one in front:
        cost = one["usd_per_million_tokens"] if priced else one["gpus"]
        hover = say("front-point", cards=f"{one['gpus']} x {one['gpu']}", engine=one["engine"], layout=one["layout"],
                    time=time_text(one["request_s"]), cost=f"${cost:,.2f}" if priced else f"{cost}")  # fmt: skip
        points.setdefault(one["engine"], []).append(
            Point(one["request_s"], cost, hover, mark=f"{one['gpus']} x {_brief(one['gpu'])}")
        )
    path = Series("", tuple(sorted((p for own in points.values() for p in own), key=lambda p: p.x)), OTHER, dots=False)
    engines = tuple(
        Series(name, tuple(_bare(p) for p in own), ENGINES.get(name, OTHER), line=False) for name, own in points.items()
    )
    return Plot(
        title=f"{say('front-title')}: {plan['wanted']['model']}",
        x=Axis(say("front-x"), "time", log=True),
        y=Axis(say("front-y") if priced else say("front-cards"), "money" if priced else "number", log=priced),
        series=(path, *engines),
    )


def training_front(plan: Mapping[str, Any], say: Language) -> Plot | None:
    """Dollars against days of the run (seconds a step against cards where its tokens are not told); None for fewer than two."""
    front: Sequence[Mapping[str, Any]] = plan["front"]
    if len(front) < 2:
        return None
    whole = all(one["days"] and one["usd"] for one in front)
    points = [
        Point(
            one["days"] * DAY_S if whole else one["step_s"], one["usd"] if whole else one["gpus"],
            f"{one['gpus']} x {one['gpu']}, {one['framework']}, {one['layout']}", mark=f"{one['gpus']} x {_brief(one['gpu'])}",
        )
        for one in front
    ]  # fmt: skip
    found = Series("", tuple(sorted(points, key=lambda p: p.x)), _FRAMEWORK)
    x = Axis(say("front-run"), "days", log=True) if whole else Axis(say("step-s"), "time", log=True)
    y = Axis(say("front-usd"), "money", log=True) if whole else Axis(say("front-cards"))
    return Plot(title=f"{say('front-title')}: {plan['task']['model']}", x=x, y=y, series=(found,))


def _bare(point: Point) -> Point:
    """The point without its mark, which the path already writes."""
    return Point(point.x, point.y, point.hover)


def _brief(name: str) -> str:
    """``RTX 4090`` for GeForce RTX 4090, ``H100`` for H100 SXM5 80GB."""
    words = name.removeprefix("GeForce ").removeprefix("Tesla ").split()
    return " ".join(words[:2]) if words[0] in ("RTX", "Radeon", "L40S") else words[0]
