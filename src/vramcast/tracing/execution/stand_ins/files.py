"""A program's files go through a scratch layer: Python's own functions, and what libraries open in compiled code by name.

Covered: ``open``, ``os``, and so pathlib, shutil, glob, tempfile, NumPy, logging, TensorBoard; torch.save and torch.load; the
openers of ``_OPENERS``. Not covered: other compiled code that opens a path itself (HDF5, Rust), programs that the script starts,
and processes that it spawns anew: they read and write the real files.
"""

import builtins
import errno
import functools
import importlib.util
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import TracebackType
from typing import Any

from vramcast.tracing.execution.overlay import Overlay
from vramcast.tracing.execution.stand_ins.imported import when_imported

_READS = ("stat", "access", "statvfs", "getxattr", "listxattr", "lstat", "readlink", "pathconf")
_CHANGES = ("chmod", "utime", "truncate", "chown", "setxattr", "removexattr", "lchown")
_MAKES = ("mkdir", "mkfifo", "mknod")
_OPENER = 5  # place of the last argument of open after the mode
_UNFOLLOWED = frozenset({"lstat", "readlink", "lchown", "rename", "unlink"})
# module: function or class: whether it writes; the path is its first argument
_OPENERS: dict[str, dict[str, bool | None]] = {
    "pyarrow": {"memory_map": False, "OSFile": None, "input_stream": False, "output_stream": True},
    "safetensors": {"safe_open": False},
    "safetensors.torch": {"safe_open": False},
    "sqlite3": {"connect": True},
    "cv2": {"imread": False, "imwrite": True},
    "soundfile": {"read": False, "write": True},
    "torch.jit": {"save": None, "load": False},
}


def install(folder: Path) -> Overlay:
    """Begin the layer in a new folder; it stays for the life of the process."""
    overlay = Overlay(folder)
    places = tempfile.mkdtemp(dir=folder, prefix="tmp")
    tempfile.tempdir = os.environ["TMPDIR"] = places
    sys.dont_write_bytecode = True
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    _replace(overlay)
    _imports(overlay)
    for module, openers in _OPENERS.items():
        when_imported(module, functools.partial(_open_through, overlay=overlay, openers=openers))
    when_imported("transformers.tokenization_utils_base", functools.partial(_tokenizers, overlay=overlay))
    return overlay


def _is_path(value: Any) -> bool:
    return isinstance(value, str | bytes | os.PathLike)


def _replace(overlay: Overlay) -> None:
    """Put the layer under ``open`` and the functions of ``os`` that take paths."""
    functions: dict[str, Callable[..., Any]] = {
        **{name: _reading(getattr(os, name), overlay, name) for name in _READS if hasattr(os, name)},
        **{name: _changing(getattr(os, name), overlay, name) for name in _CHANGES if hasattr(os, name)},
        **{name: _making(getattr(os, name), overlay) for name in _MAKES},
        "open": _os_open(os.open, overlay),
        "listdir": _listing(os.listdir, overlay),
        "scandir": _scanning(os.scandir, overlay),
        "unlink": _removing(os.unlink, overlay),
        "remove": _removing(os.unlink, overlay),
        "rmdir": _removing(os.rmdir, overlay),
        "rename": _moving(os.rename, overlay),
        "replace": _moving(os.replace, overlay),
        "symlink": _linking(os.symlink, overlay),
        "link": _copying(overlay),
        "chdir": _entering(os.chdir, overlay),
    }
    here = os.getcwd
    functions["getcwd"] = lambda: overlay.shown(here())
    functions["getcwdb"] = lambda: os.fsencode(overlay.shown(here()))
    for known in (os.supports_follow_symlinks, os.supports_fd, os.supports_dir_fd):
        known.update(function for name, function in functions.items() if getattr(os, name) in known)
    for name, function in functions.items():
        setattr(os, name, function)
    opening = _opening(builtins.open, overlay)
    builtins.open = io.open = sys.modules["_io"].open = opening  # type: ignore[attr-defined]


def _reading(original: Any, overlay: Overlay, name: str) -> Callable[..., Any]:
    follow = name not in _UNFOLLOWED

    @functools.wraps(original)
    def read(path: Any, *args: Any, **options: Any) -> Any:
        if not _is_path(path) or options.get("dir_fd") is not None:
            return original(path, *args, **options)
        try:
            place = overlay.seen(os.fsdecode(path), follow=follow and options.get("follow_symlinks", True))
        except FileNotFoundError:
            if name == "access":
                return False
            raise
        found = original(place, *args, **options)
        return os.fsencode(found) if isinstance(path, bytes) and isinstance(found, str) else found

    return read


