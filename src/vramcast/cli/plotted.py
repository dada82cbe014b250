"""``--plot FILE`` of a single answer: the pictures that the page draws of it, in a file."""

from typing import TYPE_CHECKING

import click

from vramcast.asking.wording import headline_in
from vramcast.charts.pictures import Picture
from vramcast.charts.sheet import write_answer
from vramcast.language import Language, spoken
from vramcast.ledger import Forecast

if TYPE_CHECKING:
    from vramcast.asking.asked import Asked
    from vramcast.workload import Serving


_CONTEXTS, _USERS = (2048, 4096, 8192, 16384, 32768, 65536, 131072), (1, 2, 4, 8, 16, 32, 64)


def plot_answer(forecast: Forecast, file: str, *, asked: "Asked[Serving] | None" = None) -> None:
    """Write the pictures, with a map of context and users of the serving question ``asked``; raises as ``write_answer``."""
    say, fit = spoken(), forecast.fit
    word = "" if fit.verdict == "unknown" else say("t-refused" if fit.refused else f"t-{fit.verdict}") + ": "
    said = (word + headline_in(fit, say).replace("  ", ", ")).removesuffix(": ")
    write_answer(forecast, file, say, said=said, more=_map(forecast, asked, say))
    say_written(file)


def _map(forecast: Forecast, asked: "Asked[Serving] | None", say: Language) -> tuple[Picture, ...]:
    """Which context and how many users fit; nothing without a card."""
    if asked is None or forecast.fit.verdict == "unknown":
        return ()
    from vramcast.asking.curves import squares
    from vramcast.charts.answer import title_of, users_map

    context, users = int(forecast.workload.get("context") or 0), int(forecast.workload.get("concurrency") or 1)
    rows = squares(asked, sorted({*_CONTEXTS, context} - {0}), sorted({*_USERS, users}))
    told = [i for i in range(len(rows[0])) if any(not row[i].refused for row in rows)]
    found = [[row[i] for i in told] for row in rows]
    return (users_map(found, say, title=title_of(forecast, say), here=(context, users)),) if told else ()


def say_written(file: str) -> None:
    """Say on standard error that a picture was written, and where."""
    click.echo(f"wrote {file}", err=True)
