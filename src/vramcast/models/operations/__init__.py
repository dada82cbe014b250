"""A model's work: the operations of a forward pass, decode step or backward pass with their FLOPs, bytes and GEMM shapes.

found = operations(model, split=Split(tp=4))             # once for a model and a layout
batch = Batch(decodes=32, decode_past=2048)              # numbers or arrays
flops = sum(one.count * one.flops(batch) for one in found)
"""

from vramcast.models.operations.backward import backward, recomputed
from vramcast.models.operations.building import Numbers, operations, tower_operations
from vramcast.models.operations.kinds import (
    Exchange,
    ExpertProducts,
    Indexing,
    LatentScores,
    Linear,
    Operation,
    Pointwise,
    Recurrence,
    Scores,
)  # fmt: skip
from vramcast.models.operations.products import Batch, Split

__all__ = [
    "Batch",
    "Exchange",
    "ExpertProducts",
    "Indexing",
    "LatentScores",
    "Linear",
    "Numbers",
    "Operation",
    "Pointwise",
    "Recurrence",
    "Scores",
    "Split",
    "backward",
    "operations",
    "recomputed",
    "tower_operations",
]
