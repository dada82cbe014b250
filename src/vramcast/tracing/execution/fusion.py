"""Graphs run as Inductor would: pointwise chains are one kernel, whose inner results are never in memory.

What is in memory: results of matrix products, attention, collectives and whatever else Inductor calls from outside, of
reductions, and of pointwise operations that one of those calls, or the graph's caller, reads (torch/_inductor/graph.py and
lowering.py: buffers are realised for them). Arguments are given up at their last use, as generated code does.
"""

from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from vramcast.tracing.execution.session import Session

_POINTWISE = frozenset({
    "convert_element_type", "_to_copy", "clone", "where", "full", "full_like", "scalar_tensor", "iota", "arange", "zeros_like",
    "ones_like", "copy", "gather",
})  # fmt: skip
_REDUCTIONS = frozenset({"sum", "amax", "amin", "mean", "var_mean", "argmax", "argmin", "max", "min", "any", "prod", "logsumexp"})


def graph_is_made() -> bool:
    """Whether AOTAutograd looks at a program right now: first at what it changes, then at its operators."""
    kinds = torch._C._TorchDispatchModeKey
    return any(torch._C._get_dispatch_mode(kind) is not None for kind in (kinds.FUNCTIONAL, kinds.PROXY))


class FusedGraph:
    """A graph as the partitioner cut it, called with a list that it empties."""

    _boxed_call = True

    def __init__(self, graph: GraphModule, session: Session) -> None:
        self._graph, self._session, self._fused = graph, session, fused(graph)

    def __call__(self, arguments: list[Any]) -> Any:
        return _Run(self._graph, self._session, self._fused).boxed_run(arguments)


class _Run(Interpreter):  # type: ignore[misc]
    """One run: what is fused is not recorded."""

    def __init__(self, graph: GraphModule, session: Session, inner: frozenset[Node]) -> None:
        super().__init__(graph)
        self._session, self._inner = session, inner

    def run_node(self, n: Node) -> Any:
        if n not in self._inner:
            return super().run_node(n)
        with self._session.unrecorded():
            return super().run_node(n)


def fused(graph: GraphModule) -> frozenset[Node]:
    """The nodes whose results stay inside a kernel: pointwise ones that only pointwise ones and reductions read."""
    found = set[Node]()
    for node in reversed(graph.graph.nodes):
        inside = is_pointwise(node) or (_is_view(node) and node.users)
        if inside and all(_stays(reader, found) for reader in node.users):
            found.add(node)
    return frozenset(node for node in found if is_pointwise(node))


def _stays(reader: Node, found: set[Node]) -> bool:
    """Whether a reader needs nothing in memory: a kernel's own operation, or a view that only those read."""
    return reader in found if _is_view(reader) else is_pointwise(reader) or _name(reader) in _REDUCTIONS


def is_pointwise(node: Node) -> bool:
    """Whether an operation is part of whatever kernel reads it; a scatter into a constant becomes one.

    Source of the last: torch/_inductor/fx_passes/post_grad.py, scatter_upon_const_tensor.
    """
    if _name(node) == "scatter":
        return isinstance(node.args[0], Node) and _name(node.args[0]) == "full"
    tags = getattr(node.target, "tags", ())
    return _name(node) in _POINTWISE or (torch.Tag.pointwise in tags and not _is_view(node))


def _is_view(node: Node) -> bool:
    return bool(getattr(node.target, "is_view", False)) or _name(node) in {"view", "_unsafe_view", "reshape"}


def _name(node: Node) -> str:
    if node.op != "call_function":
        return ""
    return str(getattr(node.target, "_opname", ""))
