"""A scratch layer over the file system: what a program writes goes into a folder, where it finds it again; all else stays.

A path means the file in the scratch folder where there is one, else the file outside. A file outside is copied into the scratch
folder before it is changed; one that is removed is remembered as gone. Paths are held with their symbolic links followed, so that
two names of one folder are one.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_PASSED = ("/dev", "/proc", "/sys")  # devices and the kernel's own
_MOST_LINKS = 40  # as Linux


class Native(NamedTuple):
    """The functions of ``os`` before anything was put in their place."""

    lstat: Callable[..., os.stat_result] = os.lstat
    readlink: Callable[..., str] = os.readlink
    listdir: Callable[..., list[str]] = os.listdir
    mkdir: Callable[..., None] = os.mkdir
    getcwd: Callable[[], str] = os.getcwd
    open: Callable[..., Any] = open
    chmod: Callable[..., None] = os.chmod
    scandir: Callable[..., Any] = os.scandir
    access: Callable[..., bool] = os.access
    symlink: Callable[..., None] = os.symlink


class Overlay:
    """The layer in ``folder``; paths below ``folder`` and those of the kernel are no part of it.

    ``seen``: where to read a path, ``changed``: where to change it, both real paths. A path that is gone has no file to read.
    """

    def __init__(self, folder: Path) -> None:
        self._native = Native()
        self._home = os.path.realpath(folder)
        self._upper = os.path.join(self._home, "written")
        self._native.mkdir(self._upper)
        self._gone: set[str] = set()
        self._links: dict[str, str] = {}
        self._unheld: dict[str, int] = {}
        self._told = os.path.join(self._home, "told")
        self._laid = os.path.join(self._home, "laid")  # names of files, also of those that a loader's worker lays
        self.used = False

    def held(self, path: str, *, follow: bool = True, _links: int = 0) -> str:
        """The one absolute name of a path, without the scratch folder's own; ``follow``: also where it is a link itself."""
        path = self._outside(os.path.abspath(path) if path else path)
        parent, name = os.path.split(path)
        if not name:
            return path
        whole = os.path.join(self._folder(parent, _links), name)
        if not follow or _links > _MOST_LINKS:
            return whole
        return self._target(whole, _links)

    def seen(self, path: str, *, follow: bool = True) -> str:
        """Where to read a path. Raises FileNotFoundError for one that the program has removed."""
        if not self.used or self._is_free(path):
            return path
        whole = self.held(path, follow=follow)
        upper = self._upper + whole
        if self._there(upper):
            return upper
        if self._is_gone(whole):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return path if os.path.isabs(path) else whole

    def changed(self, path: str, *, fresh: bool = False, follow: bool = True) -> str:
        """Where to change or make a path, a copy of what is there laid ready unless ``fresh``; its folder must be there.

        Raises FileNotFoundError without the folder.
        """
        if self._is_free(path):
            return path
        whole = self.held(path, follow=follow)
        upper = self._upper + whole
        if self._there(upper):
            return upper
        self._refuse_unwritable(whole, path)
        self._raise_folder(os.path.dirname(whole), path)
        if not fresh and not self._is_gone(whole) and self._there(whole):
            self._copy(whole, upper)
        self.used = True
        return upper

    def lay(self, path: str, content: bytes) -> None:
        """Put a file there that the program will find, with the folders above it; it counts as none that the program wrote."""
        place = self._upper + self.held(path)
        missing = [place]
        while not self._there(missing[-1]):
            missing.append(os.path.dirname(missing[-1]))
        for folder in reversed(missing[1:-1]):
            self._native.mkdir(folder)
        with self._native.open(place, "wb") as file:
            file.write(content)
        self._add(self._laid, place)
        self.used = True

    def tell(self, note: str) -> None:
        """Keep what another process of the program has to say of its files."""
        self._add(self._told, note)

    def told(self) -> tuple[str, ...]:
        """What other processes said, each once."""
        return tuple(self._added(self._told))

    def _add(self, place: str, text: str) -> None:
        with self._native.open(place, "a") as file:
            file.write(f"{text}\0")

    def _added(self, place: str) -> dict[str, None]:
        if not self._there(place):
            return {}
        with self._native.open(place) as file:
            return dict.fromkeys(filter(None, file.read().split("\0")))

    def forget(self, path: str) -> None:
        """A path was removed, from the scratch folder already where it was there."""
        whole = self.held(path, follow=False)
        self._links.clear()
        if self._there(whole):
            self._gone.add(whole)
            self.used = True

    def names(self, path: str) -> list[str] | None:
        """The names in a folder of both layers; None where the layer has nothing to say about it."""
        if not self.used or self._is_free(path):
            return None
        whole = self.held(path)
        upper = self._upper + whole
        hidden = {os.path.basename(gone) for gone in self._gone if os.path.dirname(gone) == whole}
        if not self._there(upper):
            if self._is_gone(whole):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return [name for name in self._native.listdir(path) if name not in hidden] if hidden else None
        found = dict.fromkeys(self._native.listdir(upper))
        if not self._is_gone(whole) and self._is_folder(whole):
            found |= dict.fromkeys(name for name in self._native.listdir(whole) if name not in hidden)
        return list(found)

    def raise_all(self, path: str) -> str:
        """``changed`` for a folder with all that is in it, so that it can be moved."""
        upper = self.changed(path, follow=False)
        if self._is_folder(upper):
            for name in self.names(path) or ():
                self.raise_all(os.path.join(path, name))
        return upper

    def outside(self, path: str) -> str:
        """The real folder outside the layer where it is one, else the one in the scratch folder: where a process may stand."""
        place = self.seen(path)
        whole = self.held(path)
        return whole if place.startswith(self._upper) and not self._is_gone(whole) and self._is_folder(whole) else place

    def there(self, path: str) -> bool:
        """Whether a path means anything, a link that leads nowhere too."""
        try:
            return self._there(self.seen(path, follow=False))
        except FileNotFoundError:
            return False

    def shown(self, path: str) -> str:
        """A path as the program knows it: one in the scratch folder under its name outside."""
        return self._outside(path)

    def written(self) -> list[tuple[str, int]]:
        """The files that were written, under their names outside, with their sizes."""
        found: list[tuple[str, int]] = []
        folders, laid = [self._upper], self._added(self._laid)
        while folders:
            with self._native.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.path not in laid:
                        size = entry.stat(follow_symlinks=False).st_size + self._unheld.get(entry.path, 0)
                        found.append((self._outside(entry.path), size))
        return sorted(found)

    def note_size(self, place: str, unheld_bytes: int) -> None:
        """A file in the scratch folder stands for one that is so much larger."""
        self._unheld[place] = unheld_bytes

    def _outside(self, path: str) -> str:
        if path == self._upper:
            return "/"
        return path[len(self._upper) :] if path.startswith(self._upper + "/") else path

    def _is_free(self, path: str) -> bool:
        whole = os.path.abspath(path) if path else path
        if whole.startswith(self._upper):
            return False
        return whole.startswith((self._home + "/", *(f"{free}/" for free in _PASSED))) or whole in _PASSED or whole == self._home

    def _is_gone(self, whole: str) -> bool:
        if not self._gone:
            return False
        while whole not in self._gone:
            parent = os.path.dirname(whole)
            if parent == whole:
                return False
            whole = parent
        return True

    def _there(self, path: str) -> bool:
        try:
            self._native.lstat(path)
        except (OSError, ValueError):
            return False
        return True

    def _is_folder(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(self._native.lstat(path).st_mode)
        except OSError:
            return False

    def _folder(self, path: str, links: int) -> str:
        known = self._links.get(path)
        if known is None:
            known = self._links[path] = self.held(path, _links=links) if path != "/" else path
        return known

    def _target(self, whole: str, links: int) -> str:
        """What a path leads to where it is a symbolic link."""
        for place in (self._upper + whole, whole):
            try:
                kind = self._native.lstat(place).st_mode
            except (OSError, ValueError):
                continue
            if not stat.S_ISLNK(kind):
                break
            leads = os.path.join(os.path.dirname(whole), self._native.readlink(place))
            return self.held(leads, _links=links + 1)
        return whole

    def _raise_folder(self, whole: str, asked: str) -> None:
        """Make a folder in the scratch layer that the program may write into: it is there in one of the layers."""
        upper = self._upper + whole
        if self._there(upper):
            return
        if self._is_gone(whole) or not self._is_folder(whole):
            code = errno.ENOTDIR if self._there(whole) and not self._is_gone(whole) else errno.ENOENT
            raise OSError(code, os.strerror(code), asked)
        self._raise_folder(os.path.dirname(whole), asked)
        self._native.mkdir(upper)

    def _refuse_unwritable(self, whole: str, asked: str) -> None:
        """What the program could not write outside it cannot write here either."""
        place = whole
        while not self._there(place) or self._is_gone(place):
            place = os.path.dirname(place)
            if self._there(self._upper + place):
                return
        if not self._native.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), asked)

    def _copy(self, whole: str, upper: str) -> None:
        """A file, a link or an empty copy of a folder, with its rights."""
        kind = self._native.lstat(whole).st_mode
        if stat.S_ISDIR(kind):
            self._native.mkdir(upper)
        elif stat.S_ISLNK(kind):
            self._native.symlink(self._native.readlink(whole), upper)
        else:
            with self._native.open(whole, "rb") as source, self._native.open(upper, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            self._native.chmod(upper, stat.S_IMODE(kind) | stat.S_IWUSR)
