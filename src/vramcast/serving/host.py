"""Cards that share the host's memory: what the operating system and its programs hold of it."""

from vramcast.hardware.accelerator import Accelerator
from vramcast.quantity import Number
from vramcast.serving.engines.versions import Fitted
from vramcast.units import GiB

HOST_GIB = Fitted(10, 2, "a DGX Spark (111 of 121.7 GiB free before a server starts) and a Jetson Orin (51 of 61.4)")


def free_bytes(card: Accelerator, shown_bytes: Number | None = None) -> Number:
    """What is free of the memory a card shows before anything is loaded."""
    return (card.visible_bytes if shown_bytes is None else shown_bytes) - (round(HOST_GIB.value * GiB) if card.unified else 0)
