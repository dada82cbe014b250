"""What ``vramcast trace`` answers where the installed libraries cannot be traced: the forecast, saying so."""

from typing import Any

from vramcast.errors import UntraceableError


def forecast_instead(given: dict[str, Any], lack: UntraceableError) -> int:
    """The forecast of the question that could not be traced. Raises ``lack`` for what has none: a script, a generation."""
    from vramcast.asking.training import training_question
    from vramcast.cli.output import print_json
    from vramcast.cli.train import words_of
    from vramcast.ledger import Unmodelled
    from vramcast.planning.tracing.trained import by_known_rules
    from vramcast.planning.training import forecast_training
    from vramcast.planning.verdict import exit_code

    if given["program"] or given["generate"]:
        raise lack
    asked = training_question(given["model"], files=given["files"], **words_of(given))
    reason = Unmodelled(f"forecast, not traced: {lack}")
    forecast = forecast_training(
        by_known_rules(asked.question), model=asked.model, assumed=asked.assumed, unmodelled=(*asked.unmodelled, reason)
    )
    if given["as_json"]:
        print_json(forecast)
    else:
        import click

        from vramcast.cli.pages.answer import training_page

        click.echo(f"vramcast: {reason.what}", err=True)
        training_page(forecast).show()
    return exit_code(forecast.fit)
