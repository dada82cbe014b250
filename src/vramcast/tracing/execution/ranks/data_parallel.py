"""Data parallelism by PyTorch's own libraries: copies (DDP), flat shards (FSDP1), shards per parameter (FSDP2, hybrid)."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from vramcast.errors import unknown_name
from vramcast.tracing.distribution import Distribution

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@contextmanager
def unreduced(model: Any, how: Distribution, *, left: int) -> Iterator[None]:
    """A micro-batch with ``left`` more after it in its step: where the framework says so, FSDP keeps its gradients whole."""
    if not (how.unreduced and left) or how.sharding not in {"fsdp1", "fsdp2"}:
        yield
    elif how.sharding == "fsdp1":
        with model.no_sync():
            yield
    else:
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)


def copied(model: torch.nn.Module, how: Distribution, mesh: Any) -> torch.nn.Module:
    """DistributedDataParallel: whole weights (or this rank's part of divided ones), gradients summed bucket by bucket."""
    from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
    from torch.nn.parallel import DistributedDataParallel

    if how.parallel.tp > 1:
        _pre_dp_module_transform(model)
    return DistributedDataParallel(
        model, gradient_as_bucket_view=how.bucket_view, static_graph=how.static_graph, process_group=mesh.get_group()
    )


def flattened(model: torch.nn.Module, how: Distribution, mesh: Any, device: str) -> torch.nn.Module:
    """FullyShardedDataParallel: a flat parameter for every layer and one for the rest, materialised one after the other."""
    from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import CustomPolicy

    whole, hybrid = ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD
    if not how.reshard:
        whole, hybrid = ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2
    compute, reduce = dtype_or_none(how.compute), dtype_or_none(how.reduce)
    units = {id(layer) for layer in units_of(model)}
    # One type per flat parameter: adapters beside frozen weights are units of their own (peft/utils/other.py,
    # fsdp_auto_wrap_policy); where some layers are trained as they are, only the original parameters tell them apart.
    mixed = any(not p.requires_grad for p in model.parameters())
    adapted = mixed and hasattr(model, "peft_config")
    units |= {id(m) for m in model.modules() if adapted and _is_trained_leaf(m)}
    return FullyShardedDataParallel(
        model,
        device_mesh=mesh,
        sharding_strategy=hybrid if how.parallel.replicate > 1 else whole,
        auto_wrap_policy=CustomPolicy(lambda module: id(module) in units),
        mixed_precision=MixedPrecision(param_dtype=compute, reduce_dtype=reduce) if compute or reduce else None,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE if how.prefetch else None,
        cpu_offload=CPUOffload(offload_params=True) if how.host_weights else None,
        device_id=torch.device(device, 0),
        use_orig_params=mixed and not adapted,
        param_init_fn=partial(_materialise, device=device),
    )


def shard_fully(model: torch.nn.Module, how: Distribution, mesh: Any, experts_mesh: Any = None) -> torch.nn.Module:
    """FSDP2: every layer and the root, or also the embedding, and the last norm with the head, which stay whole till backward.

    A rank's own experts are groups of their own, over the ranks that hold the same ones (``experts_mesh``).
    """
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    options: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(dtype_or_none(how.compute), dtype_or_none(how.reduce)),
    }
    if how.host_weights:
        options["offload_policy"] = CPUOffloadPolicy()
    for module in model.modules() if experts_mesh is not None else ():
        if getattr(module, "_is_expert_parallel", False):
            fully_shard(module, **(options | {"mesh": experts_mesh["copies"]}))
    for layer in units_of(model):
        fully_shard(layer, reshard_after_forward=how.reshard, **options)
    if how.ends_apart:
        first, last = _ends(model)
        for module in first:
            fully_shard(module, reshard_after_forward=how.reshard, **options)
        if last:
            fully_shard(last, reshard_after_forward=False, **options)
    sharded: torch.nn.Module = fully_shard(model, reshard_after_forward=None if how.reshard else False, **options)
    return sharded


def _is_trained_leaf(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return not any(True for _ in module.children()) and weight is not None and bool(weight.requires_grad)


def units_of(model: Any) -> list[torch.nn.Module]:
    """The modules that full sharding takes one by one: layers that the class must not have split, a tower's among them.

    Source: accelerate 1.15, utils/dataclasses.py, set_auto_wrap_policy (transformers' ``_no_split_modules``).
    """
    whole = set(getattr(model, "_no_split_modules", None) or ())
    lists = [list(m) for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
    return [layer for layers in lists for layer in layers if type(layer).__name__ in whole] or layers_of(model)


def layers_of(model: Any) -> list[torch.nn.Module]:
    """The decoder's layers: the longest list of modules, of the text model where the model sees as well."""
    text = getattr(model, "get_decoder", lambda: None)() if hasattr(getattr(model, "config", None), "vision_config") else None
    lists = [list(m) for m in (text or model).modules() if isinstance(m, torch.nn.ModuleList)]
    return max(lists, key=len, default=[])


def dtype_or_none(name: str) -> torch.dtype | None:
    """The torch dtype of that name; None for ""."""
    if name and name not in _DTYPES:
        raise unknown_name("dtype to trace", name, _DTYPES)
    return _DTYPES[name] if name else None


def _ends(model: Any) -> tuple[list[torch.nn.Module], list[torch.nn.Module]]:
    """The embedding when it is a group of its own, and what runs after the last layer (with a tied embedding)."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    base = model.base_model if hasattr(model, "base_model") else model
    norms = [m for m in base.children() if "Norm" in type(m).__name__]
    tied = None not in {head, embedding} and head.weight is embedding.weight
    last = [*norms, *([embedding] if tied else []), *([head] if head is not None else [])]
    return ([] if tied or embedding is None else [embedding]), [*last, *sharing(model, last)]


def sharing(model: torch.nn.Module, group: list[torch.nn.Module]) -> list[torch.nn.Module]:
    """Other modules that hold a weight of the group's: T5's three embeddings, the bias that BERT's head has twice.

    torch takes a shared weight in one group alone from 2.13 on (_fsdp_state.py, _validate_no_duplicate_params) and says to put
    its modules together; accelerate 1.15 does so for an embedding and a head.
    """
    taken = {id(m) for module in group for m in module.modules()}
    held = {id(p) for module in group for p in module.parameters()}
    return [m for m in model.modules() if id(m) not in taken and any(id(p) in held for p in m._parameters.values())]


def _materialise(module: torch.nn.Module, device: str) -> None:
    if any(t.is_meta and t.device.type == "meta" for t in (*module.parameters(recurse=False), *module.buffers(recurse=False))):
        module.to_empty(device=device, recurse=False)
