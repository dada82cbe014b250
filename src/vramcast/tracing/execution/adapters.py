"""Adapters by PEFT itself: the config class of the kind that was asked for, and PEFT's own wrapping of the model."""

from importlib import import_module
from typing import Any

import torch

from vramcast.errors import unknown_name
from vramcast.workload import Adapter

# Kinds by other names than PEFT's, with the settings that make them what they are.
_ALIASES: dict[str, tuple[str, dict[str, Any]]] = {
    "rslora": ("LORA", {"use_rslora": True}),
    "dora": ("LORA", {"use_dora": True}),
    "pissa": ("LORA", {"init_lora_weights": "pissa_niter_4"}),
    "bone": ("MISS", {}),
    "bat": ("MISS", {"init_weights": "bat"}),
    "miss_mini": ("MISS", {"init_weights": "mini"}),
    "prompt": ("PROMPT_TUNING", {}),
    "prefix": ("PREFIX_TUNING", {}),
    "prefixtuning": ("PREFIX_TUNING", {}),
    "ptuning": ("P_TUNING", {}),
}
# What a class cannot be made without.
_REQUIRED: dict[str, dict[str, Any]] = {
    "ADALORA": {"total_step": 1000},
    "PROMPT_TUNING": {"num_virtual_tokens": 20},
    "PREFIX_TUNING": {"num_virtual_tokens": 20},
    "P_TUNING": {"num_virtual_tokens": 20},
    "TRAINABLE_TOKENS": {"token_indices": [0]},
}
_SIZES = {"projection": "prefix_projection"}  # sizes of the forecast that PEFT calls otherwise
_DOWNWARD = ("down_proj", "fc2", "w2", "dense_4h_to_h", "c_proj")
_ROLES = {
    "query": ("q_proj", "qkv_proj", "query_key_value"), "key": ("k_proj", "qkv_proj", "query_key_value"),
    "value": ("v_proj", "qkv_proj", "query_key_value"), "projection": ("o_proj", "dense", "out_proj"),
    "mlp": ("gate_proj", "up_proj", "gate_up_proj", "down_proj", "fc1", "fc2"), "head": ("lm_head",),
}  # fmt: skip
_ROLES |= {"q": _ROLES["query"], "k": _ROLES["key"], "v": _ROLES["value"], "o": _ROLES["projection"]}


def add_adapter(model: torch.nn.Module, adapter: Adapter, *, kbit: bool) -> torch.nn.Module:
    """The model with an adapter of PEFT; ``kbit`` prepares 4-bit weights as PEFT's own recipe does."""
    import peft

    import_module("torch.distributed.tensor")  # PEFT names it as if it were always there
    if kbit:
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return peft.get_peft_model(model, adapter_config(model, adapter), autocast_adapter_dtype=adapter.dtype in {None, "float32"})


def adapter_config(model: torch.nn.Module, adapter: Adapter) -> Any:
    """PEFT's config of an adapter. Raises QuestionError for a kind that the installed PEFT does not have."""
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    kinds = {kind.value: config for kind, config in PEFT_TYPE_TO_CONFIG_MAPPING.items()}
    kind, settings = _ALIASES.get(adapter.kind, (adapter.kind.upper(), {}))
    if kind not in kinds:
        raise unknown_name("adapter of PEFT", adapter.kind, [*_ALIASES, *map(str.lower, kinds)])
    config = kinds[kind]
    wanted = _settings(model, adapter, kind) | _REQUIRED.get(kind, {}) | settings | _sizes(adapter, kind)
    known = config.__dataclass_fields__
    return config(task_type=_task(model), **{name: value for name, value in wanted.items() if name in known})


def _task(model: torch.nn.Module) -> str | None:
    """PEFT's word for what the model does: one that generates nothing gets the plain wrapper."""
    if not hasattr(model, "prepare_inputs_for_generation"):
        return None
    return "SEQ_2_SEQ_LM" if getattr(model.config, "is_encoder_decoder", False) else "CAUSAL_LM"


def _settings(model: torch.nn.Module, adapter: Adapter, kind: str) -> dict[str, Any]:
    targets: Any = "all-linear" if adapter.targets == ("all-linear",) else _module_names(model, adapter.targets)
    if kind in {"LN_TUNING", "TRAINABLE_TOKENS"}:
        targets = None  # norms and the embedding: no linear layers
    settings = {
        "target_modules": targets,
        "target_parameters": list(adapter.parameters) or None,
        "modules_to_save": list(adapter.modules_to_save) or None,
        "feedforward_modules": _downward(model, targets),
        "lora_dropout": adapter.dropout,
        f"{kind.lower()}_dropout": adapter.dropout,
        "use_dora": adapter.dora,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _sizes(adapter: Adapter, kind: str) -> dict[str, Any]:
    """The adapter's sizes by PEFT's names; without any, its rank."""
    sizes: dict[str, Any] = {_SIZES.get(name, name): size for name, size in (adapter.sizes or {"r": adapter.rank}).items()}
    if kind == "ADALORA":
        return {"init_r": sizes["r"], "target_r": max(1, 2 * sizes["r"] // 3)}
    if "tokens" in sizes:
        sizes["token_indices"] = list(range(sizes["tokens"]))
    return sizes


def _downward(model: torch.nn.Module, targets: Any) -> list[str]:
    """Modules whose input IA3 scales instead of their output."""
    own = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    return [name for name in _DOWNWARD if name in own and (targets == "all-linear" or name in (targets or ()))]


def _module_names(model: torch.nn.Module, targets: tuple[str, ...]) -> list[str]:
    """Names of the model's own modules: a target that is none of them is read as a role (query, mlp, head ...)."""
    own = {name.rsplit(".", 1)[-1] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    names = [name for t in targets for name in ((t,) if t in own else _ROLES.get(t, (t,)))]
    return [name for name in dict.fromkeys(names) if name in own] or list(targets)
