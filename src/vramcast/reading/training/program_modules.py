"""What a program does in other files of its folder: the functions and classes that it imports from there and calls.

Each such file is read as the part of it that these calls reach, with what they are given in the place of its parameters.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from vramcast.reading.python_scopes import passed_to
from vramcast.reading.python_values import Open, Program

_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def parts_of(program: Program) -> list[Program]:
    """The program, then what its calls that may run start of each file beside it; nothing of files from which it takes none."""
    calls: dict[int, list[tuple[str, ast.Call]]] = {}
    others: dict[int, Program] = {}
    for call in (node for node in ast.walk(program.tree) if isinstance(node, ast.Call)):
        other, name = _of_call(program, call)
        known = isinstance(other, Program) and (name in other.scopes.functions or name in other.scopes.classes)
        if known and program.runs(call) is not False:  # a branch that is off loads nothing
            others[id(other)] = other
            calls.setdefault(id(other), []).append((name, call))
    return [program, *(_part(program, other, calls[key]) for key, other in others.items())]


def calls_in(parts: list[Program], *names: str) -> Iterator[tuple[Program, ast.Call]]:
    """The calls of these names that are reached, the program's own first, each with the part that it stands in."""
    for part in parts:
        yield from ((part, call) for call in part.calls(*names) if part.runs(call) is not False)


def _of_call(program: Program, call: ast.Call) -> tuple[Any, str]:
    """The other file and the name there of what a call starts: ``load(...)``, ``module.load(...)``, ``Class.make(...)``."""
    function = call.func
    if isinstance(function, ast.Name):
        return program.imports.of_name(function.id)
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        other, name = program.imports.of_name(function.value.id)
        return (other, name) if other is not None else (program.imports.module(function.value.id), function.attr)
    return None, ""


def _part(program: Program, other: Program, calls: list[tuple[str, ast.Call]]) -> Program:
    """What the calls reach of another file, as a program of its own."""
    reached = _reached(other, {name for name, _ in calls})
    body = [node for node in other.tree.body if not isinstance(node, _DEFINED) or node.name in reached]
    part = Program(ast.Module(body=body, type_ignores=[]), other.imports)
    part.capability = program.capability
    for name, call in calls:
        if (function := _function(part, name)) is not None and sum(name == one for one, _ in calls) == 1:
            given = {key: program.value(value) for key, value in passed_to(function, call)}
            part.frames.append(
                (function, {**_annotated(part, function), **{k: v for k, v in given.items() if not isinstance(v, Open)}})
            )
    return part


def _reached(other: Program, names: set[str]) -> set[str]:
    """The functions and classes of a file that these names start, and what those start in turn."""
    defined = {node.name: node for node in other.tree.body if isinstance(node, _DEFINED)}
    todo, found = list(names), set()
    while todo:
        name = todo.pop()
        if name in defined and name not in found:
            found.add(name)
            todo += [node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)]
    return found


def _function(part: Program, name: str) -> _Function | None:
    """The function of a name, or the one that makes an object of a class."""
    if (node := part.scopes.classes.get(name)) is not None:
        return next((one for one in node.body if isinstance(one, _Function) and one.name == "__init__"), None)
    return part.scopes.functions.get(name)


def _annotated(part: Program, function: _Function) -> dict[str, Any]:
    """The parameters that hold an object of a class which is at hand, as the class makes it: ``config: TrainConfig``."""
    found = {}
    for one in (*function.args.args, *function.args.kwonlyargs):
        if isinstance(one.annotation, ast.Name):
            other, name = part.imports.of_name(one.annotation.id)
            owner, name = (other, name) if isinstance(other, Program) else (part, one.annotation.id)
            if name in owner.scopes.classes and (fields := owner.built(name)):
                found[one.arg] = fields
    return found


def is_used(program: Program, call: ast.Call, takers: Iterable[str]) -> bool:
    """Whether the object that a call makes is handed on; of a program that starts none of its ``takers``, it is.

    One that is bound to a name which nobody reads belongs to no run: a configuration whose use is commented out.
    """
    bound = (node for node in ast.walk(program.tree) if isinstance(node, ast.Assign) and node.value is call)
    names = {one.id for node in bound for one in node.targets if isinstance(one, ast.Name)}
    read = {node.id for node in ast.walk(program.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return not names or bool(names & read) or not any(program.calls(*takers))
