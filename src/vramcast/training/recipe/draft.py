"""A recipe being filled: what was given, then what each framework overrides, with the reason of every value."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec

import msgspec

from vramcast.ledger import Assumption
from vramcast.training.recipe.options import flat_name, options, part_types, read_option
from vramcast.training.recipe.parts import Part, Recipe
from vramcast.training.recipe.policy import Policy

P = ParamSpec("P")
_PART_NAMES = {kind: name for name, kind in part_types().items()}


class Override(msgspec.Struct, frozen=True):
    """Values of one part by their flat names, and why they hold; a reason that is empty is not worth telling."""

    because: str
    values: dict[str, Any]


class Translation(msgspec.Struct, frozen=True):
    """What a general word that was given means in this framework."""

    because: str
    name: str
    meanings: dict[Any, Any]


Overrides = Iterator[Override | Translation]


def because(reason: str, part: Callable[P, Part], *_nothing: P.args, **fields: P.kwargs) -> Override:
    """An override of some fields of ``part``, one of the recipe's structs, for a reason."""
    name = _PART_NAMES[part]  # type: ignore[index]  # a struct class, typed by its fields
    return Override(reason, {flat_name(name, field): value for field, value in fields.items()})


class Draft:
    """The first value set for a name wins, and each remembers why. Names are the flat ones."""

    def __init__(self, given: dict[str, Any], *, framework: str = "") -> None:
        self.framework = framework
        self.values: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}
        for name, value in given.items():
            if value is not None:
                flat, read = read_option(name, value)
                self.values[flat] = read
                self.reasons[flat] = "given"

    def fill(self, overrides: Iterable[Override | Translation]) -> None:
        """Apply overrides one after another: each may read, with ``get``, what those before it have set."""
        for override in overrides:
            if isinstance(override, Translation):
                self._translate(override)
            else:
                self._default(override)

    def _default(self, override: Override) -> None:
        for name, value in override.values.items():
            if name not in self.values:
                self.values[name] = value
                self.reasons[name] = override.because

    def _translate(self, word: Translation) -> None:
        given = self.values.get(word.name)
        if given in word.meanings:
            meant = self.values[word.name] = word.meanings[given]
            self.reasons[word.name] = f"{str(given)!r} means {str(meant)!r} here: {word.because}"

    def extend(self, reason: str, name: str, more: tuple[str, ...]) -> None:
        """Add to a list that was given what follows from it in this framework."""
        self.values[name] = (*self.values.get(name, ()), *(m for m in more if m not in self.values.get(name, ())))
        self.reasons[name] = reason

    def get(self, name: str, otherwise: Any = None) -> Any:
        """The value so far, by its flat name; ``otherwise`` while it is open. Raises KeyError for a name that no field has."""
        if name not in options():
            raise KeyError(name)
        return self.values.get(name, otherwise)

    def finish(self, *, version: str = "") -> tuple[Recipe, tuple[Assumption, ...]]:
        """The recipe, and what was assumed with its reason."""
        fields: dict[str, dict[str, Any]] = {part: {} for part in part_types()}
        known = options()
        for name, value in self.values.items():
            option = known[name]
            fields[option.part][option.field] = value
        parts: dict[str, Any] = {part: part_types()[part](**values) for part, values in fields.items()}
        return Recipe(framework=self.framework, version=version, **parts), tuple(self._assumed())

    def _assumed(self) -> Iterator[Assumption]:
        for name, value in self.values.items():
            reason = self.reasons[name]
            if reason not in ("given", ""):
                yield Assumption(name, str(value) if isinstance(value, Policy) else value, reason)
