"""What the step of a named language model never asks for is not imported: half of the libraries' import time, for nothing.

Dynamo is imported by whatever says that it should not look inside (``torch.compiler.disable``); transformers reads two thousand
files twice to learn where its classes are, and imports SciPy and scikit-learn for the losses of object detection and for a way
of generating, and DTensor with SymPy for models that are divided. A user's script gets the libraries as they are.
"""

import importlib.util
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from vramcast.tracing.execution.stand_ins.imported import when_imported

_DYNAMO = "torch._dynamo"
# Of its modules those that stand alone: every fake tensor mode imports the one, transformers' masks the other.
_WITHOUT_IT = frozenset({f"{_DYNAMO}.config", f"{_DYNAMO}._trace_wrapped_higher_order_op"})
# What these do where nothing is compiled: nothing.
_IDLE = ("disable", "assume_constant_result", "allow_in_graph", "forbid_in_graph", "nonstrict_trace", "graph_break")
_SPARED = ("is_scipy_available", "is_sklearn_available")
_SPARED_ALONE = ("is_torch_distributed_available",)


def import_little(*, alone: bool) -> None:
    """Put the imports of this process right, before transformers is imported.

    ``alone``: the process will trace no model of several ranks.
    """
    postpone_dynamo()
    if "transformers" not in sys.modules:
        when_imported("transformers.utils.import_utils", _read_once)
        when_imported("transformers.utils.import_utils", partial(_spare, _SPARED + _SPARED_ALONE * alone))


class _Postponed(ModuleType):
    """Dynamo, imported when somebody asks it for more than to leave a function alone, which without it is always so."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _import_now(self)
        return getattr(self, name)


def postpone_dynamo() -> None:
    """Import Dynamo when somebody asks it for something, and not before; nothing where it is imported already."""
    import torch

    spec = None if _DYNAMO in sys.modules else importlib.util.find_spec(_DYNAMO)
    if spec is None or spec.loader is None:
        return
    module = _Postponed(_DYNAMO)
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    module.__path__ = list(spec.submodule_search_locations or ())
    for name in _IDLE:
        setattr(module, name, _leave_alone)
    sys.modules[_DYNAMO] = module
    torch._dynamo = module
    sys.meta_path.insert(0, _BeforeItsParts(module))


def _leave_alone(function: Any = None, recursive: bool = True, **_: Any) -> Any:
    """As Dynamo's decorators where nothing is compiled."""
    del recursive
    return (lambda given: given) if function is None else function


def _import_now(module: ModuleType) -> None:
    if type(module) is _Postponed:
        module.__class__ = ModuleType  # type: ignore[assignment]
        assert module.__spec__ is not None and module.__spec__.loader is not None
        module.__spec__.loader.exec_module(module)


class _BeforeItsParts:
    """Imports Dynamo before the first of its modules that needs it; finds nothing itself."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        del path, target
        if name.startswith(f"{_DYNAMO}.") and name not in _WITHOUT_IT:
            _import_now(self._module)
        return None


def _read_once(utilities: Any) -> None:
    """The folder of all models is given once as a path and once as the name of a file in it; a list of names begins a line."""
    structure, names = utilities.create_import_structure_from_path, utilities.fetch__all__

    def read(path: Any) -> Any:
        found = Path(path)
        return structure(str(found.parent if found.is_file() else found))

    def listed(text: str) -> Any:
        return names(text[max(0, text.find("\n__all__")) :])

    utilities.create_import_structure_from_path, utilities.fetch__all__ = read, listed


def _spare(absent: tuple[str, ...], utilities: Any) -> None:
    for name in absent:
        if hasattr(utilities, name):
            setattr(utilities, name, lambda: False)
