"""A bar on standard error for what takes longer than a second, in a terminal only."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE_S = 1.0
_CELLS = 30


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """A function to tell how many of how many are done; None where nobody watches. The bar is wiped at the end."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    begun, drawn = time.monotonic(), False

    def watch(done: int, of: int) -> None:
        nonlocal drawn
        if time.monotonic() - begun < _PATIENCE_S:
            return
        drawn = True
        full = _CELLS * done // max(1, of)
        sys.stderr.write(f"\r  [{'#' * full}{'.' * (_CELLS - full)}] {done:,} of {of:,} {what}")
        sys.stderr.flush()

    try:
        yield watch
    finally:
        if drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
