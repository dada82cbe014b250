"""Methods and plain functions whose value follows from their arguments: of text, lists, mappings and numbers. None for others."""

import ast
import json
import shlex
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_LONGEST = 4_000
_TEXT = ("lower", "upper", "strip", "rstrip", "lstrip", "title")
_PATHS = ("expanduser", "resolve", "absolute", "as_posix")  # of a path, which is held as its text


def method_value(name: str, base: Any, arguments: list[Any], words: dict[str, Any]) -> Any:
    """The value of ``base.name(*arguments)`` or ``name(*arguments)``; None where it is not told by them."""
    plain = all(isinstance(one, str | int | float | bool | list | dict | type(None)) for one in arguments)
    if isinstance(base, dict):
        return _of_mapping(name, base, arguments)
    if isinstance(base, str):
        return _of_text(name, base, arguments, words) if plain else None
    if isinstance(base, list) and name == "copy":
        return list(base)
    return _of_function(name, arguments) if plain and arguments else None


def _of_mapping(name: str, base: dict[Any, Any], arguments: list[Any]) -> Any:
    if name in ("get", "pop") and arguments and isinstance(arguments[0], str | int):
        return base.get(arguments[0], arguments[1] if len(arguments) > 1 else None)
    return {"copy": dict(base), "keys": list(base), "values": list(base.values())}.get(name)


def _of_text(name: str, base: str, arguments: list[Any], words: dict[str, Any]) -> Any:
    if name in _PATHS and not arguments:
        return base
    if name in _TEXT and len(arguments) < 2:
        return getattr(base, name)(*arguments) if all(isinstance(one, str) for one in arguments) else None
    if (
        name == "join"
        and arguments
        and isinstance(arguments[0], list)
        and all(isinstance(one, str | int) for one in arguments[0])
    ):
        joined = base.join(map(str, arguments[0]))
        return joined if len(joined) < _LONGEST else None
    if name in ("split", "rsplit") and len(arguments) < 2 and all(isinstance(one, str) and one for one in arguments):
        return base.split(*arguments)
    if name == "replace" and len(arguments) == 2 and all(isinstance(one, str) for one in arguments) and arguments[0]:
        return base.replace(*arguments) if len(base) * max(1, len(arguments[1])) < _LONGEST else None
    if name in ("startswith", "endswith") and arguments and isinstance(arguments[0], str):
        return getattr(base, name)(arguments[0])
    return _filled(name, base, arguments, words)


def _filled(name: str, base: str, arguments: list[Any], words: dict[str, Any]) -> Any:
    """``"{}".format(x)`` and ``"%s" % x`` of texts and numbers, by plain holders alone."""
    values = arguments[0] if name == "%" and arguments and isinstance(arguments[0], list) else arguments
    if len(base) > _LONGEST or not all(isinstance(one, str | int | float) for one in (*values, *words.values())):
        return None
    if name == "%":
        parts = base.split("%s") if base.count("%") == base.count("%s") == len(values) else []
        return "".join(part + str(value) for part, value in zip(parts, [*values, ""], strict=True)) if parts else None
    if name != "format":
        return None
    for key, value in words.items():
        base = base.replace(f"{{{key}}}", str(value))
    for value in values:
        base = base.replace("{}", str(value), 1)
    return None if "{" in base else base[:_LONGEST]


def _of_function(name: str, arguments: list[Any]) -> Any:
    first = arguments[0]
    if name in ("int", "float", "str", "bool") and len(arguments) == 1:
        return first if isinstance(first, int | float) or (isinstance(first, str) and len(first) < _LONGEST // 10) else None
    if name == "dumps":
        return json.dumps(first, default=str)
    if name in ("loads", "safe_load") and isinstance(first, str):
        return _parsed(first)
    if name == "split" and isinstance(first, str):  # shlex.split
        try:
            return shlex.split(first)
        except ValueError:
            return None
    if name in ("join", "expanduser", "abspath", "realpath", "normpath") and all(isinstance(one, str) for one in arguments):
        return "/".join(part.rstrip("/") if at < len(arguments) - 1 else part for at, part in enumerate(arguments))
    if name in ("max", "min") and len(arguments) > 1 and all(isinstance(one, int | float) for one in arguments):
        return max(arguments) if name == "max" else min(arguments)
    if name == "len" and isinstance(first, list | dict | str):
        return len(first)
    return first if name in ("list", "tuple", "round") and isinstance(first, list | float | int) else None


def _parsed(text: str) -> Any:
    """JSON or YAML in a program's own text."""
    from vramcast.errors import VramcastError
    from vramcast.untrusted import parse_yaml

    try:
        found = parse_yaml(text, "a text of the program")
    except VramcastError:
        return None
    return found if isinstance(found, dict | list) else None


def in_order(values: list[Any]) -> Any:
    """``sorted(values)``; as they are where they cannot be compared."""
    with suppress(TypeError):
        return sorted(values)
    return values


def kept_by(held: Any, names: list[ast.expr], tests: list[ast.expr], value_of: Callable[[ast.expr], Any]) -> Any:
    """What the tests of a comprehension keep of a list or mapping: ``if v``, ``if v is not None``, ``if k in (...)``.

    None for other tests, and where a test is about a value that only running the program would tell.
    """
    if not isinstance(held, list | dict):
        return None
    parts: list[tuple[Any, ...]] = [(one,) for one in held] if isinstance(held, list) else list(held.items())
    for test in tests:
        about = test.left if isinstance(test, ast.Compare) else test
        place = next((i for i, name in enumerate(names) if ast.unparse(name) == ast.unparse(about)), None)
        keeps = _test(test, value_of)
        if place is None or keeps is None:
            return None
        truths = [keeps(one[place]) for one in parts]
        if None in truths:
            return None
        parts = [one for one, truth in zip(parts, truths, strict=True) if truth]
    return [one[0] for one in parts] if isinstance(held, list) else {one[0]: one[1] for one in parts}


def _test(test: ast.expr, value_of: Callable[[ast.expr], Any]) -> Callable[[Any], bool | None] | None:
    """A test of one value; what is open stays, for it is there, but in no list of literals."""
    if isinstance(test, ast.Name):
        return bool
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    how, right = test.ops[0], test.comparators[0]
    if isinstance(how, ast.IsNot) and isinstance(right, ast.Constant) and right.value is None:
        return lambda one: one is not None
    if isinstance(how, ast.Eq | ast.NotEq) and isinstance(right, ast.Constant):
        return lambda one: (one == right.value) is isinstance(how, ast.Eq) if isinstance(one, str | int | float | None) else None
    listed = [value_of(one) for one in right.elts] if isinstance(right, ast.Tuple | ast.List | ast.Set) else value_of(right)
    literals = isinstance(listed, list) and all(isinstance(one, str | int | float | None) for one in listed)
    if not isinstance(how, ast.In | ast.NotIn) or not literals:
        return None
    return lambda one: (one in listed) is isinstance(how, ast.In) if isinstance(one, str | int | float | None) else None
