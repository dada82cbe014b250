"""Optimizer states of what a rank trains, tensor by tensor: small ones, both ends and experts each by their own rule."""

from collections.abc import Iterable
from math import prod

import msgspec

from vramcast.training.optimizers.rows import Optimizer
from vramcast.training.optimizers.rules import state_bytes

PAGED_FROM = 100_000  # elements; smaller states are not paged (bitsandbytes 0.50.2, optim/optimizer.py: get_state_buffer)
ENDS = ("embedding", "head")


class Part(msgspec.Struct, frozen=True):
    """Equal trained tensors: their shape on this rank, how many there are, and what they are for."""

    shape: tuple[int, ...]
    copies: int
    role: str

    @property
    def elements(self) -> int:
        """Elements of one of them."""
        return prod(self.shape)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of state: of experts, which fewer ranks share, of the rest; and of those that paging leaves on the card."""

    dense: float = 0
    experts: float = 0
    resident: float = 0


def kept_states(parts: Iterable[Part], row: Optimizer, *, width: float, rank: int, wide_ends: bool) -> Kept:
    """States of ``parts`` held in ``width`` bytes. ``wide_ends``: fp32 states of embeddings beside 8-bit ones."""
    dense = experts = resident = 0.0
    for part in parts:
        size = _size(part, row, width, rank, wide=wide_ends and row.wide_ends)
        if part.role.startswith("expert."):
            experts += size
        else:
            dense += size
        if row.paged and part.elements < PAGED_FROM:
            resident += size
    return Kept(dense=dense, experts=experts, resident=resident)


def _size(part: Part, row: Optimizer, width: float, rank: int, *, wide: bool) -> float:
    if wide and part.role == "embedding":
        return part.copies * part.elements * row.moments * 4
    return state_bytes(row, part.shape, width=width, rank=rank, copies=part.copies, inner=part.role not in ENDS)
