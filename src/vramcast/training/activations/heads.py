"""The problem of one layer's attention: rows, heads and their widths, and what every kernel does with them."""

import msgspec

from vramcast.models.layers import Attention
from vramcast.training.activations.choice import Style
from vramcast.training.activations.sizes import Amount, reaches
from vramcast.training.activations.tape import Tape

Parts = tuple[int, int, int]  # queries, keys and values, places on the tape


class Heads(msgspec.Struct, frozen=True, kw_only=True):
    """The problem of one layer: ``tokens`` rows in sequences of ``seq``, heads of queries and of keys, their widths.

    ``masked``: a mask is written out (a window shorter than the sequence); ``softcap``, ``sinks``: only eager code has them.
    ``biased``: positions that train are added to the scores; ``across``: keys are another sequence's.
    """

    tokens: Amount
    seq: Amount
    queries: float
    keys: float
    key_dim: float
    value_dim: float
    masked: bool = False
    softcap: bool = False
    sinks: bool = False
    biased: bool = False
    across: bool = False

    @property
    def grouped(self) -> bool:
        """Whether several query heads share a key."""
        return self.keys < self.queries

    @property
    def scores(self) -> Amount:
        """Elements of the score matrix of all rows."""
        return self.tokens * self.queries * self.seq


def heads_of(kind: Attention, style: Style, *, tokens: Amount, seq: Amount) -> Heads:
    """The heads one rank computes."""
    return Heads(
        tokens=tokens,
        seq=seq,
        queries=kind.heads / style.tp,
        keys=max(1.0, kind.kv_heads / style.tp),
        key_dim=kind.head_dim,
        value_dim=kind.values,
        masked=reaches(seq, kind.window or kind.chunk),
        softcap=kind.softcap,
        sinks=kind.sinks,
        biased=style.written.biased,
    )


def repeated(tape: Tape, k: int, v: int, heads: Heads, width: float) -> tuple[int, int]:
    """Keys and values written out for every query head."""
    rows = heads.tokens * heads.queries * width
    return tape.run("repeat.k", [k], rows * heads.key_dim), tape.run("repeat.v", [v], rows * heads.value_dim)
