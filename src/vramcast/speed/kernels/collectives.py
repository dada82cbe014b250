"""Collectives inside a node and between nodes: ``t = launch + root * sqrt(bytes) + bytes * factor / bus bandwidth``.

``factor`` is 2(n - 1)/n for an all-reduce and (n - 1)/n for the others: the bytes that cross each link of a ring (nccl-tests,
PERFORMANCE.md). The square root covers the protocols' change (LL, LL128, simple) between latency and bandwidth.
"""

from typing import Any

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.law import Estimate, law_for

FORMULA = "launch + root + link"
IMPLEMENTATIONS = ("nccl", "vllm", "sglang", "trtllm")
NETWORK_S = 30e-6  # a call between nodes (SPEED 3: 25 to 50 microseconds)
RAIL_SHARE = 0.9


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """What joins the nodes: bytes per second of one rail one way, and the rails of a node."""

    rail_bytes_per_s: float
    rails: int = 8


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call: ranks, bytes as the operation counts them, nodes and what joins them."""

    world: int
    moved_bytes: Any
    nodes: int = 1
    fabric: Fabric | None = None


def all_reduce(
    *, card: Accelerator, world: int, size_bytes: Any, implementation: str = "nccl", nodes: int = 1, fabric: Fabric | None = None
) -> Estimate:
    """Seconds of an all-reduce of ``size_bytes`` per rank over ``world`` ranks on ``nodes`` nodes joined by ``fabric``.

    ``implementation``: nccl, or the engine whose own kernel runs inside a node. Raises QuestionError for an uneven layout.
    """
    call = Call(world=world, moved_bytes=size_bytes, nodes=nodes, fabric=fabric)
    return _collective("all_reduce", card, call, implementation)


def all_gather(*, card: Accelerator, world: int, size_bytes: Any, nodes: int = 1, fabric: Fabric | None = None) -> Estimate:
    """Seconds of an all-gather whose result holds ``size_bytes`` on each rank. Raises as all_reduce."""
    call = Call(world=world, moved_bytes=size_bytes, nodes=nodes, fabric=fabric)
    return _collective("all_gather", card, call, "nccl")


def reduce_scatter(*, card: Accelerator, world: int, size_bytes: Any, nodes: int = 1, fabric: Fabric | None = None) -> Estimate:
    """Seconds of a reduce-scatter whose input holds ``size_bytes`` on each rank. Raises as all_reduce."""
    call = Call(world=world, moved_bytes=size_bytes, nodes=nodes, fabric=fabric)
    return _collective("reduce_scatter", card, call, "nccl")


def all_to_all(*, card: Accelerator, world: int, size_bytes: Any, nodes: int = 1, fabric: Fabric | None = None) -> Estimate:
    """Seconds of an all-to-all in which each rank sends ``size_bytes`` in all. Raises as all_reduce."""
    call = Call(world=world, moved_bytes=size_bytes, nodes=nodes, fabric=fabric)
    return _collective("all_to_all", card, call, "nccl")


def factor(operation: str, world: int) -> float:
    """Bytes that cross a link of the ring per byte of the call."""
    return (2 if operation == "all_reduce" else 1) * (world - 1) / world


def collective_parts(constants: dict[str, float], *, moved_bytes: Any, link_bytes_per_s: Any, share: Any) -> dict[str, Any]:
    """Seconds of launch, of the protocols' square root and of the bytes on the link, ``share`` of them crossing it."""
    return {
        "launch": constants["launch_us"] * 1e-6,
        "root": constants["root_ns"] * 1e-9 * moved_bytes**0.5,
        "link": moved_bytes * share / (link_bytes_per_s * constants["link"]),
    }


def _collective(operation: str, card: Accelerator, call: Call, implementation: str) -> Estimate:
    _check(call, implementation)
    inside = 1 << max(1, (call.world // call.nodes - 1).bit_length())
    chosen = law_for(operation, implementation, str(min(8, inside)), card)
    share = factor(operation, call.world)
    parts = collective_parts(chosen.law.constants, moved_bytes=call.moved_bytes, link_bytes_per_s=link(card), share=share)
    if call.fabric is not None and call.nodes > 1:
        rails = call.fabric.rail_bytes_per_s * call.fabric.rails
        parts["network"] = NETWORK_S + call.moved_bytes * factor(operation, call.nodes) / (rails * RAIL_SHARE)
    return Estimate(seconds=sum(parts.values()), parts=parts, formula=FORMULA, chosen=chosen)


def _check(call: Call, implementation: str) -> None:
    if implementation not in IMPLEMENTATIONS:
        raise unknown_name("implementation", implementation, IMPLEMENTATIONS)
    if call.world < 1 or call.nodes < 1 or call.world % call.nodes:
        raise QuestionError(f"{call.world} ranks do not spread over {call.nodes} nodes evenly")
    if call.nodes > 1 and call.fabric is None:
        raise QuestionError(f"{call.nodes} nodes need a fabric: bytes per second of a rail and the rails of a node")


def link(card: Accelerator) -> float:
    """Bytes per second one way of the card's link to its peers, the host link where it has no other."""
    return card.link_bytes_per_s or card.host_link_bytes_per_s
