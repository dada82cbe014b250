"""What ``vramcast trace`` answers where the installed libraries cannot be traced: the forecast, saying so."""

from typing import Any

from vramcast.errors import UntraceableError


def forecast_instead(given: dict[str, Any], lack: UntraceableError) -> int:
    """The forecast of the question that could not be traced. Raises ``lack`` for what has none: a script, a generation."""
    from vramcast.cli.output import print_json
    from vramcast.cli.serve import card_assumptions
    from vramcast.cli.train import question_of
    from vramcast.ledger import Unmodelled
    from vramcast.planning.tracing.trained import by_known_rules
    from vramcast.planning.training import forecast_training

    if given["program"] or given["generate"]:
        raise lack
    question, model = question_of({**given, "loss": None})
    reason = Unmodelled(f"forecast, not traced: {lack}")
    forecast = forecast_training(
        by_known_rules(question), model=model, assumed=card_assumptions(given["gpu"]), unmodelled=(reason,)
    )
    if given["as_json"]:
        print_json(forecast)
    else:
        import click

        from vramcast.cli.drawing import training_page

        click.echo(f"vramcast: {reason.what}", err=True)
        training_page(forecast).show()
    return int(forecast.fit.verdict == "no")
