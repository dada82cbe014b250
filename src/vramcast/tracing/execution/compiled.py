"""torch.compile of the layers as far as memory needs it: AOTAutograd's partitioner decides what is saved; no kernel is generated.

Each layer becomes one graph, cut by min-cut rematerialisation into a forward and a backward (torch/_functorch/partitioners.py),
which run operator by operator, the inner results of pointwise chains left out of memory (fusion.py).
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import GraphModule, traceback
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from vramcast.tracing.execution.fusion import FusedGraph, graph_is_made
from vramcast.tracing.execution.ranks.data_parallel import layers_of
from vramcast.tracing.execution.session import Session

Graphs = dict[Any, Callable[..., Any]]
Marks = Callable[[], AbstractContextManager[Any]]


def compile_layers(model: torch.nn.Module, session: Session) -> None:
    """Let every layer of a model run as partitioned graphs; layers of one shape share them."""
    graphs: Graphs = {}
    for layer in layers_of(model):
        layer.forward = Compiled(layer, session, graphs, asked=False)


_SHAPES = 4  # graphs of one object; Dynamo makes one for any shape then, whose sizes no polynomial tells
_PARTITIONED = (
    "torch.compile was asked for: its graphs are cut as AOTAutograd cuts them, what Inductor fuses is a rule's: an upper bound"
)
_EAGER = "torch.compile was asked for: {what} was traced without it, a compiled step allocates differently"


def compile_what_is_asked(session: Session) -> None:
    """Let ``torch.compile`` give back modules and functions that run as partitioned graphs, or as they are where that fails.

    A checkpoint wrapper inside is dropped, and what it would save or recompute is told to the partitioner, as Dynamo does
    (torch/_higher_order_ops/wrap.py, TagActivationCheckpoint).
    """
    graphs: Graphs = {}

    def compiled(model: Any = None, **_: Any) -> Any:
        if model is None:
            return compiled
        if not isinstance(model, torch.nn.Module):
            return _function(model, session, graphs)
        inner, marks = _without_checkpoint(model)
        inner.forward = Compiled(inner, session, graphs, marks=marks)
        return model

    torch.compile = compiled
    torch.nn.Module.compile = lambda module, *_, **__: compiled(module) and None


def _function(function: Any, session: Session, graphs: Graphs) -> Any:
    """A function as graphs; flex attention's own kernel and an optimizer's step, which changes what it is not given, as it is."""
    if str(getattr(function, "__module__", "")).startswith("torch."):
        if isinstance(getattr(function, "__self__", None), torch.optim.Optimizer):
            session.notes[_EAGER.format(what="the optimizer")] = None
        return function
    return functools.wraps(function)(Compiled(None, session, graphs, function=function))


def _without_checkpoint(module: torch.nn.Module) -> tuple[torch.nn.Module, Marks]:
    """The module inside a checkpoint wrapper, which from now on only calls it, and the marks of what was to be recomputed."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

    if not isinstance(module, CheckpointWrapper):
        return module, nullcontext
    inner: torch.nn.Module = module._checkpoint_wrapped_module
    module.forward = inner.__call__
    chosen = module.checkpoint_fn.keywords.get("context_fn")
    return inner, partial(_marks_of, chosen) if chosen else _RecomputeAll


def _marks_of(contexts: Callable[[], Any]) -> Any:
    """The mode that marks what a selective policy keeps; one region, so it needs no number of its own."""
    marking = contexts()[0]
    marking.ac_graph_id = 0
    return marking


