"""A program's own options as a command gives them: its text with what was typed in the place of each default."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vramcast.reading.python_scopes import option_names
from vramcast.reading.python_texts import Splice, parsed_quietly, spliced
from vramcast.reading.python_values import called

_LONGEST = 400_000  # letters of a program whose defaults are replaced
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,11})|-?(?:\d{1,12}\.\d{0,12}|\.\d{1,12})(?:[eE]-?\d{1,3})?|-?\d{1,12}[eE]-?\d{1,3}")
_PARSERS = ("Fire", "run", "Typer")


def with_options(text: str, given: Mapping[str, Any]) -> str:
    """The program's text with what a command gives in the place of its defaults; lines stay where they are.

    ``given``: values by python name; one with a variable in it stands as a name that nothing sets. Read are the options of
    argparse and click, the fields of dataclasses, the parameters of the function that Fire or typer calls, and the constants of a
    program that executes files over them.
    """
    tree = parsed_quietly(text) if given and len(text) <= _LONGEST else None
    if tree is None:
        return text
    return spliced(
        text, [*_of_options(tree, given), *_of_fields(tree, given), *_of_function(tree, given), *_of_globals(tree, given)]
    )


def executes_files(text: str) -> bool:
    """Whether a program executes files over its own constants, as karpathy/nanoGPT's configurator.py does."""
    return re.search(r"\bexec\(\s*(?:open\(|compile\()", text) is not None


def _of_globals(tree: ast.Module, given: Mapping[str, Any]) -> Iterator[Splice]:
    """The constants of a program that executes others over them: ``--batch_size=5`` stands in the place of its own."""
    if not any(isinstance(node, ast.Call) and called(node) == "exec" for node in ast.walk(tree)):
        return
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and target.id in given:
            yield _instead(node.value, given[target.id])


def _instead(node: ast.expr, value: Any) -> Splice:
    """The value in a default's place; the words of a text stay a text."""
    of_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return (
        (node.lineno, node.col_offset),
        end,
        repr(value) if of_text and isinstance(value, str) and "$" not in value else _written(value),
    )


def _written(value: Any) -> str:
    """The value as Python writes it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if not isinstance(value, str):
        return repr(value)
    if "$" in value:
        named = re.search(r"\w+", value[value.index("$") :])
        return f"typed_{named[0][:40]}" if named else "typed_word"
    return value if _NUMBER.fullmatch(value) else value.title() if value.lower() in ("true", "false", "none") else repr(value)


def _of_options(tree: ast.Module, given: Mapping[str, Any]) -> Iterator[Splice]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and called(node) in ("add_argument", "option") and node.args):
            continue
        words = {word.arg: word.value for word in node.keywords}
        name = next((one for one in option_names(node, words.get("dest")) if one in given), None)
        if name is None:
            continue
        value, default = _of_switch(words, given[name]), words.get("default")
        if default is not None:
            end = (default.end_lineno or default.lineno, default.end_col_offset or default.col_offset)
            yield ((default.lineno, default.col_offset), end, value) if value else _instead(default, given[name])
        else:  # behind the flags, before any keyword
            end = (node.args[-1].end_lineno or node.lineno, node.args[-1].end_col_offset or node.col_offset)
            yield end, end, f", default={value or _written(given[name])}"


def _of_switch(words: Mapping[str | None, ast.expr], value: Any) -> str:
    """What an option that stands alone in a command sets, where that is not True; "" for others."""
    if value is not True:
        return ""
    action = words.get("action")
    if isinstance(action, ast.Constant) and action.value == "store_false":
        return "False"
    return ast.unparse(words["const"]) if "const" in words else ""


def _of_fields(tree: ast.Module, given: Mapping[str, Any]) -> Iterator[Splice]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or not any("dataclass" in ast.unparse(one) for one in node.decorator_list):
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id in given:
                if field.value is not None:
                    yield _instead(field.value, given[field.target.id])
                else:
                    end = (field.end_lineno or field.lineno, field.end_col_offset or field.col_offset)
                    yield end, end, f" = {_written(given[field.target.id])}"


def _of_function(tree: ast.Module, given: Mapping[str, Any]) -> Iterator[Splice]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) in _PARSERS and node.args)
    fired = {call.args[0].id for call in calls if isinstance(call.args[0], ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in fired:
            own = node.args
            named = [*zip(own.args[len(own.args) - len(own.defaults) :], own.defaults, strict=True)]
            for name, default in (*named, *zip(own.kwonlyargs, own.kw_defaults, strict=True)):
                if default is not None and name.arg in given:
                    yield _instead(default, given[name.arg])
