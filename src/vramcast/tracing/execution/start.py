"""Where the tracing process begins: its libraries are imported without looking for garbage.

Importing PyTorch and transformers makes a million objects that live as long as the process. Python's collector would look through
them again and again, which takes a third of the time of a small trace.
"""

import gc
import os
import sys
from collections.abc import Callable

from vramcast.children import end_with_parent


def start(folder: str) -> None:
    """Import the tracer and answer requests, one line each, until the input ends.

    What is traced gets an empty input, and its output goes where nobody waits for answers. When the input hangs up, however the
    parent went, ``folder`` and everything that was started here go too.
    """
    gc.disable()
    inlet = os.dup(0)
    end_with_parent(inlet, folder)
    asked, answered = os.fdopen(inlet, "r"), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    answer = _worker()
    for line in asked:
        print(answer(*line.rstrip("\n").split("\t")), file=answered, flush=True)


def _worker() -> Callable[..., str]:
    """What answers requests: the tracer, or where the libraries have no place for it the reason of that."""
    try:
        from vramcast.tracing.execution.worker import Worker
    except (ImportError, AttributeError) as lack:
        if isinstance(lack, ModuleNotFoundError) and "." not in (lack.name or ""):
            raise  # a package that is not installed
        from vramcast.tracing.libraries import lacking

        refusal = f"UntraceableError\t{lacking(lack)}"
        return lambda *_: refusal
    return Worker().answer


if __name__ == "__main__":
    start(sys.argv[1])
