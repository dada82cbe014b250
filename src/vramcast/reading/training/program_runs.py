"""Which training run of a program is answered: the first that it starts, with the arguments that its trainer is given.

A notebook trains, then loads what it trained, tries it, and often trains another model: what stands behind its first run is none
of that run's settings.
"""

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence

from vramcast.reading.python_scopes import returns_of
from vramcast.reading.python_texts import parsed_quietly
from vramcast.reading.python_values import Program, called

_STARTS = ("train", "fit")
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_DEEPEST, _TRIED = 12, 60  # names followed to what makes an object; lines left out before one that is no Python
_WRAPS = ("get_peft_model", "prepare_model_for_kbit_training", "compile")
_SECOND = ("Trainer", "Seq2SeqTrainer")  # whose second argument by place is their arguments (transformers, trainer.py)


def first_run(text: str) -> tuple[str, tuple[int, ...]]:
    """A program up to the end of the statement that starts its first run, and the lines where further runs begin.

    Runs are those of its top level: ``trainer.train()``, ``SFTTrainer(...).train()``, a function of its own that does so. A
    program without one is returned as it is.
    """
    runs = _runs_of(parsed_quietly(text))
    if not runs:
        return text, ()
    return "".join(text.splitlines(keepends=True)[: runs[0].end_lineno]), tuple(one.lineno for one in runs[1:])


def _runs_of(tree: ast.Module | None) -> list[ast.stmt]:
    """The statements of the top level that train, in their order."""
    if tree is None:
        return []
    trainers = _trainers_in(tree)
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _starts(ast.walk(node), trainers, set())}
    return [one for one in tree.body if not isinstance(one, _DEFINES) and _starts(_run_at_once(one), trainers, own)]


def readable_part(text: str) -> tuple[str, int]:
    """A program that is Python as it is; of one whose end is none what stands before, where that trains; the first line left out.

    Exports of notebooks end so: their magics are commented out, and what stood under an ``if`` is left with its indentation.
    """
    error = _syntax_error(text)
    lines = text.splitlines(keepends=True)
    for end in range(min(error, len(lines)), max(0, error - _TRIED), -1) if error else ():
        part = "".join(lines[: end - 1])
        if parsed_quietly(part) is not None:
            return (part, end) if _runs_of(parsed_quietly(part)) else (text, 0)
    return text, 0


def _syntax_error(text: str) -> int:
    """The line that Python cannot read; 0 for none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return error.lineno or 0
    except (ValueError, RecursionError, MemoryError):
        return 0
    return 0


def _trainers_in(tree: ast.Module) -> set[str]:
    """Names that hold a trainer: what a class whose name ends so makes."""
    made = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call))
    return {
        target.id
        for node in made
        for target in node.targets
        if isinstance(target, ast.Name) and called(node.value).endswith("Trainer")  # type: ignore[arg-type]
    }


def _run_at_once(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without the bodies of what it defines."""
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        yield node
        stack += [child for child in ast.iter_child_nodes(node) if not isinstance(child, _DEFINES)]


def _starts(nodes: Iterable[ast.AST], trainers: set[str], own: set[str]) -> bool:
    """Whether one of them starts a trainer, or a function of the program that does."""
    for node in (one for one in nodes if isinstance(one, ast.Call)):
        if isinstance(node.func, ast.Name) and node.func.id in own:
            return True
        base = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr in _STARTS else None
        if isinstance(base, ast.Call) and called(base).endswith("Trainer"):
            return True
        if isinstance(base, ast.Name) and (base.id in trainers or base.id.lower().endswith("trainer")):
            return True
    return False


def given_to_trainer(program: Program, arguments: Sequence[ast.Call], trainers: Iterable[str]) -> ast.Call | None:
    """The call among ``arguments`` that makes what the first trainer gets as its arguments; None where the tree does not tell."""
    for call in program.calls(*trainers):
        if program.runs(call) is False:
            continue
        given = next((word.value for word in call.keywords if word.arg == "args"), None)
        if given is None and called(call) in _SECOND and len(call.args) > 1:
            given = call.args[1]
        made = maker(program, given) if given is not None else None
        if any(made is one for one in arguments):
            return made
    return None


def model_from_elsewhere(program: Program, trainers: Iterable[str]) -> tuple[str, str]:
    """The function and the file, which is not at hand, that make the model of the first trainer; ("", "") for any other."""
    for call in program.calls(*trainers):
        given = next((word.value for word in call.keywords if word.arg == "model"), call.args[0] if call.args else None)
        if program.runs(call) is False or given is None:
            continue
        made = maker(program, given)
        for _ in range(_DEEPEST):  # a call over several lines may name what it is bound to itself
            made = maker(program, made.args[0]) if made is not None and called(made) in _WRAPS and made.args else made
        name = made.func.id if made is not None and isinstance(made.func, ast.Name) else ""
        module = program.imports.modules_of.get(name, "")
        return (name, module) if module and program.imports.of_name(name)[0] is None else ("", "")
    return "", ""


def maker(program: Program, node: ast.expr, depth: int = 0) -> ast.Call | None:
    """The call of a library that makes an object: through names, ``self.name`` and what functions of the program return."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Name):
        bound = program.bound(node)
        return maker(program, bound, depth + 1) if bound is not None else None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        kept = program.attributes.get(node.attr)
        return maker(program, kept, depth + 1) if kept is not None else None
    if isinstance(node, ast.Call):
        function = program.scopes.functions.get(called(node))
        return node if function is None else _returned(program, function, None, depth)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) and isinstance(node.slice, ast.Constant):
        function = program.scopes.functions.get(called(node.value))  # a, b = function(...)
        return node.value if function is None else _returned(program, function, node.slice.value, depth)
    return None


def _returned(program: Program, function: ast.FunctionDef | ast.AsyncFunctionDef, part: object, depth: int) -> ast.Call | None:
    """What makes the value that a function returns, or one part of it; None where its returns differ."""
    found: list[ast.Call | None] = []
    for one, _ in returns_of(function):
        value = one.value
        if isinstance(part, int) and isinstance(value, ast.Tuple) and part < len(value.elts):
            value = value.elts[part]
        found.append(maker(program, value, depth + 1) if value is not None else None)
    return found[0] if found and all(one is found[0] for one in found) else None
