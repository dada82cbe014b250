"""Evaluation loops of a program that repeat the same allocations: ended early, so that a trace comes to its steps.

A ``for`` over a ``range`` in a function that is called as evaluations are (``estimate_loss``, ``validate``) is followed, where
every round is the same by what is written: its number shapes nothing, no batch is drawn from an iterator, whose lengths nobody
knows, and no tensor is gathered. Once its body, without a backward pass or a step, has asked for the same memory several times
and left as much behind, the loop ends there, with a note. A loop over the micro-batches of a step (``range`` of an accumulation)
goes on with its last round then. Everything else runs as it is written.
"""

import ast
import builtins
import functools
import re
import runpy
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from typing import Any

import torch

from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported

_CALLED = re.compile(r"(^|_)(eval(uate|uation)?|valid(ate|ation)?|val|test|estimate|perplexity)(_|$)|get_loss", re.IGNORECASE)
_DRAWS, _GATHERS, _NUMBERS = ("next",), ("append", "extend", "add", "insert"), ("item", "float", "int", "tolist")
_FOLLOW = "__vramcast_followed__"
_REPEATS, _SECONDS, _FEWEST_OPERATORS = 6, 5.0, 8


class Loops:
    """Follows loops of one session; ``seconds``: how long one runs before it may end early."""

    def __init__(self, session: Session, *, seconds: float = _SECONDS) -> None:
        self._session, self._seconds, self.backwards = session, seconds, 0

    def follow(self, given: Iterable[Any], name: str, line: int, accumulates: bool = False) -> Iterator[Any]:
        """What is given, one by one, until its rounds have repeated themselves for long enough.

        ``accumulates``: rounds may go backward, and the last of a range is run whatever was left out.
        """
        mode, begun, last, repeats = self._session.mode, time.monotonic(), None, 0
        for count, each in enumerate(given, 1):
            before = self._marks()
            yield each
            if mode.operators - before[0] < _FEWEST_OPERATORS:
                continue
            asked = self._asked(before, backward=accumulates)
            repeats = repeats + 1 if asked is not None and asked == last else 0
            last = asked
            rest = given[count:] if accumulates and isinstance(given, range) else None
            if repeats >= _REPEATS and time.monotonic() - begun > self._seconds and (rest is None or len(rest) > 1):
                told = f"the loop of {name} in line {line} asks for the same memory in every round: ended after {count} rounds"
                if rest is not None:
                    told += ", and the last"
                    yield rest[-1]
                self._session.notes[told] = None
                return

    def _marks(self) -> tuple[int, int, int, int]:
        session = self._session
        return session.mode.operators, len(session.recorder.log.allocations), self.backwards, session.made_steps

    def _asked(self, before: tuple[int, int, int, int], *, backward: bool) -> tuple[Any, ...] | None:
        """What a round asked for and what it left behind; None for one that made a step, or went backward where it may not."""
        operators, allocations, backwards, steps = self._marks()
        if steps != before[3] or (backwards != before[2] and not backward):
            return None
        sizes = tuple(each.size for each in self._session.recorder.log.allocations[before[1] : allocations])
        return operators - before[0], hash(sizes), self._session.recorder.live_bytes


def install(session: Session) -> None:
    """Let the program's own files be compiled with their evaluation loops followed."""
    loops = Loops(session)
    _count_backwards(loops)
    setattr(builtins, _FOLLOW, loops.follow)
    runpy.compile = _compiled  # type: ignore[attr-defined]  # the name that run_path looks up
    when_imported("transformers.trainer", lambda module: _micro_batches(module.Trainer, session))
    loader_class: Any = SourceFileLoader
    original = loader_class.get_code

    def get_code(loader: SourceFileLoader, name: str) -> Any:
        path = loader.get_filename(name)
        if is_library(path):
            return original(loader, name)
        return _compiled(loader.get_data(path), path, "exec")

    loader_class.get_code = get_code


def _count_backwards(loops: Loops) -> None:
    for name in ("backward", "grad"):
        original = getattr(torch.autograd, name)

        def counted(*args: Any, _original: Any = original, **options: Any) -> Any:
            loops.backwards += 1
            return _original(*args, **options)

        setattr(torch.autograd, name, counted)


_TRACED = 3  # micro-batches of a step: the first makes gradients, the second adds to them, the third repeats it


