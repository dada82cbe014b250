"""Files that a file names: read where they lie in its folder or below, and nowhere else."""

from collections.abc import Callable
from pathlib import Path

from vramcast.units import MiB
from vramcast.untrusted import existing_path, read_bytes

MOST_BYTES = 4 * MiB


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
