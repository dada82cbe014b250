"""The operations that layers are made of, each a frozen value that answers FLOPs and bytes for a batch.

An operation is what one rank runs ``count`` times in a step (once a layer). ``flops``, ``read_bytes`` and ``write_bytes`` are of
ONE run, for a ``Batch`` of numbers or arrays; a multiply-add is two FLOPs. ``part`` is the layer kind it belongs to: attention,
latent attention, recurrent, feed_forward, experts, head, norms, tower, communication.
"""

from vramcast.models.operations.mixers import Exchange, Indexing, LatentScores, Pointwise, Recurrence, Scores
from vramcast.models.operations.products import ExpertProducts, Linear

Operation = Linear | Scores | LatentScores | Indexing | ExpertProducts | Recurrence | Pointwise | Exchange

__all__ = ["Exchange", "ExpertProducts", "Indexing", "LatentScores", "Linear", "Operation", "Pointwise", "Recurrence", "Scores"]
