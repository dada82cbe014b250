"""``--plot FILE`` of a single answer: the pictures that the page draws of it, in a file."""

import click

from vramcast.asking.wording import headline_in
from vramcast.charts.sheet import write_answer
from vramcast.language import spoken
from vramcast.ledger import Forecast


def plot_answer(forecast: Forecast, file: str) -> None:
    """Write the pictures; raises as ``write_answer``."""
    say, fit = spoken(), forecast.fit
    word = "" if fit.verdict == "unknown" else say("t-refused" if fit.refused else f"t-{fit.verdict}")
    write_answer(forecast, file, say, said=f"{word}  {headline_in(fit, say)}".strip())
    say_written(file)


def say_written(file: str) -> None:
    """Say on standard error that a picture was written, and where."""
    click.echo(f"wrote {file}", err=True)
