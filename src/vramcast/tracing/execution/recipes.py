"""The parts of a training recipe by name: optimizers, adapters, 4-bit weights, checkpointing."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from vramcast.errors import unknown_name
from vramcast.workload import Adapter

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

_ROLES = {
    "query": ("q_proj", "qkv_proj", "query_key_value"), "key": ("k_proj", "qkv_proj", "query_key_value"),
    "value": ("v_proj", "qkv_proj", "query_key_value"), "projection": ("o_proj", "dense", "out_proj"),
    "mlp": ("gate_proj", "up_proj", "gate_up_proj", "down_proj", "fc1", "fc2"), "head": ("lm_head",),
}  # fmt: skip
_ROLES |= {"q": _ROLES["query"], "k": _ROLES["key"], "v": _ROLES["value"], "o": _ROLES["projection"]}


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


def add_adapter(model: torch.nn.Module, adapter: Adapter, *, kbit: bool) -> torch.nn.Module:
    """The model with a PEFT LoRA adapter; ``kbit`` prepares 4-bit weights as PEFT's own recipe does."""
    import peft

    if kbit:
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    targets = "all-linear" if adapter.targets == ("all-linear",) else _module_names(model, adapter.targets)
    config = peft.LoraConfig(
        r=adapter.rank,
        lora_alpha=2 * adapter.rank,
        lora_dropout=adapter.dropout,
        target_modules=targets,
        modules_to_save=list(adapter.modules_to_save) or None,
        use_dora=adapter.dora,
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(model, config)


def _module_names(model: torch.nn.Module, targets: tuple[str, ...]) -> list[str]:
    """Names of the model's own modules: a target that is none of them is read as a role (query, mlp, head ...)."""
    own = {name.rsplit(".", 1)[-1] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    names = [name for t in targets for name in ((t,) if t in own else _ROLES.get(t, (t,)))]
    return [name for name in dict.fromkeys(names) if name in own] or list(targets)
