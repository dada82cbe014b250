"""Which device computes which node, and which tensors are copied between devices: ``ggml_backend_sched``.

Backend 0 has the highest priority, the last is the CPU. A node follows its weight; the rest follow their neighbours, GPUs first.
With ``offload`` a large batch that meets a weight in host memory is computed on GPU 0, and the weight is copied there for it.
Inputs and results that another device needs are copied at the start of the split that needs them; with several GPUs in a pipeline
the copies are kept four times over. Source: ggml/src/ggml-backend.cpp.
"""

import msgspec

from vramcast.serving.engines.llama_cpp.allocator import allocate
from vramcast.serving.engines.llama_cpp.graph import Graph, Node
from vramcast.serving.engines.llama_cpp.reordering import gathered

PIPELINE_COPIES = 4
"""GGML_SCHED_MAX_COPIES (ggml/CMakeLists.txt)."""
WORTH_MOVING = 32
"""Rows of a product from which it is computed on GPU 0, its weight copied there (ggml-cuda.cu, ``offload_op``)."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """How many backends there are (the CPU last), whether batches (and experts') travel to GPU 0, copies of a split's inputs."""

    backends: int
    offload: bool = True
    offload_experts: bool = True
    copies: int = 1
    alignment: int = 128
    gathers: bool = False
    """Whether the GPUs compute in Vulkan's order."""


def buffer_bytes(graph: Graph, schedule: Schedule) -> list[int]:
    """Bytes of each backend's compute buffer, the CPU's (pinned host memory when there is a GPU) last."""
    _assign(graph, schedule)
    nodes, leaves = _with_copies(graph, schedule)
    return allocate(nodes, [*graph.leaves, *leaves], schedule.backends, schedule.alignment)


def _assign(graph: Graph, schedule: Schedule) -> None:
    cpu = schedule.backends - 1
    for leaf in graph.leaves:
        leaf.backend = cpu
    for node in graph.nodes:
        node.backend = _from_weights(node, schedule)
    computed = [n for n in graph.nodes if n.op != "view"]
    for order in (computed, computed[::-1]):
        _spread(order, skip=cpu)
    for order in (computed, computed[::-1]):
        _spread(order, skip=-2)
    for node in computed:
        node.backend = max(node.backend, 0)
    for node in graph.nodes:
        if node.op == "view" and node.root is not None:
            node.backend = _where(node.root)


def _from_weights(node: Node, schedule: Schedule) -> int:
    cpu = schedule.backends - 1
    if node.home >= 0:
        return node.home
    if node.root is not None:
        return node.root.place if node.root.place is not None and node.op != "view" else -1
    if node.op in ("rope", "flash_attention"):
        return -1
    for source in node.srcs:
        weight = source.root or source
        if weight.is_weight and weight.place is not None:
            moved = {"matmul": schedule.offload and _rows(node) >= WORTH_MOVING, "matmul_id": schedule.offload_experts}.get(
                node.op, False
            )
            return 0 if weight.place == cpu and cpu and moved else weight.place
    return -1


def _rows(node: Node) -> int:
    """Tokens that a product is made for; the logits of a server's graph are of one a sequence."""
    shape: tuple[int, ...] = node.layout[0] if isinstance(node.layout, tuple) else ()
    return shape[1] if len(shape) > 1 else WORTH_MOVING


def _spread(order: list[Node], skip: int) -> None:
    current = -1
    for node in order:
        if node.backend != -1:
            current = -1 if node.backend == skip else node.backend
        elif current != -1:
            node.backend = current


def _where(node: Node) -> int:
    return node.place if node.place is not None else node.backend


def _with_copies(graph: Graph, schedule: Schedule) -> tuple[list[Node], list[Node]]:
    """The nodes cut into splits, each preceded by the copies it needs; and the copies that live for the whole pipeline."""
    nodes: list[Node] = []
    kept: list[Node] = []
    copies: dict[tuple[int, int], Node] = {}
    split: list[Node] = []
    inputs: list[Node] = []
    current = -1
    for node in graph.nodes:
        if node.op == "view":
            split.append(node)
            continue
        if node.backend != current or (inputs and _meets_foreign_weight(node, current)):
            nodes += _opening(inputs, copies, current, kept, schedule) + _ordered(split, current, schedule)
            split, inputs, current = [], [], node.backend
        for index, source in enumerate(node.srcs):
            if _where(source.root or source) == current or source.op == "none":
                continue
            copy = copies.get((id(source), current))
            if copy is None:
                copy = copies[id(source), current] = _copy_of(source, current)
                inputs.append(source)
            node.srcs[index] = copy
        split.append(node)
    return nodes + _opening(inputs, copies, current, kept, schedule) + _ordered(split, current, schedule), kept


def _ordered(split: list[Node], backend: int, schedule: Schedule) -> list[Node]:
    return gathered(split) if schedule.gathers and backend < schedule.backends - 1 else split


def _meets_foreign_weight(node: Node, current: int) -> bool:
    return any((s.root or s).is_weight and _where(s.root or s) != current for s in node.srcs)


def _copy_of(source: Node, backend: int) -> Node:
    copy = Node("none", source.size, source.layout, name=f"copy of {source.name}")
    copy.backend = backend
    return copy


def _opening(
    inputs: list[Node], copies: dict[tuple[int, int], Node], backend: int, kept: list[Node], schedule: Schedule
) -> list[Node]:
    opening: list[Node] = []
    for source in inputs:
        copy = copies[id(source), backend]
        if schedule.copies > 1:
            kept += _pipeline_copies(copy, schedule)
        depend = Node("depend", 0, None, [source])
        depend.root, depend.backend = source, _where(source.root or source)
        opening += [depend, copy]
    return opening


def _pipeline_copies(copy: Node, schedule: Schedule) -> list[Node]:
    spare = [_copy_of(copy, copy.backend) for _ in range(schedule.copies - 1)]
    for one in (copy, *spare):
        one.is_input = one.is_output = True
    return [copy, *spare]
