"""Optimizers by the names of a recipe, over parameters in groups of one mesh each."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from vramcast.errors import unknown_name

Parameters = Iterable[torch.nn.Parameter]


def _adamw(**options: Any) -> Callable[[Parameters], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, **options)


def _sgd(**options: Any) -> Callable[[Parameters], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.SGD(parameters, lr=1e-4, **options)


def _bitsandbytes(name: str) -> Callable[[Parameters], torch.optim.Optimizer]:
    def make(parameters: Parameters) -> torch.optim.Optimizer:
        import bitsandbytes

        return getattr(bitsandbytes.optim, name)(parameters, lr=1e-4)

    return make


def _adafactor(parameters: Parameters) -> torch.optim.Optimizer:
    from transformers.optimization import Adafactor

    return Adafactor(parameters, lr=1e-4, scale_parameter=False, relative_step=False)


# "adamw" is torch's own default for CUDA parameters: the multi-tensor (foreach) form.
OPTIMIZERS: dict[str, Callable[[Parameters], torch.optim.Optimizer]] = {
    "adamw": _adamw(foreach=True),
    "adamw_foreach": _adamw(foreach=True),
    "adamw_fused": _adamw(fused=True),
    "adamw_loop": _adamw(foreach=False),
    "adamw_8bit": _bitsandbytes("AdamW8bit"),
    "paged_adamw_8bit": _bitsandbytes("PagedAdamW8bit"),
    "paged_adamw_32bit": _bitsandbytes("PagedAdamW32bit"),
    "lion_8bit": _bitsandbytes("Lion8bit"),
    "adafactor": _adafactor,
    "sgd": _sgd(foreach=True),
    "sgd_momentum": _sgd(foreach=True, momentum=0.9),
}


def make_optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    """The named optimizer over the trainable parameters, in groups of one mesh each."""
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer to trace", name, OPTIMIZERS)
    groups = on_one_mesh(p for p in model.parameters() if p.requires_grad)
    return OPTIMIZERS[name](groups[0] if len(groups) == 1 else [{"params": group} for group in groups])


def on_one_mesh(parameters: Parameters) -> list[list[torch.nn.Parameter]]:
    """Parameters by the ranks they are divided over: torch's multi-tensor functions take none of different ones together."""
    groups: dict[Any, list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        groups.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    return list(groups.values())
