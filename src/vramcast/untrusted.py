"""The one gate for text and numbers that strangers wrote: bounded in bytes, depth, items and digits, and harmless to print.

JSON, YAML, TOML and JSON lines are parsed here and nowhere else; numbers in text become numbers here; whatever is shown of a file
or a server passes ``printable``. Every error names what was read and says what is wrong with it.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

from vramcast.errors import ConfigError, QuestionError
from vramcast.units import MiB, gib

DEEPEST = 100
MOST_YAML_ITEMS = 200_000
LONGEST_NUMBER = 40
_LONGEST_PATH = 4_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# Half of a surrogate pair, which JSON can escape and no UTF-8 text can hold.
# Half of a surrogate pair, which JSON can escape and no UTF-8 text can hold.
_HALVES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)  # of a pair
_WHOLE = re.compile(r"[0-9]{1,18}")
_REAL = re.compile(r"[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18}")


_DISK_CLOSED: ContextVar[bool] = ContextVar("disk closed", default=False)


@contextmanager
def disk_closed() -> Iterator[None]:
    """Inside, no file that a text names is opened or found: a visitor's names are never this machine's files."""
    token = _DISK_CLOSED.set(True)
    try:
        yield
    finally:
        _DISK_CLOSED.reset(token)


def check_disk(path: str | Path) -> None:
    """Raises QuestionError for a named file where the disk is closed."""
    if _DISK_CLOSED.get():
        raise QuestionError(f"{printable(str(path))[:80]} names a file: files of the server are not read")


def printable(text: str) -> str:
    r"""The text with what a terminal would obey written out: ``\x1b`` for an escape, ``\u202e`` for a change of direction."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def shown(value: object, most: int = 60) -> str:
    """A value as errors quote it: printable, and cut where it is long."""
    text = repr(value) if isinstance(value, str) else str(value)
    return printable(text if len(text) <= most else f"{text[:most]}... ({len(text):,} letters)")


def whole_number(text: str) -> int | None:
    """The whole number that ASCII digits stand for, commas between thousands allowed; None for anything else."""
    plain = text.strip().replace(",", "") if len(text) < 40 else ""
    return int(plain) if _WHOLE.fullmatch(plain) else None


def real_number(text: str) -> float | None:
    """The number that plain ASCII digits with at most one point stand for; None for anything else."""
    plain = text.strip().replace(",", "") if len(text) < 60 else ""
    return float(plain) if _REAL.fullmatch(plain) else None


def existing_path(text: str | Path) -> Path | None:
    """The file or folder of that name; None where there is none or no name can be so (too long, a NUL, a loop of links)."""
    if _DISK_CLOSED.get():
        return None
    try:
        path = Path(text).expanduser() if len(str(text)) <= _LONGEST_PATH and "\0" not in str(text) else None
        return path if path is not None and path.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None


def read_bytes(path: Path, *, most: int) -> bytes:
    """The file's bytes. Raises QuestionError when it cannot be read, ConfigError when it is larger than ``most``."""
    check_disk(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise QuestionError(f"{printable(str(path))[:200]} cannot be read: {reason}") from None
    if len(data) > most:
        raise ConfigError(f"{printable(str(path))[:200]} is larger than {gib(most)}: is this the right file?")
    return data


def read_input(name: str | Path, *, most: int) -> bytes:
    """The bytes of a file, or of standard input for ``-``. Raises as ``read_bytes``."""
    if str(name) != "-":
        return read_bytes(Path(name).expanduser(), most=most)
    import sys

    data = sys.stdin.buffer.read(most + 1)
    if len(data) > most:
        raise ConfigError(f"standard input is larger than {gib(most)}: give the part that is meant")
    return data


def parse_json(data: bytes | str, what: str, *, most: int = 64 * MiB, repeats: bool = False) -> Any:
    """The value of these bytes; a name given twice is refused, ``Infinity`` and ``NaN`` are floats, a byte order mark is skipped.

    ``repeats``: a name may stand twice with the same value, as in files that people write. Raises ConfigError that names ``what``
    and the place.
    """
    import json  # read by few questions, and 2 ms of each

    if len(data) > most:
        raise ConfigError(f"{what} is larger than {gib(most)}: a file of its kind is not; is this the right file?")
    try:
        text = data if isinstance(data, str) else data.decode(json.detect_encoding(data))
        if "\\ud" in text or "\\uD" in text:
            text = _HALVES.sub(r"\\ufffd", text)
        raw = json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_Pairs(what, repeats), parse_int=_digits)
    except RecursionError:
        raise ConfigError(f"{what} is nested too deeply to be a model's description") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} is not text: byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}{_hint(data)}") from None
    except ValueError as error:
        raise ConfigError(f"{what} is not JSON: {error}") from None
    check_depth(raw, what)
    return raw


