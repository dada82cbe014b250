"""A cursor over bytes of known length moves to their very end, and no further."""

import io

import pytest

from vramcast.errors import UnsafeFileError
from vramcast.models.sources.ranges import Cursor, FileRanges


def cursor(*, limit: int = 100, chunk: int = 8) -> Cursor:
    return Cursor(FileRanges(io.BytesIO(bytes(range(32))), "header"), limit=limit, chunk=chunk)


@pytest.mark.parametrize("limit", [100, 24])
def test_all_bytes_up_to_the_limit_are_read_and_none_beyond(limit: int) -> None:
    end = min(limit, 32)
    reads = cursor(limit=limit)
    assert b"".join(reads.take(length) for length in (3, 8, end - 11)) == bytes(range(end))
    assert reads.left == 0
    with pytest.raises(UnsafeFileError, match=f"byte {end + 1} is needed and it has 32"):
        reads.take(1)


def test_bytes_are_passed_over_to_the_end_and_not_backwards() -> None:
    reads = cursor()
    reads.skip(30)
    assert reads.take(1) == bytes([30])
    reads.skip(1)
    assert reads.left == 0
    for length in (1, -1):
        with pytest.raises(UnsafeFileError, match="truncated or lies about its sizes"):
            reads.skip(length)


@pytest.mark.parametrize("chunk", [1, 8, 64])
def test_the_chunk_changes_nothing_that_is_read(chunk: int) -> None:
    reads = cursor(chunk=chunk)
    assert [reads.take(length) for length in (1, 7, 8, 16)] == [
        bytes(range(a, b)) for a, b in ((0, 1), (1, 8), (8, 16), (16, 32))
    ]
