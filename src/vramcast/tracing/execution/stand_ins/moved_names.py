"""Names and modules of earlier library versions, answered with what they are called today, each with a note.

Only the script's own imports are answered, and not one in a ``try``: that has something else to do.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

from vramcast.tracing.execution.packages import without_package
from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.absent import Missing
from vramcast.tracing.execution.stand_ins.imported import (
    BETWEEN,
    asked_by_script,
    asked_without_try,
    is_importing,
    when_imported,
)
from vramcast.tracing.published.moved import module_today, moved


def install(session: Session) -> None:
    """Answer for every name of the table."""
    for module in moved().names:
        when_imported(module, partial(_names, session))
    # transformers 5.23 puts another object in its own place there (utils/import_utils.py, direct_transformers_import).
    when_imported("transformers.processing_utils", lambda _: _names(session, sys.modules["transformers"]))
    sys.meta_path.append(_Moved(session))


class _Structure(dict[Any, Any]):
    """transformers' list of its names by module, as many a script of LLaMA's first year looks into it; 5 sorts it otherwise."""

    def __missing__(self, part: Any) -> list[str]:
        if not isinstance(part, str) or importlib.util.find_spec(f"transformers.{part}") is None:
            raise KeyError(part)
        return dir(importlib.import_module(f"transformers.{part}"))


def _names(session: Session, module: Any) -> None:
    """Put the old names behind a module's own."""
    module = sys.modules.get(module.__name__, module)  # which puts another in its place while it is imported, in transformers
    table, otherwise = moved().names[module.__name__], vars(module).get("__getattr__")

    def find(name: str) -> Any:
        if name in table and _asked(sys._getframe(1)):
            if not table[name]:
                return _gone(session, module.__name__, name)
            home, _, now = table[name].partition(":")
            found = getattr(importlib.import_module(home), now)
            today = f"{home}.{now}" if not home.startswith("vramcast") else "what it was"
            session.notes[f"{module.__name__}.{name} is of an earlier version: answered with {today}"] = None
            return _of_fewer(found) if name == "prepare_model_for_int8_training" else found
        if (home := module_today(f"{module.__name__}.{name}")) and _asked(sys._getframe(1)):
            session.notes[f"{module.__name__}.{name} is of an earlier version: answered with {home}"] = None
            return importlib.import_module(home)
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__getattr__ = find
    if module.__name__ == "transformers":
        module._import_structure = _Structure(module._import_structure)


def _gone(session: Session, module: str, name: str) -> Any:
    """What nothing stands for today, and a run may do without: it ends where that is used."""
    failure = ImportError(f"cannot import name {name!r} from {module!r}", name=module)
    advice = without_package(failure).removeprefix("; ")
    session.notes[f"{module}.{name} is of an earlier version: the run ends where it is used ({advice})"] = None
    return Missing.named(f"{module}.{name}", name, failure)


def _asked(frame: Any) -> bool:
    """Whether the user's own code, or a library that it imports by a statement, asks for a name in no ``try``."""
    while frame is not None and frame.f_code.co_filename.startswith(("<frozen importlib", importlib.util.__file__, BETWEEN)):
        frame = frame.f_back
    if frame is None or (is_library(frame.f_code.co_filename) and not is_importing(frame)):
        return False
    return asked_without_try(frame)


def _of_fewer(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that leaves out the arguments which it no longer has."""

    def call(*args: Any, **options: Any) -> Any:
        import inspect

        known = inspect.signature(function).parameters
        return function(*args, **{name: value for name, value in options.items() if name in known})

    return call


def _of_importing() -> bool:
    """Whether a finder is asked by an import and not by a look for whether a module is there."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        if frame.f_code.co_name == "_find_and_load":
            return True
        frame = frame.f_back
    return False


class _Moved(importlib.abc.MetaPathFinder):
    """Finds a module under its old name, where nothing else does."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See importlib.abc.MetaPathFinder."""
        del path, target
        today = module_today(name)
        if not today or not (asked_by_script() or (_of_importing() and asked_without_try(sys._getframe(1)))):
            return None
        with suppress(ImportError, ValueError):
            if importlib.util.find_spec(today) is not None:
                told = today if not today.startswith("vramcast") else "what it held"
                self._session.notes[f"{name} is of an earlier version: answered with {told}"] = None
                return importlib.machinery.ModuleSpec(name, _Alias(today))
        return None


class _Alias(importlib.abc.Loader):
    def __init__(self, today: str) -> None:
        self._today = today

    def create_module(self, spec: Any) -> ModuleType:
        """See importlib.abc.Loader."""
        found = importlib.import_module(self._today)
        module = ModuleType(spec.name)
        module.__getattr__ = partial(getattr, found)  # type: ignore[method-assign]
        module.__all__ = [name for name in getattr(found, "__all__", vars(found)) if not name.startswith("_")]  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """See importlib.abc.Loader."""
