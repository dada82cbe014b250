"""Settings that a program imports from another file of its folder: ``from config import MODEL_PATH``; read, never executed.

A module is looked for by its path below the folder and by its last name. At most eight are read, two deep.
"""

import ast
from collections.abc import Callable
from typing import Any

import msgspec

from vramcast.errors import QuestionError

TextOf = Callable[[str], str | None]
_MOST, _DEEPEST, _LONGEST = 8, 2, 300_000
_MOST_TRIED = 64  # names of modules that are looked for; those of libraries lie nowhere beside
_NO_SETTINGS = frozenset("os sys re json time torch vllm transformers argparse typing dataclasses pathlib logging".split())  # noqa: SIM905


class Imports(msgspec.Struct, frozen=True, kw_only=True):
    """``names``: what a name stands for, as the other program and the name there; ``modules``: other programs, by name here.

    ``modules_of``: the module that a name is imported from, whether it was read or not.
    """

    names: dict[str, tuple[Any, str]] = {}
    modules: dict[str, Any] = {}
    modules_of: dict[str, str] = {}

    def of_name(self, name: str) -> tuple[Any, str]:
        """The other program and the name there; (None, "") for a name of the program's own."""
        return self.names.get(name, (None, ""))

    def module(self, name: str) -> Any:
        """The program that a name stands for as a whole, or None."""
        return self.modules.get(name)


def imports_module(tree: ast.Module, module: str) -> bool:
    """Whether a program imports a module or a part of it, wherever it stands in the program."""
    named = (
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )
    return any(name.split(".", maxsplit=1)[0] == module for name in named)


def imports_of(tree: ast.Module, text_of: TextOf | None, parse: Callable[[str, str], Any], depth: int) -> Imports:
    """What a program's ``import`` lines bring from files beside it; nothing where none is at hand."""
    if text_of is None or depth >= _DEEPEST:
        return Imports(modules_of=_modules_of(tree))
    names: dict[str, tuple[Any, str]] = {}
    modules: dict[str, Any] = {}
    read: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (other := _program(node.module or "", text_of, parse, read)):
            for alias in node.names:
                if alias.name == "*":
                    names |= {name: (other, name) for name in {*other.names, *other.scopes.classes} if name not in names}
                names[alias.asname or alias.name] = other, alias.name
        elif isinstance(node, ast.ImportFrom | ast.Import):  # from . import config
            modules |= _whole({alias.name: alias.asname or alias.name for alias in node.names}, text_of, parse, read)
    return Imports(names=names, modules=modules, modules_of=_modules_of(tree))


def _modules_of(tree: ast.Module) -> dict[str, str]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.asname or alias.name: node.module or "" for node in found for alias in node.names}


def _whole(named: dict[str, str], text_of: TextOf, parse: Callable[[str, str], Any], read: dict[str, Any]) -> dict[str, Any]:
    return {here: other for name, here in named.items() if (other := _program(name, text_of, parse, read))}


def _program(module: str, text_of: TextOf, parse: Callable[[str, str], Any], read: dict[str, Any]) -> Any:
    """The program of a module beside, or None."""
    if not module or module.split(".", maxsplit=1)[0] in _NO_SETTINGS:
        return None
    found = sum(other is not None for other in read.values())
    if module not in read and found < _MOST and len(read) < _MOST_TRIED:
        try:
            text = text_of(f"{module.replace('.', '/')}.py")
            read[module] = parse(text, module) if text is not None and len(text) < _LONGEST else None
        except QuestionError:
            read[module] = None
    return read.get(module)
