"""Which reader a file needs, told from its first bytes, and which files of a folder are traces."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from vramcast.errors import QuestionError
from vramcast.profiling.events import Trace
from vramcast.profiling.readers.chrome import read_chrome
from vramcast.profiling.readers.pieces import DamageError, ahead, read_chunks
from vramcast.profiling.readers.rocprof import LARGEST_BYTES, is_rocprofv3, read_rocprofv3
from vramcast.untrusted import printable

_GZIP, _SQLITE = b"\x1f\x8b", b"SQLite format 3\0"
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: run `zstd -d` first"),
    (b"BZh", "compressed with bzip2: run `bunzip2` first"),
    (b"\xfd7zXZ", "compressed with xz: run `unxz` first"),
    (b"\x80\x02", "a pickle: a memory snapshot is read by `vramcast explain`"),
    (b"\x80\x03", "a pickle: a memory snapshot is read by `vramcast explain`"),
    (b"\x80\x04", "a pickle: a memory snapshot is read by `vramcast explain`"),
    (b"\x80\x05", "a pickle: a memory snapshot is read by `vramcast explain`"),
    (b"\n", "a Perfetto protobuf trace: write JSON instead (rocprofv3 --output-format json)"),
)
_TELLING = 65_536  # rocprofv3 names itself at the start of its file
_ENDINGS = (".json", ".json.gz", ".sqlite", ".trace.gz", ".trace")

Progress = Callable[[int], None]


def read_trace(path: Path, *, progress: Progress | None = None) -> Trace:
    """The columns of a trace file. ``progress`` gets the bytes of the file that were read since its last call.

    Raises QuestionError when the file is no trace of a tool that is known here.
    """
    try:
        with path.open("rb") as source:
            head = source.read(16)
            source.seek(0)
            if head.startswith(_SQLITE):
                from vramcast.profiling.readers.nsight import read_nsight

                return read_nsight(path)
            return read_stream(source, head, progress=progress)
    except (OSError, ValueError) as error:
        raise QuestionError(f"cannot read {printable(str(path))[:200]}: {getattr(error, 'strerror', None) or error}") from None


def read_stream(source: BinaryIO, head: bytes, *, progress: Progress | None = None) -> Trace:
    """The columns of a Chrome trace or rocprof's JSON on a stream that begins with ``head``."""
    about = next((text for magic, text in _FOREIGN if head.startswith(magic) and not head.lstrip().startswith(b"{")), None)
    if about:
        raise QuestionError(f"this is {about}")
    if head.startswith(b"report") or head.startswith(b"NVNSYSREP"):
        raise QuestionError("this is Nsight Systems' own report: export it with `nsys export --type sqlite FILE.nsys-rep`")
    if not head.strip():
        raise QuestionError("the file is empty")
    counted: Any = _Counted(source, progress) if progress else source
    chunks = ahead(read_chunks(counted, packed=head.startswith(_GZIP)))
    try:
        first = next(chunks, b"")
    except DamageError as damage:
        raise QuestionError(f"no event of a profiler trace could be read: {damage}") from None
    if is_rocprofv3(first[:_TELLING]):
        return read_rocprofv3(_whole(first, chunks))
    return read_chrome(chain([first], chunks))


def _whole(first: bytes, rest: Iterator[bytes]) -> bytes:
    """A file that has no stream form. Raises QuestionError above 4 GiB."""
    parts, size = [first], len(first)
    for part in rest:
        size += len(part)
        if size > LARGEST_BYTES:
            raise QuestionError("rocprofv3's JSON is larger than 4 GiB: trace fewer steps")
        parts.append(part)
    return b"".join(parts)


class _Counted:
    """A stream that tells how much of it was read."""

    def __init__(self, source: BinaryIO, progress: Progress) -> None:
        self._source, self._progress = source, progress

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self._progress(len(data))
        return data


def trace_files(folder: Path) -> list[Path]:
    """The trace files of a folder and its subfolders, in the order of their names with numbers as numbers.

    Raises QuestionError when there is none.
    """
    found = [p for p in folder.rglob("*") if p.name.endswith(_ENDINGS) and p.is_file()]
    if not found:
        raise QuestionError(f"{folder} holds no trace: files that end in {', '.join(_ENDINGS)} are looked for")
    return sorted(found, key=lambda p: _natural(str(p)))


def _natural(text: str) -> list[tuple[int, str]]:
    import re

    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text) if part]