def parse_yaml(text: str, what: str) -> Any:
    """The value of one YAML document: plain types alone, aliases counted as often as they are written out.

    Raises QuestionError that names ``what`` and the place.
    """
    documents = _yaml_documents(text, what, several=False)
    return documents[0] if documents else None


def parse_yaml_documents(text: str, what: str) -> list[Any]:
    """The values of every document of a YAML stream, under the bounds of ``parse_yaml`` together. Raises as it does."""
    return _yaml_documents(text, what, several=True)


def _yaml_documents(text: str, what: str, *, several: bool) -> list[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        items = _yaml_items(text, yaml)
        if items > MOST_YAML_ITEMS:
            raise QuestionError(f"{what} writes out {items:,} items: more than {MOST_YAML_ITEMS:,} are not read")
        found = list(yaml.load_all(text, Loader=loader)) if several else [yaml.load(text, Loader=loader)]
    except yaml.YAMLError as error:
        raise QuestionError(f"{what} is not YAML: {' '.join(str(error).split())[:120]}") from None
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise QuestionError(f"{what} is not YAML: a value that no reader can hold ({str(error)[:80]})") from None
    check_depth(found, what)
    return found


def parse_toml(text: str, what: str) -> dict[str, Any]:
    """The table of a TOML document. Raises QuestionError that names ``what``."""
    import tomllib

    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError, OverflowError) as error:
        raise QuestionError(f"{what} is not TOML: {' '.join(str(error).split())[:120]}") from None
    check_depth(found, what)
    return found


def lines_of(data: bytes) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text file; bytes that are not UTF-8 cost their own line alone, as a replacement mark."""
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            yield number, line.decode("utf-8", "replace")


def check_depth(raw: Any, what: str) -> None:
    """Raises ConfigError for values nested deeper than any description is; walks without recursion."""
    level, depth = [raw], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ConfigError(f"{what} is nested deeper than {DEEPEST} levels: a description is not")
        following: dict[int, Any] = {}
        for value in level:
            children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            following |= {id(child): child for child in children if isinstance(child, (dict, list))}
        level = list(following.values())


def finite(value: object) -> bool:
    """Whether this is a number, neither infinite nor undefined, and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@contextmanager
def memory_bound(extra_bytes: int) -> Iterator[None]:
    """No more than so many bytes beyond what this process holds now: a parser that is told to take more gets MemoryError.

    On systems without a limit of address space (not Linux) nothing is bounded.
    """
    try:
        import resource

        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError):
        yield
        return
    most = held + extra_bytes
    wanted = most if before[0] == resource.RLIM_INFINITY else min(most, before[0])
    resource.setrlimit(resource.RLIMIT_AS, (wanted, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class _Pairs:
    """Builds objects and refuses a name given twice, which readers would resolve differently."""

    def __init__(self, what: str, repeats: bool) -> None:
        self.what, self.repeats = what, repeats

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) < len(pairs) and not (self.repeats and all(built[name] == value for name, value in pairs)):
            self._refuse([name for name, _ in pairs])
        return built

    def _refuse(self, names: list[str]) -> NoReturn:
        met, twice = set[str](), ""
        for twice in names:
            if twice in met:
                break
            met.add(twice)
        raise ConfigError(f"{self.what} gives {shown(twice)} twice: keep one of them")


def _digits(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def _yaml_items(text: str, yaml: Any) -> int:
    """Scalars and containers of a document with every alias written out, from its events alone."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    sizes: dict[str, int] = {}
    open_: list[list[Any]] = [[None, 0]]
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append([event.anchor, 1])
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_.pop()
        elif isinstance(event, yaml.AliasEvent):
            anchor, size = None, sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size = event.anchor, 1
        else:
            continue
        if anchor:
            sizes[anchor] = size
        open_[-1][1] += size
    total: int = open_[0][1]
    return total


def _hint(data: bytes | str) -> str:
    start = data[:64] if isinstance(data, bytes) else data[:64].encode("utf-8", "replace")
    if start.startswith(b"version https://git-lfs"):
        return " (this is a Git LFS pointer: fetch the file itself with git lfs pull)"
    return " (this is a web page, not the file)" if start.lstrip()[:1] == b"<" else ""
