"""torch.compile of the layers as far as memory needs it: AOTAutograd's partitioner decides what is saved; no kernel is generated.

Each layer becomes one graph, cut by min-cut rematerialisation into a forward and a backward (torch/_functorch/partitioners.py),
which run operator by operator. What Inductor would fuse is therefore made and dropped here: temporaries are an upper bound.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from vramcast.tracing.execution.data_parallel import layers_of
from vramcast.tracing.execution.session import Session


def compile_layers(model: torch.nn.Module, session: Session) -> None:
    """Let every layer of a model run as partitioned graphs; layers of one shape share them."""
    graphs: dict[Any, Callable[..., Any]] = {}
    for layer in layers_of(model):
        layer.forward = _Compiled(layer, session, graphs)


class _Compiled:
    """The forward of one layer."""

    def __init__(self, layer: torch.nn.Module, session: Session, graphs: dict[Any, Callable[..., Any]]) -> None:
        self._layer, self._session, self._graphs = layer, session, graphs
        self._forward = layer.forward
        self._names = [name for name, _ in layer.named_parameters()]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values, shape = pytree.tree_flatten((args, kwargs))
        tensors = [*self._layer.parameters(), *(v for v in values if isinstance(v, torch.Tensor))]
        key = (type(self._layer), tuple(t.shape for t in tensors), torch.is_grad_enabled())
        if key not in self._graphs:
            self._graphs[key] = self._partitioned(values, shape)
            with self._session.mode.quiet():  # the first call traces and partitions
                self._graphs[key](*tensors)
        return self._graphs[key](*tensors)

    def _partitioned(self, values: list[Any], shape: Any) -> Callable[..., Any]:
        from torch._functorch.aot_autograd import aot_function
        from torch._functorch.partitioners import min_cut_rematerialization_partition
        from torch._inductor.decomposition import select_decomp_table

        compiled: Callable[..., Any] = aot_function(
            self._pure(values, shape),
            fw_compiler=lambda graph, _: graph.forward,
            bw_compiler=lambda graph, _: graph.forward,
            partition_fn=min_cut_rematerialization_partition,
            decompositions=select_decomp_table(),
        )
        return compiled

    def _pure(self, values: list[Any], shape: Any) -> Callable[..., Any]:
        """The layer as a function of its parameters and of the tensors among its arguments."""
        constants = [None if isinstance(v, torch.Tensor) else v for v in values]
        given = [isinstance(v, torch.Tensor) for v in values]

        def run(*tensors: torch.Tensor) -> Any:
            parameters = dict(zip(self._names, tensors, strict=False))
            rest = iter(tensors[len(self._names) :])
            args, kwargs = pytree.tree_unflatten([next(rest) if g else c for g, c in zip(given, constants, strict=True)], shape)
            outer, self._layer.forward = self._layer.forward, self._forward
            try:
                return torch.func.functional_call(self._layer, parameters, args, kwargs)
            finally:
                self._layer.forward = outer

        return run