class _RecomputeAll(TorchDispatchMode):  # type: ignore[misc]
    """Marks every operator as one to recompute."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils.checkpoint import CheckpointPolicy

        proxies = get_proxy_mode()
        before = len(proxies.tracer.graph.nodes) if proxies is not None else 0
        out = func(*args, **(kwargs or {}))
        if proxies is not None:
            nodes = proxies.tracer.graph.nodes
            for node in islice(reversed(nodes), len(nodes) - before):
                node.meta.update(recompute=CheckpointPolicy.PREFER_RECOMPUTE, ac_graph_id=0)
        return out


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor of the same kind."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.requires_grad_(tensor.requires_grad)


def _held(module: torch.nn.Module | None) -> list[tuple[str, torch.Tensor]]:
    """Parameters and buffers by name, each once."""
    return [] if module is None else [*module.named_parameters(), *module.named_buffers()]


class Compiled:
    """The forward of a module, or a function, as graphs that the partitioner cut."""

    def __init__(
        self,
        layer: torch.nn.Module | None,
        session: Session,
        graphs: Graphs,
        *,
        function: Callable[..., Any] | None = None,
        marks: Marks = nullcontext,
        asked: bool = True,
    ) -> None:
        self._layer, self._session, self._graphs, self._marks = layer, session, graphs, marks
        self._forward = function or (layer.forward if layer is not None else None)
        self._names = [name for name, _ in _held(layer)]
        self._eager, self._made = False, 0
        self._asked = asked  # by a program, which runs as it is where no graph can be made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if graph_is_made():  # inside another compiled region, whose graph it joins
            return self._forward(*args, **kwargs) if self._forward is not None else None
        values, shape = pytree.tree_flatten((args, kwargs))
        tensors = [*(held for _, held in _held(self._layer)), *(v for v in values if isinstance(v, torch.Tensor))]
        kind = self._forward if self._layer is None else type(self._layer)
        plain = tuple(repr(v) for v in values if not isinstance(v, torch.Tensor))
        training = self._layer is not None and self._layer.training
        key = (kind, tuple((t.shape, t.dtype) for t in tensors), plain, training, torch.is_grad_enabled())
        if key not in self._graphs and not self._make(key, values, shape, tensors):
            return self._forward(*args, **kwargs) if self._forward is not None else None
        return self._graphs[key](*tensors)

    def _make(self, key: Any, values: list[Any], shape: Any, tensors: list[torch.Tensor]) -> bool:
        """Make the graphs of a call; False where the program runs as it is: Dynamo would break it into parts, or it failed."""
        if self._eager or self._made >= _SHAPES:
            return False
        made = self._partitioned(values, shape)
        try:
            with self._session.unrecorded(), traceback.preserve_node_meta():  # the first call keeps what it is given
                made(*map(_like, tensors))
            whole = self._tidy()
        except Exception:  # whatever the program or AOTAutograd has against a graph
            if not self._asked:
                raise
            self._tidy()
            whole = False
        if not whole:
            self._eager = True
            name = type(self._layer).__name__ if self._layer is not None else getattr(self._forward, "__name__", "a function")
            self._session.notes[_EAGER.format(what=name)] = None
            return False
        if self._asked:
            self._session.notes[_PARTITIONED] = None
        self._graphs[key] = made
        self._made += 1
        return True

    def _tidy(self) -> bool:
        """What the program put aside while its graph was made, made anew; False for what backward would go through."""
        whole = True
        for module in self._layer.modules() if self._layer is not None else ():
            for name, value in list(vars(module).items()):
                if isinstance(value, FunctionalTensor):
                    whole &= not value.requires_grad
                    vars(module)[name] = None if value.requires_grad else _like(value)
        return whole

    def _partitioned(self, values: list[Any], shape: Any) -> Callable[..., Any]:
        import torch._dynamo.utils
        from torch._functorch import partitioners
        from torch._functorch.aot_autograd import aot_function
        from torch._inductor.decomposition import select_decomp_table

        torch._dynamo.utils.assert_no_fake_params_or_buffers = lambda _: None  # all tensors are fake, those it holds too
        partitioners.functionalize_rng_ops = lambda joint, forward, backward, number: (forward, backward)  # no value is drawn

        compiled: Callable[..., Any] = aot_function(
            self._pure(values, shape),
            fw_compiler=lambda graph, _: FusedGraph(self._closed(graph), self._session),
            bw_compiler=lambda graph, _: FusedGraph(graph, self._session),
            partition_fn=partitioners.min_cut_rematerialization_partition,
            decompositions=select_decomp_table(),
        )
        return compiled

    def _closed(self, graph: GraphModule) -> GraphModule:
        """The graph of a function, which must be given every tensor: those that it finds elsewhere it may change there."""
        if self._layer is None and any(node.op == "get_attr" for node in graph.graph.nodes):
            raise ValueError("a compiled function that uses tensors which it is not given")
        return graph

    def _pure(self, values: list[Any], shape: Any) -> Callable[..., Any]:
        """The call as a function of the module's parameters and of the tensors among its arguments."""
        constants = [None if isinstance(v, torch.Tensor) else v for v in values]
        given = [isinstance(v, torch.Tensor) for v in values]

        def run(*tensors: torch.Tensor) -> Any:
            parameters = dict(zip(self._names, tensors, strict=False))
            rest = iter(tensors[len(self._names) :])
            args, kwargs = pytree.tree_unflatten([next(rest) if g else c for g, c in zip(given, constants, strict=True)], shape)
            with self._marks():
                return self._run(parameters, args, kwargs)

        return run

    def _run(self, parameters: dict[str, torch.Tensor], args: Any, kwargs: Any) -> Any:
        assert self._forward is not None
        if self._layer is None:
            return self._forward(*args, **kwargs)
        with _reparametrize_module(
            self._layer, parameters, tie_weights=True
        ):  # not its __call__, whose hooks belong to whoever wraps it
            return self._forward(*args, **kwargs)
