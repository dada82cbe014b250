"""Where the tracing process begins: its libraries are imported without looking for garbage.

Importing PyTorch and transformers makes a million objects that live as long as the process. Python's collector would look through
them again and again, which takes a third of the time of a small trace.
"""

import gc
import sys

_NEVER = 1_000_000


def start(kind: str, request_path: str, result_path: str) -> None:
    """Import the tracer and trace the request of a file."""
    gc.disable()
    from vramcast.tracing.execution.worker import main

    main(kind, request_path, result_path)


def settle() -> None:
    """Leave what exists out of every later collection, and collect young garbage as any program does.

    Full collections stay as rare as in a program that holds all these objects: Python makes one when a quarter more have come.
    """
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
    gc.enable()


if __name__ == "__main__":
    start(*sys.argv[1:4])
