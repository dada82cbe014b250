"""Folders of pictures that a program lists and that are not on this machine: laid with made-up pictures, each with a note.

Only a plain listing is answered (``os.listdir``, ``glob.glob`` and ``Path.glob`` with their stars in the last part, or before it
where the program asks for no folder's name), of the program's own call outside any ``try``, where the ending asked for, or what
else its file opens, says pictures alone. Names of classes are never made: sizes go by them.
"""

import functools
import glob
import linecache
import os
import re
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from vramcast.tracing.execution.overlay import Overlay
from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.stand_ins.absent_files import AbsentFiles
from vramcast.tracing.published import local_files

_LISTED = 2_000
_OPENS_PICTURES = re.compile(r"\bImage\.open\(|\bimread\(|\bread_image\(|\bpil_loader\b|\bdefault_loader\b")
_OPENS_OTHERS = re.compile(
    r"\bnp\.load|\bnumpy\.load|\bloadmat|\bh5py\b|\bpickle\.load|\bnib\.load|\blibrosa\b|\btorchaudio\b|\bsoundfile\b|\bsf\.read"
    r"|\bVideoCapture|\bdecord\b|\bzipfile\b|\blmdb\b|\bjson\.load|\bcsv\.reader|\bread_csv"
)
_NAMES_FOLDERS = re.compile(r"\.parents?\b|\bdirname\(|\.parts\b|\.split\(|\bos\.sep\b")  # by which a program may know classes
_COUNTS_OR_CLASSES = re.compile(  # a model may be as wide as a folder is long
    r"\blen\(\s*(os\.)?listdir\(|\b\w*(class|label|categor)\w*\s*=[^=].*\blistdir\(", re.IGNORECASE
)
_ENDING = re.compile(r"\.(jpg|jpeg|png|bmp|webp)\b", re.IGNORECASE)


def install(files: AbsentFiles) -> None:
    """Answer ``os.listdir`` and ``glob.glob``."""
    folders = _Folders(files, files.scratch)
    os.listdir = _listing(os.listdir, folders)
    for name in ("glob", "iglob"):
        setattr(glob, name, _matching(getattr(glob, name), folders))
    for name in ("glob", "rglob"):
        setattr(Path, name, _below(getattr(Path, name), folders))


class _Folders:
    def __init__(self, files: AbsentFiles, scratch: Overlay) -> None:
        self._files, self._scratch, self._made = files, scratch, dict[str, set[str]]()

    def lay(self, folder: str, endings: set[str]) -> None:
        """Put pictures into a folder that is not there."""
        place = str(Path(folder).absolute())
        made = self._made.get(place, set())
        if not endings - made or (self._scratch.there(folder) and not made) or local_files.is_picture(folder):
            return
        for ending in sorted(endings - made):
            content = local_files.content(f"a{ending}", {}, array=False)
            for number in range(_LISTED):
                self._scratch.lay(str(Path(place) / f"made_up_{number:05d}{ending}"), content)
            self._files.note(f"{folder} is not here: {_LISTED:,} pictures ({ending}) are made up, of 640 x 480")
        self._made[place] = made | endings

    def lacks(self, folder: str) -> bool:
        """Whether the program's own call lists a folder that is not there, or one that was made up."""
        if local_files.is_output_folder(folder):
            return False
        known = str(Path(folder).absolute()) in self._made
        return bool(folder) and (known or bool(self._files.lacks(folder)))


def _caller() -> str:
    """The text of the program's file that lists; "" where the line counts what it lists, or takes it for classes."""
    frame: Any = sys._getframe(2)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return ""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    counts = frame.f_code.co_name != "__len__" and _COUNTS_OR_CLASSES.search(line)
    return "" if counts else _text(frame.f_code.co_filename)


@functools.lru_cache(maxsize=64)
def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _said(text: str) -> set[str]:
    """The ending of the pictures that a file of the program opens; nothing for one that opens anything else."""
    if not _OPENS_PICTURES.search(text) or _OPENS_OTHERS.search(text):
        return set()
    named = {found.lower() for found in _ENDING.findall(text)}
    return {".png"} if named == {"png"} else {".jpg"}


def _listing(original: Callable[..., Any], folders: _Folders) -> Callable[..., Any]:
    @functools.wraps(original)
    def listed(path: Any = ".") -> Any:
        try:
            return original(path)
        except FileNotFoundError:
            if not isinstance(path, str | os.PathLike) or not folders.lacks(os.fspath(path)):
                raise
            folders.lay(os.fspath(path), _said(_caller()))
        return original(path)

    return listed


def _matching(original: Callable[..., Any], folders: _Folders) -> Callable[..., Any]:
    @functools.wraps(original)
    def matched(pathname: Any, **options: Any) -> Any:
        if isinstance(pathname, str):
            folder, pattern = os.path.split(pathname)
            if folder.endswith("**"):
                folder, pattern = folder[:-2].rstrip(os.sep), f"**/{pattern}"
            if not glob.has_magic(folder) and folders.lacks(folder):
                folders.lay(folder, _asked(pattern, _caller()))
        return original(pathname, **options)

    return matched


def _below(original: Callable[..., Any], folders: _Folders) -> Callable[..., Any]:
    """``Path.glob`` and ``Path.rglob``."""

    @functools.wraps(original)
    def matched(path: Any, pattern: Any, **options: Any) -> Any:
        if isinstance(pattern, str) and folders.lacks(str(path)):
            folders.lay(str(path), _asked(f"**/{pattern}" if original.__name__ == "rglob" else pattern, _caller()))
        return original(path, pattern, **options)

    return matched


def _asked(pattern: str, text: str) -> set[str]:
    """The endings of the pictures that a pattern stands for; nothing for a pattern, or a program, that asks for more."""
    deep, last = pattern.startswith("**/"), pattern.removeprefix("**/")
    if not glob.has_magic(last) or "/" in last or "**" in last or (deep and _NAMES_FOLDERS.search(text)):
        return set()
    named = _ENDING.search(last)
    endings = {named[0].lower()} if named else _said(text)
    return {each for each in endings if fnmatch(f"made_up{each}", last)}
