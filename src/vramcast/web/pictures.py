"""The pictures beside an answer: which context and how many users fit, throughput against latency, operators under the roofs."""

from typing import Any

from vramcast.asking.curves import curve, operators, squares
from vramcast.asking.visitor import asked_by_visitor
from vramcast.charts.answer import roofline, title_of, users_curve, users_map
from vramcast.charts.pictures import Picture
from vramcast.errors import QuestionError, VramcastError
from vramcast.language import Language
from vramcast.untrusted import disk_closed
from vramcast.web.api import answered
from vramcast.web.drawing import pictured
from vramcast.web.view import link

_CONTEXTS = (2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)
_FEWEST = 3  # points that make a curve
_USERS = (1, 2, 4, 8, 16, 32, 64)


def pictures_of(words: dict[str, Any], say: Language) -> list[dict[str, str]]:
    """Each picture with its heading and what it tells. Raises VramcastError where the question has no answer or no card."""
    forecast = answered("serve", words)
    context, users = int(forecast.workload.get("context") or 0), int(forecast.workload.get("concurrency") or 1)
    title = title_of(forecast, say)
    with disk_closed():
        asked: Any = asked_by_visitor("serve", words)
        rows = squares(asked, sorted({*_CONTEXTS, context} - {0}), sorted({*_USERS, users}))
        told = [i for i in range(len(rows[0])) if any(not row[i].refused for row in rows)]  # not beyond the model's own end
        rows = [[row[i] for i in told] for row in rows]
        here = {**words, "lang": say.code}
        found: list[tuple[str, Picture]] = [(
            "map",
            users_map(rows, say, title=title, here=(context, users),
                      link=lambda c, u: link(here, "serve", context=c, concurrency=u, prompt=None, output=None, rate=None)),
        )]  # fmt: skip
        for name, draw in (("curve", _curve), ("roofline", _roofline)):
            try:
                found.append((name, draw(asked, say, title, users)))
            except VramcastError:  # no law covers a kernel of it: the answer says so where it stands
                continue
    return [{"title": say(f"{name}-title"), "hint": say(f"{name}-hint"), "svg": pictured(one)} for name, one in found]


def _curve(asked: Any, say: Language, title: str, users: int) -> Picture:
    points = curve(asked)
    if len(points) < _FEWEST:
        raise QuestionError("the card serves too few at once for a curve")
    return users_curve(points, say, title=title, users=users)


def _roofline(asked: Any, say: Language, title: str, _: int) -> Picture:
    found, card, dtype = operators(asked)
    return roofline(found, card, dtype, say, title=title)
