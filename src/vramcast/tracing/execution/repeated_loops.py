"""Evaluation loops of a program that repeat the same allocations: ended early, so that a trace comes to its steps.

A ``for`` of the program's own code in a function that is called as evaluations are (``estimate_loss``, ``validate``) is followed.
Once its body, without a backward pass or a step, has asked for the same memory several times and left as much behind, the rest
would ask for it again: the loop ends there, with a note. Everything else runs as it is written.
"""

import ast
import builtins
import re
import runpy
import time
from collections.abc import Iterable, Iterator
from importlib.machinery import SourceFileLoader
from typing import Any

import torch

from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.session import Session

_CALLED = re.compile(r"eval|valid|(^|_)val(_|$)|(^|_)test(_|$)|estimate|get_loss|perplexity", re.IGNORECASE)
_FOLLOW = "__vramcast_followed__"
_REPEATS, _SECONDS, _FEWEST_OPERATORS = 6, 5.0, 8


class Loops:
    """Follows loops of one session; ``seconds``: how long one runs before it may end early."""

    def __init__(self, session: Session, *, seconds: float = _SECONDS) -> None:
        self._session, self._seconds, self.backwards = session, seconds, 0

    def follow(self, given: Iterable[Any], name: str, line: int) -> Iterator[Any]:
        """What is given, one by one, until its rounds have repeated themselves for long enough."""
        mode, begun, last, repeats = self._session.mode, time.monotonic(), None, 0
        for count, each in enumerate(given, 1):
            before = self._marks()
            yield each
            if mode.operators - before[0] < _FEWEST_OPERATORS:
                continue
            asked = self._asked(before)
            repeats = repeats + 1 if asked is not None and asked == last else 0
            last = asked
            if repeats >= _REPEATS and time.monotonic() - begun > self._seconds:
                told = f"the loop of {name} in line {line} asks for the same memory in every round: ended after {count} rounds"
                self._session.notes[told] = None
                return

    def _marks(self) -> tuple[int, int, int, int]:
        session = self._session
        return session.mode.operators, len(session.recorder.log.allocations), self.backwards, session.made_steps

    def _asked(self, before: tuple[int, int, int, int]) -> tuple[Any, ...] | None:
        """What a round asked for and what it left behind; None for one that went backward or made a step."""
        operators, allocations, backwards, steps = self._marks()
        if (backwards, steps) != before[2:]:
            return None
        sizes = tuple(each.size for each in self._session.recorder.log.allocations[before[1] : allocations])
        return operators - before[0], hash(sizes), self._session.recorder.live_bytes


def install(session: Session) -> None:
    """Let the program's own files be compiled with their evaluation loops followed."""
    loops = Loops(session)
    _count_backwards(loops)
    setattr(builtins, _FOLLOW, loops.follow)
    runpy.compile = _compiled  # type: ignore[attr-defined]  # the name that run_path looks up
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> Any:
        path = loader.get_filename(name)
        if is_library(path):
            return original(loader, name)
        return _compiled(loader.get_data(path), path, "exec")

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _count_backwards(loops: Loops) -> None:
    for name in ("backward", "grad"):
        original = getattr(torch.autograd, name)

        def counted(*args: Any, _original: Any = original, **options: Any) -> Any:
            loops.backwards += 1
            return _original(*args, **options)

        setattr(torch.autograd, name, counted)


def _compiled(source: Any, path: str, kind: str = "exec", *_: Any, **__: Any) -> Any:
    """The code of a file with its evaluation loops followed; lines stay what they are."""
    tree = ast.parse(source, path)
    followed = _Followed()
    followed.visit(tree)
    return compile(ast.fix_missing_locations(tree) if followed.any else source, path, kind, dont_inherit=True)


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
        if self._functions and _CALLED.search(self._functions[-1]):
            given = [node.iter, ast.Constant(self._functions[-1]), ast.Constant(node.lineno)]
            node.iter = ast.copy_location(ast.Call(ast.Name(_FOLLOW, ast.Load()), given, []), node.iter)
            self.any = True
        return node
