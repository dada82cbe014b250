"""Patches of libraries that a program may import or not: applied when it does, so that none is loaded for nothing."""

import dis
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, ClassVar

from vramcast.tracing.execution.places import is_library

BETWEEN = str(Path(__file__).with_name("gone_names.py"))  # stands between an import statement and what it runs


def when_imported(name: str, patch: Callable[[Any], None]) -> None:
    """Call ``patch`` with the module of that name, now where it is imported already, else right after its import."""
    if name in sys.modules:
        patch(sys.modules[name])
        return
    _Finder.wanted.setdefault(name, []).append(patch)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds the modules that patches wait for, as Python would, and lets the patches follow their execution."""

    wanted: ClassVar[dict[str, list[Callable[[Any], None]]]] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See importlib.abc.MetaPathFinder."""
        spec = PathFinder.find_spec(name, path, target) if name in self.wanted else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def then_patch(module: Any) -> None:
            execute(module)
            for patch in self.wanted.pop(name, ()):
                with suppress(AttributeError):  # another module of the same name: a program's own evaluate.py
                    patch(module)

        spec.loader.exec_module = then_patch  # type: ignore[method-assign]
        return spec


def refusing(module: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a stand-in: what it does not hold can be imported, and says what it is when it is called.

    Where an import stands in a ``try`` it fails as it would: the program has something else to do.
    """

    def find(name: str) -> Any:
        if name.startswith("__") or is_optional(sys._getframe(1)):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")

        def refuse(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"{module}.{name} is compiled for a GPU and is not traced")

        refuse.__name__ = name
        return refuse

    return find


def asked_by_script() -> bool:
    """For a finder: whether an import statement of the user's own code, in no ``try``, is the one that looks."""
    frame: Any = sys._getframe(2)
    importing = False
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<frozen importlib") and file != BETWEEN:
            return importing and not is_library(file) and not is_optional(frame)
        importing = importing or frame.f_code.co_name == "_find_and_load"
        frame = frame.f_back
    return False


def asked_without_try(frame: Any) -> bool:
    """Whether a statement, and every one up to the user's own code that led to it, stands in no ``try``."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<frozen importlib") and file != BETWEEN:
            if is_optional(frame):
                return False
            if not is_library(file):
                return True
        frame = frame.f_back
    return False


def is_importing(frame: Any) -> bool:
    """Whether a frame stands at the ``name`` of a ``from module import name``, and asks for no attribute otherwise."""
    code = frame.f_code.co_code
    return bool(dis.opname[code[frame.f_lasti]] == "IMPORT_FROM")


def is_optional(frame: Any) -> bool:
    """Whether the statement that a frame stands at is inside a ``try``; a ``with`` keeps the place it left, a ``try`` not."""
    table = dis._parse_exception_table(frame.f_code)  # type: ignore[attr-defined]
    return any(entry.start <= frame.f_lasti < entry.end and not entry.lasti for entry in table)