def _changing(original: Any, overlay: Overlay, name: str) -> Callable[..., Any]:
    follow = name not in _UNFOLLOWED

    @functools.wraps(original)
    def change(path: Any, *args: Any, **options: Any) -> Any:
        if not _is_path(path) or options.get("dir_fd") is not None:
            return original(path, *args, **options)
        plain = os.fsdecode(path)
        if not overlay.there(plain):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return original(overlay.changed(plain, follow=follow and options.get("follow_symlinks", True)), *args, **options)

    return change


def _making(original: Any, overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(path: Any, *args: Any, **options: Any) -> Any:
        if options.get("dir_fd") is not None:
            return original(path, *args, **options)
        return original(_new(overlay, path), *args, **options)

    return make


def _new(overlay: Overlay, path: Any) -> str:
    """Where to make a path that may not be there yet."""
    plain = os.fsdecode(path)
    if overlay.there(plain):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    return overlay.changed(plain, fresh=True, follow=False)


def _opening(original: Any, overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(original)
    def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        by_opener = options.get("opener") or args[_OPENER : _OPENER + 1] not in {(), (None,)}  # which asks os.open
        if not _is_path(file) or by_opener:
            return original(file, mode, *args, **options)
        plain = os.fsdecode(file)
        if not set(mode) & set("wax+"):
            return original(overlay.seen(plain), mode, *args, **options)
        if "r" in mode and not overlay.there(plain):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
        return original(_for_writing(overlay, plain, mode), mode, *args, **options)

    return opened


def _for_writing(overlay: Overlay, path: str, mode: str) -> str:
    if "x" in mode:
        return _new(overlay, path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return overlay.changed(path, fresh="w" in mode)


def _os_open(original: Any, overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(original)
    def opened(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if not _is_path(path) or options.get("dir_fd") is not None:
            return original(path, flags, *args, **options)  # type: ignore[no-any-return]
        plain = os.fsdecode(path)
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or os.path.isdir(plain):
            return original(overlay.seen(plain), flags, *args, **options)  # type: ignore[no-any-return]
        if flags & os.O_CREAT and flags & os.O_EXCL:
            return original(_new(overlay, plain), flags, *args, **options)  # type: ignore[no-any-return]
        if not flags & os.O_CREAT and not overlay.there(plain):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return original(overlay.changed(plain, fresh=bool(flags & os.O_TRUNC)), flags, *args, **options)  # type: ignore[no-any-return]

    return opened


def _listing(original: Any, overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(original)
    def listed(path: Any = ".") -> Any:
        if not _is_path(path):
            return original(path)
        names = overlay.names(os.fsdecode(path))
        if names is None:
            return original(path if os.path.isabs(path) else overlay.held(os.fsdecode(path) or "."))
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    return listed


class _Entry:
    """What ``os.scandir`` tells of a path, asked through the layer."""

    def __init__(self, folder: Any, name: Any) -> None:
        self.name = name
        self.path = os.path.join(folder, name)

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """See os.DirEntry."""
        return os.path.isdir(self.path) and (follow_symlinks or not self.is_symlink())

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """See os.DirEntry."""
        return os.path.isfile(self.path) and (follow_symlinks or not self.is_symlink())

    def is_symlink(self) -> bool:
        """See os.DirEntry."""
        return os.path.islink(self.path)

    def is_junction(self) -> bool:
        """See os.DirEntry."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """See os.DirEntry."""
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        """See os.DirEntry."""
        return os.lstat(self.path).st_ino


class _Entries:
    """An iterator over entries that is closed like that of ``os.scandir``."""

    def __init__(self, entries: list[_Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[_Entry]:
        return self

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> "_Entries":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open."""


def _scanning(original: Any, overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(original)
    def scanned(path: Any = ".") -> Any:
        if not _is_path(path):
            return original(path)
        names = overlay.names(os.fsdecode(path))
        if names is None:
            return original(path)
        shown = os.fspath(path)
        return _Entries([_Entry(shown, os.fsencode(name) if isinstance(shown, bytes) else name) for name in names])

    return scanned


def _removing(original: Any, overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(original)
    def remove(path: Any, *args: Any, **options: Any) -> None:
        if options.get("dir_fd") is not None:
            return original(path, *args, **options)  # type: ignore[no-any-return]
        plain = os.fsdecode(path)
        if not overlay.there(plain):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if original.__name__ == "rmdir" and os.listdir(plain):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        original(overlay.changed(plain, follow=False))
        overlay.forget(plain)
        return None

    return remove


def _moving(original: Any, overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(original)
    def move(source: Any, target: Any, **options: Any) -> None:
        if any(value is not None for value in options.values()):
            return original(source, target, **options)  # type: ignore[no-any-return]
        first, second = os.fsdecode(source), os.fsdecode(target)
        if not overlay.there(first):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source, None, target)
        original(overlay.raise_all(first), overlay.changed(second, fresh=True, follow=False))
        overlay.forget(first)
        return None

    return move


def _linking(original: Any, overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(original)
    def link(target: Any, path: Any, *args: Any, **options: Any) -> None:
        if options.get("dir_fd") is not None:
            return original(target, path, *args, **options)  # type: ignore[no-any-return]
        return original(target, _new(overlay, path), *args, **options)  # type: ignore[no-any-return]

    return link


def _copying(overlay: Overlay) -> Callable[..., Any]:
    """A second name of a file is a copy: two layers may not share one."""

    def link(source: Any, target: Any, **_: Any) -> None:
        with open(source, "rb") as given, open(_new(overlay, target), "wb") as made:
            shutil.copyfileobj(given, made, 1 << 20)

    return link


def _entering(original: Any, overlay: Overlay) -> Callable[..., Any]:
    @functools.wraps(original)
    def enter(path: Any) -> None:
        original(overlay.outside(os.fsdecode(path)) if _is_path(path) else path)

    return enter


def _imports(overlay: Overlay) -> None:
    """Modules that the program has written are found where they are."""

    class Written:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            """See importlib.abc.MetaPathFinder."""
            if not overlay.used:
                return None
            places = [
                overlay.seen(place or os.getcwd()) for place in (sys.path if path is None else path) if isinstance(place, str)
            ]
            return PathFinder.find_spec(name, places, target)

    sys.meta_path.append(Written)
    by_file = importlib.util.spec_from_file_location

    def spec_from_file_location(name: str, location: Any = None, **options: Any) -> Any:
        return by_file(name, overlay.seen(os.fsdecode(location)) if _is_path(location) else location, **options)

    importlib.util.spec_from_file_location = spec_from_file_location


def _open_through(module: Any, overlay: Overlay, openers: dict[str, bool | None]) -> None:
    """Let compiled openers of a module go through the layer; None: they write where a mode after the path says so."""
    for name, writes in openers.items():
        if hasattr(module, name):
            setattr(module, name, _translated(getattr(module, name), overlay, writes))


def _translated(original: Any, overlay: Overlay, writes: bool | None) -> Any:
    def place(path: Any, *given: Any) -> Any:
        plain = os.fsdecode(path)
        changing = writes or (writes is None and any(isinstance(mode, str) and set(mode) & set("wax+") for mode in given[:1]))
        return overlay.changed(plain) if changing else overlay.seen(plain)

    def through(path: Any, *args: Any, **options: Any) -> Any:
        return original(place(path, *args) if _is_path(path) else path, *args, **options)

    return functools.update_wrapper(through, original, updated=())


def _tokenizers(module: Any, overlay: Overlay) -> None:
    """Tokenizers are read and written in compiled code, by folder."""
    base = module.PreTrainedTokenizerBase
    save, load = base.save_pretrained, base.from_pretrained.__func__

    @functools.wraps(save)
    def save_pretrained(self: Any, save_directory: Any, *args: Any, **options: Any) -> Any:
        os.makedirs(save_directory, exist_ok=True)
        return save(self, overlay.changed(os.fsdecode(save_directory)), *args, **options)

    @functools.wraps(load)
    def from_pretrained(cls: Any, name: Any, *args: Any, **options: Any) -> Any:
        plain = os.fsdecode(name)
        return load(cls, overlay.seen(plain) if os.path.isdir(plain) else name, *args, **options)

    base.save_pretrained, base.from_pretrained = save_pretrained, classmethod(from_pretrained)