def _micro_batches(owner: Any, session: Session) -> None:
    """Leave out a Trainer's further micro-batches of a step that are no larger than one that was traced, but for the last."""
    original = owner.training_step
    done: list[dict[str, tuple[int, ...]]] = []
    begun = [0.0, -1]

    @functools.wraps(original)
    def training_step(self: Any, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        if begun[1] != session.made_steps:
            begun[:] = [time.monotonic(), session.made_steps]
            done.clear()
        shapes = _shapes(inputs)  # DeepSpeed's engine counts micro-batches itself: all of them run
        late = len(done) >= _TRACED and time.monotonic() - begun[0] > _SECONDS
        covered = late and not self.is_deepspeed_enabled and any(_covers(each, shapes) for each in done[1:])
        if covered and not self.accelerator.sync_gradients and hasattr(self, "_vramcast_loss"):
            told = "micro-batches of a step after the third that are no larger than those before, but for the last, are left out"
            session.notes[told] = None
            return self._vramcast_loss
        done.append(shapes)
        self._vramcast_loss = original(self, model, inputs, *args, **options)
        return self._vramcast_loss

    owner.training_step = training_step


def _shapes(inputs: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of a batch of plain tensors; nothing of one that holds lists of tensors or the like."""
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    if any(not isinstance(value, torch.Tensor | bool | int | float | str | None) for value in named.values()):
        return {}
    return {name: tuple(value.shape) for name, value in named.items() if isinstance(value, torch.Tensor)}


def _covers(larger: dict[str, tuple[int, ...]], shapes: dict[str, tuple[int, ...]]) -> bool:
    """Whether every tensor of a batch is as long as one of another at most, in every dimension."""
    alike = larger.keys() == shapes.keys() and all(len(larger[name]) == len(shapes[name]) for name in shapes)
    return alike and bool(shapes) and all(a >= b for name in shapes for a, b in zip(larger[name], shapes[name], strict=True))


def _compiled(source: Any, path: str, kind: str = "exec", *_: Any, **__: Any) -> Any:
    """The code of a file with its evaluation loops followed; lines stay what they are."""
    tree = ast.parse(source, path)
    followed = _Followed()
    followed.visit(tree)
    return compile(ast.fix_missing_locations(tree) if followed.any else source, path, kind, dont_inherit=True)


def _accumulates(node: ast.For) -> bool:
    """Whether a loop goes over the micro-batches of a step: a range of a number named so, with a backward pass in it."""
    count = node.iter.args[0] if isinstance(node.iter, ast.Call) and len(node.iter.args) == 1 else None
    named = isinstance(count, ast.Name | ast.Attribute | ast.Subscript) and "accum" in ast.unparse(count).lower()
    return named and "backward" in _calls(node)


def _calls(node: ast.AST) -> set[str]:
    """Names of the functions and methods that are called below a node."""
    found = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in found}


def _same_rounds(node: ast.For) -> bool:
    """Whether every round of a ``range`` is the same by what is written: its number is compared or stored under at most."""
    if not (isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range" and isinstance(node.target, ast.Name)):
        return False
    if _calls(node) & {*_DRAWS} or any(_gathers(one) for one in ast.walk(node)):
        return False
    free = {id(name) for one in ast.walk(node) for name in _names_of_places(one)}
    used = (one for part in node.body for one in ast.walk(part) if isinstance(one, ast.Name) and one.id == node.target.id)
    return all(id(one) in free for one in used)


def _gathers(node: ast.AST) -> bool:
    """Whether a statement puts something that is no number into a list that outlives the round."""
    if isinstance(node, ast.Yield | ast.YieldFrom):
        return True
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GATHERS):
        return False
    return not all(isinstance(one, ast.Call) and _calls(one) & {*_NUMBERS} for one in node.args)


def _names_of_places(node: ast.AST) -> Iterator[ast.Name]:
    """Names in comparisons, and in the places that values are stored under."""
    if isinstance(node, ast.Compare):
        yield from (one for one in ast.walk(node) if isinstance(one, ast.Name))
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        yield from (one for one in ast.walk(node.slice) if isinstance(one, ast.Name))


class _Followed(ast.NodeTransformer):
    """Puts ``follow`` around what the loops of evaluating functions go through."""

    def __init__(self) -> None:
        self._functions: list[str] = []
        self.any = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """See ast.NodeVisitor."""
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        """See ast.NodeVisitor."""
        self.generic_visit(node)
        name = self._functions[-1] if self._functions else "the program"
        accumulates = _accumulates(node)
        if _same_rounds(node) and (accumulates or (self._functions and _CALLED.search(name))):
            given = [node.iter, ast.Constant(name), ast.Constant(node.lineno), ast.Constant(accumulates)]
            node.iter = ast.copy_location(ast.Call(ast.Name(_FOLLOW, ast.Load()), given, []), node.iter)
            self.any = True
        return node
