"""What no tensor of the step holds, as terms: with the peak's own terms they sum to what the driver shows."""

from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import context_term, nccl_bytes
from vramcast.ledger import RankMemory, Term
from vramcast.units import gib

_ALLOCATOR = "c10/cuda: CUDACachingAllocator.cpp"


def outside_terms(
    memory: RankMemory, *, tenant_bytes: int, groups: tuple[int, ...], card: Accelerator | None
) -> tuple[Term, ...]:
    """Library workspaces, the allocator's idle segments, NCCL's buffers, another program's share, the context.

    ``groups``: ranks of each communicator; ``tenant_bytes``: the share of a co-located engine, part of the device's bytes.
    """
    idle = memory.reserved_bytes - memory.allocated_bytes
    nccl = sum(nccl_bytes(ranks) for ranks in groups)
    sizes = {
        "workspace": memory.allocated_bytes - memory.peak.bytes,
        "fragmentation": idle,
        "communication": nccl,
        "tenant": tenant_bytes,
        "context": memory.device_bytes - memory.reserved_bytes - nccl - tenant_bytes,
    }
    context = context_term(card)
    reasons = {
        "workspace": ("of matrix products, for the forward's thread and autograd's", "ATen/cuda: CublasHandlePool.cpp"),
        "fragmentation": (f"reserved, filled by no tensor: {idle / memory.allocated_bytes:.1%} of allocated", _ALLOCATOR),
        "communication": (f"NCCL, communicators over {', '.join(map(str, groups))} ranks", "hardware/runtime.py"),
        "tenant": ("the engine that generates on the same card", "the task's recipe"),
        "context": (context.why, context.source),
    }
    return tuple(_term(name, size, *reasons[name]) for name, size in sizes.items() if size)


def _term(name: str, size_bytes: int, why: str, source: str) -> Term:
    return Term(name=name, bytes=size_bytes, why=f"{why} = {gib(size_bytes)}", source=source)
