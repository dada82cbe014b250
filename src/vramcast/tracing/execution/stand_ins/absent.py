"""Packages that a script imports and that are not here: those that only record, MPI and xformers are answered for.

Any other can be imported, and ends the run where it is used: many a program names what its other settings need. A stand-in
answers the script's own import alone, where it does not stand in a ``try``: a library, or a script, that looks whether a package
is there finds that it is not.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vramcast.tracing.execution.packages import is_installable, own_package, without_package
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins import xformers_package
from vramcast.tracing.execution.stand_ins.imported import asked_by_script

_RECORDERS = frozenset({
    "aim", "clearml", "comet_ml", "dvclive", "GPUtil", "gpustat", "mlflow", "neptune", "nvitop", "py3nvml", "swanlab",
    "tensorboard", "tensorboardX", "tensorboard_logger", "trackio", "visdom", "wandb",
})  # fmt: skip


_RECORDED = "what the script records with it goes nowhere"


def install(session: Session, ranks: int) -> None:
    """Answer for what is not installed, with a note of what was."""
    makers: dict[str, tuple[Callable[[str], ModuleType], str]] = dict.fromkeys(_RECORDERS, (_silent, _RECORDED))
    makers["mpi4py"] = (lambda name: _mpi(name, ranks)), f"the script is rank 0 of {ranks}"
    makers["xformers"] = xformers_package.make, f"its attention keeps what that of {xformers_package.VERSION} keeps"
    sys.meta_path.insert(0, _Absent(session, makers))  # before the finder of torch.utils.tensorboard, which needs another package
    sys.meta_path.append(_Unused(session))


class _Absent(importlib.abc.MetaPathFinder):
    def __init__(self, session: Session, makers: dict[str, tuple[Callable[[str], ModuleType], str]]) -> None:
        self._session, self._makers = session, makers
        self._answered: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See importlib.abc.MetaPathFinder."""
        del path, target
        package = "tensorboard" if name == "torch.utils.tensorboard" else name.partition(".")[0]
        if package not in self._makers or importlib.machinery.PathFinder.find_spec(package) is not None:
            return None
        if package not in self._answered and not asked_by_script():
            return None
        make, meaning = self._makers[package]
        self._answered.add(package)
        self._session.notes[f"{package} is not installed: {meaning}"] = None
        return importlib.machinery.ModuleSpec(name, _Loader(make), is_package=True)


class _Unused(importlib.abc.MetaPathFinder):
    """The last to be asked: for a package that nothing else finds, and that is no folder of the program."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._answered: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See importlib.abc.MetaPathFinder."""
        del path, target
        package, _, part = name.partition(".")
        if package not in self._answered:
            if part or not asked_by_script():
                return None
            own = own_package(package)
            if own is not None:
                sys.path.append(str(own))
                self._session.notes[f"{package} is not installed: taken from the program's own folder {own}"] = None
                return importlib.machinery.PathFinder.find_spec(name, [str(own)])
            if not is_installable(package):
                return None
            self._answered.add(package)
            failure = ModuleNotFoundError(f"No module named {package!r}", name=package)
            install_it = without_package(failure).rpartition(": ")[2]
            self._session.notes[f"{package} is not installed: the run ends where it is used ({install_it})"] = None
        return importlib.machinery.ModuleSpec(name, _Loader(_unused), is_package=True)


