"""The fields of a config as a derived class sees them: what it says, other spellings, and what its class fills in.

An expression is a number, the path of a field ("text_config.hidden_size", "depths.2" for an entry of a list, "num_labels"), "#"
for the number of a layer and "##" for how many there are, or a list of an operator and its operands; ["at", field, value] asks
for the layer's own entry, ["in", field] whether the layer is listed, ["len", field] for the length of a list.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families.class_defaults import ESSENTIAL

_PLAIN: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "neg": lambda a: -a, "int": int, "ceil": math.ceil, "floor": math.floor, "round": round, "not": lambda a: not a,
}  # fmt: skip
_LARGEST_POWER = 16
_LOWEST = 1_000_000
_SIZES = ESSENTIAL | {"encoder_layers", "decoder_layers", "num_layers", "embed_dim"}


class Fields:
    """What a derived class reads from a config.

    ``known``: each field's default, or ``{"is": expression}`` where it is computed (``"always"``: whatever the config says).
    ``aliases``: other spellings of a path.
    """

    def __init__(self, config: Config, known: Mapping[str, Any], aliases: Mapping[str, str]) -> None:
        self._config, self._known, self._aliases = config, known, aliases
        self._found: dict[str, Any] = {}
        self.sizes: dict[str, bool] = {}
        """The fields looked at that make a model's size, and whether the config says them."""

    def said(self, name: str, default: Any) -> Any:
        """A field at the top as the config has it, null too; the class's own where it is absent."""
        return self._config.raw.get(name, default)

    def value(self, path: str) -> Any:
        """The field at that path. Raises ConfigError for one of another kind than the class has."""
        if path not in self._found:
            self._found[path] = self._look(path)
        return self._found[path]

    def _look(self, path: str) -> Any:
        if path == "num_labels":
            named = self._config.optional_child("id2label")
            return len(named.raw) if named else self._config.size("num_labels", default=2)
        outer, _, last = path.rpartition(".")
        if last.isdigit() and outer in self._known:
            return self._entry(outer, int(last))
        default = self._known.get(path)
        size = last in _SIZES and not isinstance(default, dict)
        said = None if isinstance(default, dict) and default.get("always") else self._said(path, default)
        if size:
            self.sizes[path] = said is not None
        if said is not None:
            return said
        return self.of(default["is"]) if isinstance(default, dict) else default

    def _entry(self, path: str, index: int) -> Any:
        given = self.value(path)
        if not isinstance(given, list | tuple) or index >= len(given):
            raise ConfigError(f"{self._config.path}: {path} has no entry {index}")
        return Config({path: given[index]}, self._config.path).number(path) if isinstance(given[index], float) else given[index]

    def _said(self, path: str, default: Any) -> Any:
        """What the config itself says under one of the field's names, checked for the kind of its default; None when absent."""
        spellings = (path, *(a for a, b in self._aliases.items() if b == path))
        for each in spellings:
            *nodes, name = each.split(".")
            node = self._config
            for step in nodes:
                node = node.optional_child(step) or Config({}, f"{self._config.path}: {step}")
            if node.has(name) and (name != "model_type" or node.raw[name]):  # SAM's first config leaves it ""
                return _checked(node, name, default)
        return None

    def of(self, how: Any, index: int = 0, count: int = 0) -> Any:
        """The value of an expression, in the layer numbered ``index`` of ``count``."""
        if isinstance(how, str):
            return index if how == "#" else count if how == "##" else self.value(how)
        if not isinstance(how, list | tuple):
            return how
        sign, *given = how
        if sign == "at":
            entries = self.value(given[0])
            return isinstance(entries, list | tuple) and index < len(entries) and entries[index] == given[1]
        if sign == "len":
            return len(self.value(given[0]) or ())
        if sign == "in":
            return index in (self.value(given[0]) or ())
        numbers = [self.of(each, index, count) for each in given]
        return _computed(sign, numbers, self._config.path)


def _computed(sign: str, numbers: list[Any], path: str) -> Any:
    try:
        if sign == "**":
            if abs(numbers[1]) > _LARGEST_POWER:
                raise ConfigError(f"{path}: a power of {numbers[1]} is larger than any model has")
            return numbers[0] ** numbers[1]
        return _PLAIN[sign](*numbers)
    except (ZeroDivisionError, TypeError, OverflowError, ValueError) as error:
        raise ConfigError(f"{path}: its fields do not fit together ({sign} of {', '.join(map(repr, numbers))})") from error


def _checked(node: Config, name: str, default: Any) -> Any:
    """The field as the kind that its default is of; a number where there is none, also one that is written for each layer."""
    if isinstance(default, bool):
        return node.flag(name)
    if isinstance(default, int) and isinstance(given := node.raw[name], list) and given and given == given[:1] * len(given):
        return Config({name: given[0]}, path=node.path).integer(name, least=-_LOWEST)
    if isinstance(default, float):
        return node.number(name)
    if isinstance(default, list | tuple):
        return node.list(name)
    if isinstance(default, str):
        return node.text(name)
    if isinstance(default, int) or (isinstance(default, dict) and isinstance(node.raw[name], int | float)):
        return node.integer(name, least=-_LOWEST)
    return node.raw[name]


def same(value: Any, other: Any) -> bool:
    """Whether two values of JSON are equal, lists and tuples alike."""
    return bool(msgspec.json.encode(value) == msgspec.json.encode(other))


def refuse(config: Config, path: str, value: Any, admitted: list[Any]) -> UnmodelledError:
    """The refusal of a field whose value was never tried."""
    shown = ", ".join(repr(each)[:40] for each in admitted[:4])
    return UnmodelledError(
        f"{config.path}: {path} is {value!r:.60}; the shapes of this class are known here for {shown}: install the [torch] extra "
        "to build it with transformers on the meta device, or point at its safetensors files, whose headers are exact"
    )
