"""Collectives inside a node and between nodes.

``t = launch + root * sqrt(bytes) + min(bytes * factor / one-shot rate, second + bytes * factor / rate)``: a small call is sent at
once, a large one in two steps (reduce-scatter and all-gather, or a ring) that cost ``second`` more. ``factor`` is 2(n - 1)/n
for an all-reduce and (n - 1)/n for the others: the bytes that cross each link of a ring (nccl-tests, PERFORMANCE.md). The
square root covers the protocols' change (LL, LL128, simple) between latency and bandwidth. Constants: ``laws.json``.
"""

import math
from typing import Any

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.law import Chosen, Estimate, larger, law_for, smaller
from vramcast.speed.kernels.machine import Machine, link

FORMULA = "launch + root + link (+ network)"
IMPLEMENTATIONS = ("nccl", "vllm", "sglang", "trtllm")
# Between nodes, from nccl-tests on H100 nodes with 1, 2, 4 and 8 rails of 50 GB/s (xxrjun/nccl-tests-cluster@455de4f), ring
# collectives of 32 MiB to 8 GiB: 3 to 7 % in the median. A call's start grows with each doubling of nodes. All-to-all of the same
# source, 2 to 80 ranks on 2 and 10 nodes: 44 to 49 GB/s of each card's 50 go to other nodes (DeepEP's README, normal kernels
# over RDMA: 43 to 47), while the bytes that stay cross the links inside.
NETWORK_S = 30e-6
NETWORK_ROOT_NS = 20.0
RAIL_SHARE = {"all_reduce": 1.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 0.92}
# Four and eight L40S keep 1 to 6 GB/s in a host that was measured, as bytes pass through the other socket's memory; RTX PRO 6000,
# joined by PCIe like them, keep 0.36 of it and more. Boards that were not measured have hosts of their own.
_LEAST_LINK = 0.35


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


def collective_parts(constants: dict[str, float], on: Machine, *, moved_bytes: Any, share: Any) -> dict[str, Any]:
    """Seconds of launch, of the protocols' square root and of the bytes on the link, ``share`` of them crossing it.

    ``on.bandwidth_bytes_per_s``: of the link, one way.
    """
    crossing = moved_bytes * share / on.bandwidth_bytes_per_s
    return {
        "launch": constants["launch_us"] * 1e-6,
        "root": constants["root_ns"] * 1e-9 * moved_bytes**0.5,
        "link": smaller(crossing / constants["one_shot"], constants["second_us"] * 1e-6 + crossing / constants["link"]),
    }


def _collective(operation: str, card: Accelerator, call: Call, implementation: str) -> Estimate:
    _check(call, implementation)
    inside = 1 << max(1, (call.world // call.nodes - 1).bit_length())
    chosen = law_for(operation, implementation, str(min(8, inside)), card)
    share = factor(operation, call.world)
    on = Machine(units=1, flops_per_s=1.0, bandwidth_bytes_per_s=link(card, call.world // call.nodes))
    constants = _of_the_host(chosen)
    parts = collective_parts(constants, on, moved_bytes=call.moved_bytes, share=share)
    if call.fabric is not None and call.nodes > 1:
        parts |= _across(operation, card, call, call.fabric, constants["link"])
    return Estimate(seconds=sum(parts.values()), parts=parts, formula=FORMULA, chosen=chosen)


def _of_the_host(chosen: Chosen) -> dict[str, float]:
    """The constants; for boards not measured, without a share of the link that only the measured boards' host explains."""
    if not chosen.borrowed or chosen.law.operator == "all_to_all":
        return chosen.constants
    return chosen.constants | {"link": max(_LEAST_LINK, chosen.constants["link"])}


def _across(operation: str, card: Accelerator, call: Call, fabric: Fabric, inside: float) -> dict[str, Any]:
    """What changes between nodes: the slower of the rails and the links inside carries the ring, and calls start later."""
    inner = call.world // call.nodes
    rails = min(fabric.rails, inner)
    within, beyond = link(card, inner) * inside, rails * fabric.rail_bytes_per_s * RAIL_SHARE[operation]
    if operation == "all_to_all":  # each rank sends its own bytes: over the rails to other nodes, the others meanwhile inside
        remote = call.moved_bytes * (call.nodes - 1) / call.nodes / (beyond / inner)
        crossing = larger(remote, call.moved_bytes * (inner - 1) / call.world / within)
    else:  # a ring crosses to the next node once for all ranks of a node
        crossing = call.moved_bytes * factor(operation, call.world) / min(within, beyond)
    return {
        "link": crossing,
        "network": NETWORK_S * math.log2(call.nodes) + NETWORK_ROOT_NS * 1e-9 * call.moved_bytes**0.5,
    }


def _check(call: Call, implementation: str) -> None:
    if implementation not in IMPLEMENTATIONS:
        raise unknown_name("implementation", implementation, IMPLEMENTATIONS)
    if call.world < 1 or call.nodes < 1 or call.world % call.nodes:
        raise QuestionError(f"{call.world} ranks do not spread over {call.nodes} nodes evenly")
    if call.nodes > 1 and call.fabric is None:
        raise QuestionError(f"{call.nodes} nodes need a fabric: bytes per second of a rail and the rails of a node")
