"""Activation checkpointing of transformers' layers by name: all, every n-th, or chosen operations of each."""

from collections import Counter
from functools import partial
from typing import Any

import torch

from vramcast.errors import unknown_name

KINDS = ("none", "full", "reentrant", "offloaded", "op", "layer:N")
aten = torch.ops.aten


def enable(model: Any, kind: str) -> None:
    """Recompute what ``kind`` says during backward.

    "full" (non-reentrant) and "reentrant": every layer. "offloaded": every layer, from an input that waits on the host. "op": all
    but attention and every second matrix product of each layer. "layer:N": every N-th layer. Raises QuestionError for another
    name.
    """
    if kind == "none":
        return
    every = int(kind.removeprefix("layer:")) if kind.removeprefix("layer:").isdigit() else 1
    if kind not in KINDS and not kind.startswith("layer:"):
        raise unknown_name("checkpointing to trace", kind, KINDS)
    options: dict[str, Any] = {"use_reentrant": kind in {"reentrant", "offloaded"}}
    if kind == "op":
        options["context_fn"] = _contexts
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    if kind == "offloaded":
        for layer in (module for module in model.modules() if hasattr(module, "_gradient_checkpointing_func")):
            layer._gradient_checkpointing_func = partial(_from_host, layer._gradient_checkpointing_func)
    if every > 1:
        layers = [module for module in model.modules() if getattr(module, "gradient_checkpointing", None) and _is_layer(module)]
        for number, layer in enumerate(layers, start=1):
            layer.gradient_checkpointing = number % every == 0
    if hasattr(model, "enable_input_require_grads") and not all(p.requires_grad for p in model.parameters()):
        model.enable_input_require_grads()


def _is_layer(module: torch.nn.Module) -> bool:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return isinstance(module, GradientCheckpointingLayer)


def _from_host(checkpoint: Any, *args: Any, **options: Any) -> Any:
    """A reentrant checkpoint saves its inputs as autograd saves any tensor: here in page-locked memory."""
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        return checkpoint(*args, **options)


def _contexts() -> Any:
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    return create_selective_checkpoint_contexts(partial(_policy, Counter()))


_KEPT = frozenset({
    aten.mm.default, aten._scaled_dot_product_efficient_attention.default, aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_cudnn_attention.default, aten.max.default, torch.ops._c10d_functional.reduce_scatter_tensor.default,
})  # fmt: skip


def _policy(products: Counter[bool], context: Any, func: Any, *_: Any, **__: Any) -> Any:
    """What torchtitan keeps (distributed/activation_checkpoint.py): a list of operators, of matrix products every second."""
    from torch.utils.checkpoint import CheckpointPolicy

    if func is aten.mm.default:
        products[context.is_recompute] += 1
    kept = func in _KEPT and not (func is aten.mm.default and products[context.is_recompute] % 2 == 0)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
