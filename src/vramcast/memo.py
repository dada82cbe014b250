"""Remembering what was worked out: values of functions whose first arguments are large frozen objects (a model, a stage).

Such objects hold dictionaries, so they have no hash, and comparing them costs more than most formulas. They are never changed,
so the object itself is the key; it is kept alive beside the value, so that no other object can take its place.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def by_identity(objects: int = 1, *, most: int = 256) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator that remembers the last ``most`` values of a function of frozen objects.

    The first ``objects`` arguments are known by identity, all others by value (they must have a hash). The value is handed out
    again as it is, so it must be frozen too. Errors are not remembered.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known: dict[Any, tuple[tuple[Any, ...], R]] = {}

        @wraps(function)
        def remembered(*args: P.args, **kwargs: P.kwargs) -> R:
            own = args[:objects]
            key = (*map(id, own), args[objects:], tuple(kwargs.items()))
            found = known.get(key)
            if found is None:
                found = (own, function(*args, **kwargs))
                for oldest in list(known)[: len(known) - most + 1]:
                    known.pop(oldest, None)
                known[key] = found
            return found[1]

        return remembered

    return decorate
