"""Files that a file names: read where they lie in its folder or below, and nowhere else."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from vramcast.units import MiB
from vramcast.untrusted import existing_path, read_bytes

MOST_BYTES = 4 * MiB
_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", ".gitignore", "LICENSE")
_ALSO_MARKS = ("README.md", "requirements.txt", "environment.yml")  # folders within a repository have them too
_FIRST_VARIABLE = re.compile(r"(?:\$\{[^{}]*\}|\$\w+|\.)/")
_OF_SCRIPTS = ("scripts", "script", "bash", "bin", "shell", "sh", "slurm", "jobs", "launch", "examples", "run")
_HIGHEST, _LONGEST_NAME = 6, 400


def texts_beside(folder: Path | None, *, up: int = 0, exact: bool = False) -> Callable[[str], str | None]:
    """A reader of files that lie in the folder or below, by their path or their last name; None for what is elsewhere.

    ``up``: folders above it that count too, for formats whose files name such; ``exact``: by their path alone.
    Raises QuestionError for a file larger than any of its kind, or a device.
    """
    if folder is None:
        return lambda _name: None

    top = folder.resolve()
    for _ in range(up):
        top = top.parent

    def text_of(name: str) -> str | None:
        if not isinstance(name, str) or not name or "$" in name:
            return None
        for candidate in (folder / name,) if exact else (folder / name, folder / name.rsplit("/", 1)[-1]):
            path = existing_path(candidate)
            if path is not None and path.is_file() and path.resolve().is_relative_to(top):
                return read_bytes(path, most=MOST_BYTES).decode("utf-8", "replace")
        return None

    return text_of


def modules_beside(folder: Path | None) -> Callable[[str], str | None]:
    """A reader of the files that a program imports: from its folder, else by their whole path from a folder above, to the root.

    Raises QuestionError as ``texts_beside``.
    """
    own = texts_beside(folder)

    def text_of(name: str) -> str | None:
        for top in _above(folder) if folder is not None and "/" in name and "$" not in name else ():
            path = existing_path(top / name)
            if path is not None and path.is_file() and path.resolve().is_relative_to(top.resolve()):
                return read_bytes(path, most=MOST_BYTES).decode("utf-8", "replace")
        return own(name)

    return text_of


def path_from(folder: Path, name: str, *, inside: Iterable[str] = ()) -> Path | None:
    """Where a file lies that a command in a script of this folder names; None for one that is not at hand.

    Commands run from a repository's root as often as from the script's own folder: a path of several parts is looked for under
    the folders above too, up to the repository's root, and by its end where it begins on another machine or with a variable.
    A last name alone counts in the folder itself, at the root and in the folders that the script changes to (``inside``).
    """
    plain = _without_variables(name)
    if not plain or "$" in plain or len(plain) > _LONGEST_NAME:
        return None
    changed = [f"{_without_variables(one)}/{plain}" for one in inside if "$" not in _without_variables(one)]
    places = (place for one in (*changed, plain) for place in _places(folder, one))
    return next((path for path in places if existing_path(path) and path.is_file()), None)


def scripts_beside(folder: Path) -> Callable[[str], str | None]:
    """A reader of the scripts that one in this folder calls or sources, where ``path_from`` finds them; None for others.

    A path of the machine that they were written for counts by its end alone. Raises QuestionError as ``texts_beside``.
    """

    def text_of(name: str) -> str | None:
        path = path_from(folder, name.lstrip("/")) if name and not name.startswith("~") else None
        return read_bytes(path, most=MOST_BYTES).decode("utf-8", "replace") if path is not None else None

    return text_of


def _without_variables(name: str) -> str:
    """A path without the variables and dots that it begins with: ``${ROOT}/train.py``, ``./train.py``."""
    while found := _FIRST_VARIABLE.match(name):
        name = name[found.end() :]
    return name


def _places(folder: Path, name: str) -> Iterator[Path]:
    yield from (folder / name, Path(name))  # the person may stand at the root
    parts = [part for part in Path(name).parts if part not in ("/", "..", ".")]
    above = _above(folder)
    for start in range(max(1, len(parts) - 1)):  # from the whole path to its last two parts
        yield from (top / Path(*parts[start:]) for top in (folder, *above) if parts)
    yield folder / Path(name).name


def _above(folder: Path) -> list[Path]:
    """The folders above, up to the root of the repository; where nothing marks one, the one that holds a folder of scripts."""
    tops = [folder.resolve(), *folder.resolve().parents][: _HIGHEST + 1]
    marked = [place for place, top in enumerate(tops) if any(existing_path(top / mark) for mark in _ROOT_MARKS)]
    told = [place for place, top in enumerate(tops[:4]) if any(existing_path(top / mark) for mark in _ALSO_MARKS)]
    held = [place + 1 for place, top in enumerate(tops[:3]) if top.name.lower() in _OF_SCRIPTS]
    return tops[1 : (marked[:1] or told[-1:] or held[:1] or [0])[0] + 1]
