"""Reading config.json without trusting it: every field is fetched by name, checked, and its absence explained.

``Config`` wraps the parsed JSON of a model. Families ask it for what they need; a null counts as absent, a float that is a whole
number as an integer, and a value that no model can have (negative, NaN, 10^12 layers) is refused with the field's name.
"""

import math
from collections.abc import Mapping
from typing import Any

from vramcast.errors import ConfigError

_LARGEST = 2**31 - 1
_REQUIRED = object()

# Named here because ``Config.list`` hides the builtin inside the class.
Values = list[Any]
Integers = list[int]
Switches = list[bool]


class Config:
    """The fields of one config.json (or of a nested ``text_config``), with the path to name in errors."""

    def __init__(self, raw: Mapping[str, Any], path: str = "config.json") -> None:
        if not isinstance(raw, Mapping):
            raise ConfigError(f"{path} holds {type(raw).__name__} where an object was expected")
        self.raw = raw
        self.path = path

    @property
    def architecture(self) -> str:
        """The first class that ``architectures`` names, "" when none is. Raises ConfigError when it is no list."""
        return str((self.list("architectures", default=[]) or [""])[0])

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.raw.get(name) is not None

    def integer(self, *names: str, default: Any = _REQUIRED, least: int = 0, most: int = _LARGEST) -> int:
        """A whole number under the first of ``names`` that is present; ``default`` when none is, else ConfigError."""
        name, value = self._first(names, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{self.path}: {name} is {_shown(value)}, expected a whole number")
        if not least <= value <= most:
            raise ConfigError(f"{self.path}: {name} is {value}, expected {least} to {most}")
        return value

    def size(self, *names: str, default: Any = _REQUIRED) -> int:
        """A whole number of at least 1: a width, a head count, a number of layers."""
        return self.integer(*names, default=default, least=1)

    def number(self, *names: str, default: Any = _REQUIRED) -> float:
        """A finite real number."""
        name, value = self._first(names, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > 1e18:
            raise ConfigError(f"{self.path}: {name} is {_shown(value)}, expected a number")
        return float(value)

    def flag(self, *names: str, default: Any = _REQUIRED) -> bool:
        """A boolean; 0 and 1 are accepted."""
        name, value = self._first(names, default)
        if value in (0, 1, True, False):
            return bool(value)
        raise ConfigError(f"{self.path}: {name} is {_shown(value)}, expected true or false")

    def text(self, *names: str, default: Any = _REQUIRED) -> str:
        """A string."""
        name, value = self._first(names, default)
        if not isinstance(value, str):
            raise ConfigError(f"{self.path}: {name} is {_shown(value)}, expected text")
        return value

    def list(self, *names: str, default: Any = _REQUIRED) -> list[Any]:
        """A list of at most 100,000 entries."""
        name, value = self._first(names, default)
        if not isinstance(value, list | tuple) or len(value) > 100_000:
            raise ConfigError(f"{self.path}: {name} is {_shown(value)}, expected a list")
        return [*value]

    def integers(self, name: str, *, default: Any = _REQUIRED) -> Integers:
        """A list of whole numbers."""
        given = self.list(name, default=default)
        for entry in given:
            if isinstance(entry, bool) or not isinstance(entry, int):
                raise ConfigError(f"{self.path}: {name} holds {_shown(entry)}, expected whole numbers")
        return given

    def per_layer(self, name: str, count: int) -> Values:
        """One entry for each of ``count`` layers, those beyond dropped (draft layers have them); empty when absent."""
        given = self.list(name, default=[])
        if given and len(given) < count:
            raise ConfigError(f"{self.path}: {name} has {len(given)} entries for {count} layers")
        return given[:count]

    def sizes(self, name: str, count: int) -> Integers:
        """One whole number for each of ``count`` layers; empty when absent."""
        self.integers(name, default=[])
        return self.per_layer(name, count)

    def switches(self, name: str, count: int) -> Switches:
        """One true or false (or 1 or 0) for each of ``count`` layers; empty when absent."""
        given = self.per_layer(name, count)
        for entry in given:
            if entry not in (0, 1):
                raise ConfigError(f"{self.path}: {name} holds {_shown(entry)}, expected 0 or 1 for each layer")
        return [bool(entry) for entry in given]

    def child(self, *names: str) -> "Config":
        """The nested object under the first of ``names`` that is present, else ConfigError."""
        name, value = self._first(names, _REQUIRED)
        return Config(value, f"{self.path}: {name}") if isinstance(value, Mapping) else Config(value, self.path)

    def optional_child(self, *names: str) -> "Config | None":
        """The nested object, or None when absent."""
        return self.child(*names) if any(self.has(n) for n in names) else None

    def _first(self, names: tuple[str, ...], default: Any) -> tuple[str, Any]:
        for name in names:
            if self.has(name):
                return name, self.raw[name]
        if default is _REQUIRED:
            raise ConfigError(f"{self.path} has no {' or '.join(names)}: is this the config.json of a complete model?")
        return names[0], default


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
