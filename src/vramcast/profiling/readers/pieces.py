"""A file of any size as a stream of bytes, and the long list of a Chrome trace as pieces that end between two events.

Nothing is ever held whole: a piece is about half a MiB (8 MiB leave the cache and cost a third more), read, and unpacked for
.gz, by another thread while the last one is parsed.
How the parser was chosen, on 34.8 MB of a PyTorch trace and one core: json 50 MB/s, msgspec without types 109 (both need the
whole file in memory), msgspec with typed events whose arguments stay raw 550.
"""

import queue
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from vramcast.errors import QuestionError

PIECE_BYTES = 2**19
_PACKED_BYTES = 2**20
_MOST_ELEMENT_BYTES = 256 * 2**20
_MOST_HEADER_BYTES = 64 * 2**20
_TAIL_BYTES = 64 * 2**10
_TRIED_CUTS = 8
# Between two events. A quote that follows "{" and opens one of these keys cannot close a string of valid JSON.
_BETWEEN = re.compile(rb'\}(?=\s*,\s*\{\s*"(?:ph|name|cat|args|pid|tid|ts|dur|bp|s)"\s*:)')
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_SEPARATORS = b" \t\r\n,"


class DamageError(Exception):
    """The file stops making sense; the message says how. What was read before stands."""


def read_chunks(source: BinaryIO, *, packed: bool) -> Iterator[bytes]:
    """The content in chunks, unpacked when it is gzip. Raises DamageError where a gzip stream is broken or ends early."""
    if not packed:
        while chunk := source.read(PIECE_BYTES):
            yield chunk
        return
    unpack = None
    while data := source.read(_PACKED_BYTES):
        while data:
            unpack = unpack or zlib.decompressobj(31)
            yield _unpacked(unpack, data)
            data = unpack.unused_data.lstrip(b"\0") if unpack.eof else unpack.unconsumed_tail
            unpack = None if unpack.eof else unpack
    while unpack is not None and (chunk := _unpacked(unpack, b"")):
        yield chunk
    if unpack is not None and not unpack.eof:
        raise DamageError("the gzip stream ends early")


def _unpacked(unpack: "zlib._Decompress", data: bytes) -> bytes:
    try:
        return unpack.decompress(data, PIECE_BYTES)
    except zlib.error as error:
        raise DamageError(f"the gzip stream is broken ({error})") from None


def ahead(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same chunks, fetched by another thread up to two ahead; its errors are raised here."""
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=2)
    stop = threading.Event()

    def fetch() -> None:
        last: BaseException | None = None
        try:
            for chunk in chunks:
                if stop.is_set():
                    return
                waiting.put(chunk)
        except BaseException as error:
            last = error
        waiting.put(last)

    threading.Thread(target=fetch, daemon=True).start()
    try:
        while (found := waiting.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        stop.set()
        while not waiting.empty():
            waiting.get_nowait()


class EventList:
    """Walks a Chrome trace: ``header`` and ``trailer`` are what stands before and after the list of events.

    ``take(piece)`` gets the events of a piece without brackets around them, and says whether they are JSON.
    """

    def __init__(self, chunks: Iterator[bytes], take: Callable[[memoryview], bool]) -> None:
        self._chunks, self._take = chunks, take
        self._buffer = b""
        self.read_bytes = self.taken_bytes = 0
        self.header = self.trailer = b""
        self.closed = False
        self._damage: DamageError | None = None

    def walk(self) -> None:
        """Give every event to ``take``. Raises DamageError where the file is cut off or no JSON, QuestionError without a list."""
        self._skip_header()
        while self._more():
            self._take_piece()
        self._take_rest()

    def _more(self) -> bool:
        """Read on; where the bytes themselves are damaged the end is here, and the damage is raised after the rest is taken."""
        try:
            chunk = next((c for c in self._chunks if c), b"")
        except DamageError as damage:
            self._damage, chunk = damage, b""
        self._buffer += chunk
        self.read_bytes += len(chunk)
        return bool(chunk)

    def _skip_header(self) -> None:
        """Up to the list's opening bracket; a bare list of events is legal too (Chrome's array format)."""
        while self._more():
            head = self._buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
            if head.startswith(b"["):
                self._buffer = head[1:]
                return
            if not head.startswith(b"{"):
                raise QuestionError("no profiler trace: JSON expected, beginning with { or [")
            if match := _LIST.search(self._buffer):
                self.header, self._buffer = self._buffer[: match.end()], self._buffer[match.end() :]
                return
            if len(self._buffer) > _MOST_HEADER_BYTES:
                break
        if self._damage:
            raise self._damage
        raise QuestionError('no profiler trace: it has no list "traceEvents"')

    def _take_piece(self) -> None:
        """Cut at the last place between two events; where a cut turns out to lie inside one, at an earlier place."""
        if len(self._buffer) < PIECE_BYTES // 2:
            return
        tail = max(0, len(self._buffer) - _TAIL_BYTES)
        cuts = [m.end() for m in _BETWEEN.finditer(self._buffer, tail)] or [m.end() for m in _BETWEEN.finditer(self._buffer)]
        for cut in reversed(cuts[-_TRIED_CUTS:]):
            if self._take(memoryview(self._buffer)[:cut]):
                self._drop(cut)
                return
        if cuts or len(self._buffer) > _MOST_ELEMENT_BYTES:
            self._take_exactly()

    def _take_rest(self) -> None:
        """The end of the file: the last events, the closing bracket and what follows it."""
        cuts = [m.end() for m in _BETWEEN.finditer(self._buffer)]
        if cuts and self._take(memoryview(self._buffer)[: cuts[-1]]):
            self._drop(cuts[-1])
        self._take_exactly()
        if self._damage:
            raise self._damage
        if not self.closed and (self.header or self._buffer.strip(_SEPARATORS)):
            raise DamageError("the file is cut off in the middle")

    def _take_exactly(self) -> None:
        """Cut after the last complete event, found by counting brackets outside strings."""
        end, closing = _complete(self._buffer)
        if end and not self._take(memoryview(self._buffer)[:end]):
            raise DamageError(f"what follows byte {self.taken_bytes:,} of the list is not JSON")
        if closing is not None:
            self.closed, self.trailer = True, self._buffer[closing:] + b"".join(self._chunks)
            self._buffer = b""
        elif end:
            self._drop(end)
        elif len(self._buffer) > _MOST_ELEMENT_BYTES:
            raise DamageError(f"one event after byte {self.taken_bytes:,} of the list is longer than 256 MiB")

    def _drop(self, cut: int) -> None:
        self.taken_bytes += cut
        self._buffer = self._buffer[cut:].lstrip(_SEPARATORS)


def _complete(text: bytes) -> tuple[int, int | None]:
    """Where the last complete element of an opened list ends, and where the list's closing bracket ends, if it is there."""
    depth, end = 0, 0
    for token in _TOKEN.finditer(text):
        mark = token[0][:1]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            if not depth:
                if mark == b"}":
                    raise DamageError("a brace closes that was never opened: not JSON")
                return end, token.end()
            depth -= 1
            end = token.end() if not depth else end
    return end, None
