"""When Python looks for garbage in a tracing process: as often as in the program that is traced, and never among libraries."""

import gc

_NEVER = 1_000_000


def settle() -> None:
    """Leave what exists out of every later collection, and collect young garbage as any program does.

    Full collections stay as rare as in a program that holds all these objects: Python makes one when a quarter more have come.
    """
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
    gc.enable()
