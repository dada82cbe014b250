"""Which cards of a machine belong into one tensor-, expert- or pipeline-parallel group, told from how they are joined.

Rules: tensor parallelism sends two all-reduces per layer, so its group wants direct links, then one PCIe switch, then one NUMA
node; experts' all-to-all wants every pair of its group joined alike; stages of a pipeline and replicas send little and may cross
slow links; each rank uses the network card with the shortest way (GPUDirect needs PIX or PXB).
"""

import msgspec

from vramcast.hardware.topology import FARNESS, Topology, farness, is_direct

_WAYS = (
    (1, "direct links"),
    (FARNESS["PXB"], "PCIe switches without the CPU"),
    (FARNESS["NODE"], "one NUMA node"),
    (FARNESS["SYS"], "the link between sockets"),
)
_DIRECT_RDMA = FARNESS["PXB"]


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """The cards split into groups of one size for one kind of parallelism, and why."""

    kind: str
    size: int
    groups: tuple[tuple[int, ...], ...]
    because: str


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine's links suggest. ``nics``: for each card the nearest network cards; ``cautions``: what to mind."""

    groups: tuple[Groups, ...]
    nics: tuple[tuple[str, ...], ...]
    cautions: tuple[str, ...]


def suggest(topology: Topology) -> Placement:
    """Groups for tensor, expert and pipeline parallelism, network cards, and cautions."""
    tensor = _tensor(topology)
    return Placement(
        groups=(tensor, *_others(topology, tensor)), nics=nearest_nics(topology), cautions=_cautions(topology, tensor)
    )


def _tensor(topology: Topology) -> Groups:
    """The largest even groups over the shortest links that join at least two cards."""
    for farthest, name in _WAYS:
        found = topology.groups(farthest)
        size = _power_of_two(min(len(group) for group in found))
        if size > 1 or (farthest == FARNESS["SYS"]):
            parts = tuple(group[i : i + size] for group in found for i in range(0, len(group) // size * size, size))
            alone = "one card has no group" if topology.cards == 1 else f"each pair is joined by {name}"
            return Groups(kind="tensor parallel", size=size, groups=parts, because=alone)
    raise AssertionError


def _power_of_two(count: int) -> int:
    """The largest power of two that is no more: heads and widths divide by it."""
    return 1 << (count.bit_length() - 1)


def _others(topology: Topology, tensor: Groups) -> tuple[Groups, ...]:
    if topology.cards == 1:
        return ()
    every = tuple(range(topology.cards))
    alike = len(topology.pairs()) == 1 and is_direct(topology.links[1][0])
    experts = Groups(
        kind="expert parallel", size=len(every), groups=(every,), because="every pair is joined alike by direct links"
    )
    found: tuple[Groups, ...] = (experts,) if alike else ()
    stages = len(tensor.groups)
    if stages > 1:
        across = "stages and replicas send little: they may cross slow links"
        found += (Groups(kind="pipeline or data parallel", size=stages, groups=tensor.groups, because=across),)
    return found


def nearest_nics(topology: Topology) -> tuple[tuple[str, ...], ...]:
    """The names of the network cards with the shortest way to each card."""
    found = []
    for card in range(topology.cards):
        ways = {nic.name: farness(nic.links[card]) for nic in topology.nics}
        least = min(ways.values(), default=0)
        found.append(tuple(name for name, far in ways.items() if far == least))
    return tuple(found)


def _cautions(topology: Topology, tensor: Groups) -> tuple[str, ...]:
    told = []
    links = {topology.links[i][j] for group in tensor.groups for i in group for j in group if i != j}
    if links and not any(is_direct(link) for link in links) and topology.cards > 1:
        told.append(
            "no direct links: tensor parallelism pays for every layer; prefer pipeline or data parallelism, or one card with "
            "quantised weights"
        )
    if len({link for link in links if link.startswith("NV")}) > 1:
        told.append("pairs of one group have different numbers of NVLinks: rings run at the slowest pair")
    if "SYS" in links or "SOC" in links:
        told.append("the group crosses CPU sockets: copies go through host memory where peer access is not supported")
    far = [i for i in range(topology.cards) if topology.nics and min(farness(n.links[i]) for n in topology.nics) > _DIRECT_RDMA]
    if far:
        cards = ", ".join(map(str, far))
        told.append(
            f"GPU {cards}: no network card behind the same PCIe switch, so GPUDirect RDMA goes through the CPU or not at all"
        )
    if len({node for node in topology.numa if node}) > 1:
        told.append("several NUMA nodes: bind each rank to the CPUs of its card (numactl, torchrun --numa-binding)")
    return tuple(told)
