"""Names that an installed library no longer has where a script's own import looks for them, and that no table lists.

Where the same library holds a name of that spelling elsewhere, that one answers; else the import goes on and the run ends where
the name is used, as it does for a package that is not here: many a program imports what only its other settings need. An import
in a ``try`` fails as it would.
"""

import builtins
import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vramcast.tracing.execution.packages import without_package
from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.absent import Missing
from vramcast.tracing.execution.stand_ins.imported import is_importing, is_optional


def install(session: Session) -> None:
    """Look at what the script's own ``from ... import ...`` statements did not find."""
    original = builtins.__import__

    @functools.wraps(original)
    def find(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:  # noqa: A002
        try:
            module = original(name, globals, locals, fromlist, level)
        except ModuleNotFoundError as failure:
            if level or failure.name != name or not fromlist or not _asked_without_try(sys._getframe(1)) or not _has_top(name):
                raise
            return _gone_module(session, name, failure)
        installed = fromlist and not level and isinstance(module, ModuleType) and _is_installed(module)
        if installed and _asked_without_try(sys._getframe(1)):
            for part in fromlist:
                if part != "*" and not hasattr(module, part):
                    _answer(session, module, part)
        return module

    builtins.__import__ = find


def _asked_without_try(frame: Any) -> bool:
    return not is_library(frame.f_code.co_filename) and not is_optional(frame)


def _has_top(name: str) -> bool:
    """Whether a module that is not there is a part of a library that is."""
    top, _, part = name.partition(".")
    return bool(part) and top in sys.modules and _is_installed(sys.modules[top])


def _gone_module(session: Session, name: str, failure: ImportError) -> ModuleType:
    """A module of another version of an installed library: its names end the run where they are used."""
    session.notes[
        f"{name} is of another version: the run ends where it is used{_in_brackets(without_package(failure).removeprefix('; '))}"
    ] = None
    module = ModuleType(name)
    module.__getattr__ = lambda part: Missing.named(f"{name}.{part}", part, failure)  # type: ignore[method-assign]
    return module


def _is_installed(module: ModuleType) -> bool:
    return "site-packages" in (getattr(module, "__file__", None) or "")


def _answer(session: Session, module: ModuleType, name: str) -> None:
    """Let a module answer for a name that it does not have, to a ``from`` import alone."""
    found = _elsewhere(module.__name__, name)
    if found is None:
        failure = ImportError(f"cannot import name {name!r} from {module.__name__!r}", name=module.__name__)
        advice = without_package(failure).removeprefix("; ")
        session.notes[f"{module.__name__}.{name} is of another version: the run ends where it is used{_in_brackets(advice)}"] = (
            None
        )
        _let_import(module, name, Missing.named(f"{module.__name__}.{name}", name, failure))
        return
    home, value = found
    session.notes[f"{module.__name__}.{name} is of another version: answered with {home}.{name}"] = None
    _let_import(module, name, value)


def _in_brackets(advice: str) -> str:
    return f" ({advice})" if advice else ""


def _let_import(module: ModuleType, name: str, value: Any) -> None:
    otherwise: Callable[[str], Any] | None = vars(module).get("__getattr__")

    def find(asked: str) -> Any:
        if asked == name and _imports(sys._getframe(1)):
            return value
        if otherwise is not None:
            return otherwise(asked)
        raise AttributeError(f"module {module.__name__!r} has no attribute {asked!r}")

    module.__getattr__ = find  # type: ignore[method-assign]


def _imports(frame: Any) -> bool:
    """Whether a frame stands at the part of a ``from`` import that takes a name out of its module."""
    while frame is not None and frame.f_code.co_filename == __file__:  # one answer behind another
        frame = frame.f_back
    return frame is not None and is_importing(frame)


def _elsewhere(module: str, name: str) -> tuple[str, Any] | None:
    """A class or function of that name that a loaded module of the same library defines, if it is the only one."""
    library = module.partition(".")[0]
    found: dict[str, Any] = {}
    for key, each in tuple(sys.modules.items()):
        if key.partition(".")[0] != library or not isinstance(each, ModuleType):
            continue
        value = vars(each).get(name)
        home = getattr(value, "__module__", None)
        if callable(value) and isinstance(home, str) and home.partition(".")[0] == library:
            found[home] = value
    exported = vars(sys.modules[library]).get(name) if library in sys.modules else None
    if callable(exported) and not found:  # of a package that the library is made of, under its own name
        return library, exported
    return next(iter(found.items())) if len(found) == 1 else None
