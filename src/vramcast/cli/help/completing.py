"""What a shell completes after a flag or a command: models, cards, engines, frameworks, methods, as they are known offline."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

_MOST = 60


def completes(command: click.Command) -> click.Command:
    """The command with names to complete for the words that take one; only when a shell asks (``_VRAMCAST_COMPLETE``)."""
    for parameter in command.params:
        if (names := _NAMES.get(parameter.name or "")) is not None:
            parameter._custom_shell_complete = _from(names)  # what click's own argument shell_complete= sets
    return command


def _from(names: Callable[[], Iterable[str]]) -> Callable[..., list[CompletionItem]]:
    def found(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        """Names that begin so, whatever their letter case; of an id also those whose name after the maker does."""
        low = begun.lower()
        starts = [name for name in names() if name.lower().startswith(low) or name.lower().rpartition("/")[2].startswith(low)]
        return [CompletionItem(name) for name in starts[:_MOST]]

    return found


def _models() -> Iterable[str]:
    from vramcast.asking.looking import find_models

    return find_models()


def _cards() -> Iterable[str]:
    from vramcast.hardware.accelerator import catalogue

    return catalogue()


def _engines() -> Iterable[str]:
    from vramcast.serving.engines import engine_names

    return engine_names()


def _frameworks() -> Iterable[str]:
    from vramcast.training.frameworks import names

    return names()


def _methods() -> Iterable[str]:
    from vramcast.training.methods import LOW_RANK, PARTIALS, PROMPTS, TASKS

    return ("full", *LOW_RANK, *PROMPTS, *PARTIALS, *TASKS)


_NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "model": _models, "gpu": _cards, "names": _cards, "engine": _engines, "framework": _frameworks, "method": _methods,
}  # fmt: skip
