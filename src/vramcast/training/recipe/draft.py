"""A recipe being filled: words checked where they are typed, then what frameworks override, with the reason of every value.

Every field of a part has one flat name (``sharding``, ``norm``) beside its full one (``sharding.kind``, ``kernels.norm``).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Literal, ParamSpec, cast, get_args, get_origin, get_type_hints

import msgspec

from vramcast import units
from vramcast.errors import QuestionError, unknown_name
from vramcast.ledger import Assumption
from vramcast.training.recipe.parts import Dtype, Part, Policy, Recipe, parse_policy

# flat names that differ from their field's, which its part already names
_FLAT = {
    "task.kind": "task",
    "quantization.scheme": "quant",
    "update.implementation": "update",
    "sharding.kind": "sharding",
    "recomputation.policy": "checkpointing",
    "loss.kind": "loss",
}


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a recipe: its flat ``name``, its ``part`` and ``field``, its ``type``, and what it says of itself."""

    name: str
    part: str
    field: str
    type: Any
    default: Any
    meaning: str

    @property
    def words(self) -> tuple[Any, ...]:
        """The words that it takes; none where any number or name will do."""
        kind = get_args(self.type)[0] if get_origin(self.type) is not None and hasattr(self.type, "__metadata__") else self.type
        return tuple(_literals(kind))


def _literals(kind: Any) -> list[Any]:
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [word for inner in get_args(kind) if inner is not ... for word in _literals(inner)]


@cache
def options() -> dict[str, Option]:
    """Every option by its flat name, in the order of the parts."""
    found = [_option(part, kind, field) for part, kind in part_types().items() for field in kind.__struct_fields__]
    return {option.name: option for option in found}


@cache
def part_types() -> dict[str, type[Part]]:
    """The parts of a recipe by their names in it."""
    return {name: kind for name, kind in get_type_hints(Recipe).items() if kind is not str}


def _option(part: str, kind: type[Part], field: str) -> Option:
    annotated = get_type_hints(kind, include_extras=True)[field]
    meaning = next((m.description for m in annotated.__metadata__ if getattr(m, "description", None)), "")
    name = flat_name(part, field)
    return Option(name=name, part=part, field=field, type=annotated, default=getattr(kind(), field), meaning=meaning)


def flat_name(part: str, field: str) -> str:
    """The flat name of a part's field."""
    return _FLAT.get(f"{part}.{field}", field)


def flat(recipe: Recipe) -> dict[str, Any]:
    """The whole recipe by flat names, as answers list it."""
    parts = {option.name: getattr(getattr(recipe, option.part), option.field) for option in options().values()}
    named = {"framework": recipe.framework, "version": recipe.version}
    return named | {name: str(value) if isinstance(value, Policy) else value for name, value in parts.items()}


def read_option(name: str, value: Any) -> tuple[str, Any]:
    """The flat name and the value of something given. Raises QuestionError with the nearest known names or words."""
    option = _find(name)
    if option.name == "checkpointing":
        return option.name, parse_policy(value)
    if isinstance(value, str):
        value = dtype_name(value)
    given = (value,) if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    for word in given if option.words else ():
        if word not in option.words:
            kind = f"dtype of {option.name}" if "bfloat16" in option.words else option.name
            raise unknown_name(kind, str(word), (str(w) for w in option.words if w))
    try:
        return option.name, msgspec.convert(value, option.type)
    except msgspec.ValidationError as error:
        raise QuestionError(f"training option {option.name} is {value!r}: {_plainly(str(error))}") from None


def _plainly(error: str) -> str:
    """Msgspec's words of a value of the wrong type or beyond a limit, in ours: "Expected `int` >= 1", "expected at least 1"."""
    for sign, word in ((" >= ", "at least "), (" <= ", "at most "), (" > ", "more than "), (" < ", "a share below ")):
        if sign in error:
            return f"expected {word}{float(error.rpartition(sign)[2]):g}"
    return error.replace("`", "").replace("Expected", "expected").partition(" - at")[0]


def _find(name: str) -> Option:
    part, dot, field = name.partition(".")
    known = options()
    if dot and part in part_types():
        found = known.get(flat_name(part, field))
        if found is None or found.part != part:
            raise unknown_name(f"option of {part}", field, part_types()[part].__struct_fields__)
        return found
    if name not in known:
        raise unknown_name("training option", name, known)
    return known[name]


def dtype_name(value: str) -> str:
    """The torch name of a dtype; other text is returned unchanged."""
    found = units.dtype_name(value)
    return found if found in units.BY_NAME else value


def dtype_of(value: str) -> Dtype:
    """The dtype of a name that a model or a question gives; ``width`` refuses one that is none."""
    return cast(Dtype, dtype_name(value))


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