class _Loader(importlib.abc.Loader):
    def __init__(self, make: Callable[[str], ModuleType]) -> None:
        self._make = make

    def create_module(self, spec: Any) -> ModuleType:
        """See importlib.abc.Loader."""
        return self._make(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """See importlib.abc.Loader."""


class SilentRecorder:
    """What a recorder gives back: it takes every call, attribute and item, holds nothing, and is no number."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> "SilentRecorder":
        if name.startswith("__"):
            raise AttributeError(name)
        return SilentRecorder(f"{self._name}.{name}")

    def __call__(self, *given: Any, **_: Any) -> Any:
        return given[0] if len(given) == 1 and callable(given[0]) else self  # a decorator gives its function back

    def __getitem__(self, key: Any) -> "SilentRecorder":
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __enter__(self) -> "SilentRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Any:
        return iter(())

    def __repr__(self) -> str:
        return f"<{self._name}, which is not installed>"


def _unused(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__path__ = []
    module.__getattr__ = lambda part: Missing.named(f"{name}.{part}", part)  # type: ignore[method-assign]
    return module


class Missing(type):
    """What is not here, a package or a name of one: it can be named, inherited from and passed on; any use of it fails."""

    lacking: Exception | None = None

    @classmethod
    def named(cls, path: str, part: str, lacking: Exception | None = None) -> Any:
        """The object of that path; ``lacking`` is raised where it is used, and is the package's absence where not said."""
        if part.startswith("__"):
            raise AttributeError(part)
        made = cls(path, (), {})
        made.lacking = lacking
        return made

    def __getattr__(cls, part: str) -> Any:
        return Missing.named(f"{cls.__name__}.{part}", part, cls.lacking)

    def __call__(cls, *_: Any, **__: Any) -> Any:
        named = next(each for each in cls.__mro__ if "." in each.__name__)
        package = named.__name__.partition(".")[0]
        absent = ModuleNotFoundError(f"No module named {package!r}, asked for {named.__name__}", name=package)
        raise getattr(named, "lacking", None) or absent


_USES = (
    "add radd sub rsub mul rmul truediv rtruediv floordiv mod pow neg lt le gt ge eq ne bool len iter getitem setitem contains"
    " enter exit float int index str format"
)
for _use in _USES.split():
    setattr(Missing, f"__{_use}__", Missing.__call__)
Missing.__hash__ = type.__hash__  # type: ignore[method-assign]


def _silent(name: str) -> ModuleType:
    module = _Quiet(name)
    module.__path__ = []
    return module


class _Quiet(ModuleType):
    def __getattr__(self, name: str) -> SilentRecorder:
        if name.startswith("__"):
            raise AttributeError(name)
        return SilentRecorder(f"{self.__name__}.{name}")


def _mpi(name: str, ranks: int) -> ModuleType:
    """``mpi4py`` and ``mpi4py.MPI``: one process that is rank 0 of as many as were started."""
    module = ModuleType(name)
    module.__path__ = []
    world = World(ranks)
    operations = {op: op for op in ("SUM", "MAX", "MIN", "PROD", "LAND", "LOR")}
    module.__dict__.update({"COMM_WORLD": world, "COMM_SELF": World(1), "Comm": World, **operations})
    return module


class World:
    """A communicator in which everyone else sends what rank 0 sends, and nobody is waited for."""

    rank = 0

    def __init__(self, size: int = 1) -> None:
        self.size = size

    def Get_rank(self) -> int:  # noqa: N802 - MPI's name
        """See mpi4py.MPI.Comm."""
        return self.rank

    def Get_size(self) -> int:  # noqa: N802 - MPI's name
        """See mpi4py.MPI.Comm."""
        return self.size

    def Split(self, *_: Any, **__: Any) -> "World":  # noqa: N802 - MPI's name
        """See mpi4py.MPI.Comm: all of them stay together."""
        return self

    def bcast(self, value: Any = None, *_: Any, **__: Any) -> Any:
        """See mpi4py.MPI.Comm."""
        return value

    allreduce = reduce = bcast

    def gather(self, value: Any, *_: Any, **__: Any) -> list[Any]:
        """See mpi4py.MPI.Comm."""
        return [value] * self.size

    allgather = gather

    def scatter(self, values: Any, *_: Any, **__: Any) -> Any:
        """See mpi4py.MPI.Comm."""
        return values[0]

    def Barrier(self) -> None:  # noqa: N802 - MPI's name
        """See mpi4py.MPI.Comm."""

    barrier = Barrier

    def Bcast(self, *_: Any, **__: Any) -> None:  # noqa: N802 - MPI's name
        """See mpi4py.MPI.Comm: rank 0's buffer stays what it is."""
