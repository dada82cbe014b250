"""PEFT's adapter_config.json. Keys and defaults: peft 0.21.2, tuners/*/config.py."""

from typing import Any

from vramcast.reading.training.keys import Rule, flag, names, number, text, whole
from vramcast.reading.training.settings import Settings
from vramcast.training.adapters.kinds import KINDS

NAME = "PEFT adapter_config.json"
SIGNATURE = frozenset({"peft_type", "target_modules", "base_model_name_or_path", "task_type"})
TYPES = {"prompt_tuning": "prompt", "prefix_tuning": "prefix", "p_tuning": "p_tuning", "ln_tuning": "ln_tuning"}
TARGETS = "PEFT: q_proj and v_proj of most families"
# unsloth 2025.11, models/llama.py: what its get_peft_model adapts unless said, at rank 16
_IA3_TARGETS = ("k_proj", "v_proj", "down_proj")
UNSLOTH_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def default_targets(kind: str) -> tuple[tuple[str, ...], str]:
    """What PEFT adapts unless said, and its source: peft 0.21.2, utils/constants.py, a map for LoRA's kin and one for IA3."""
    if kind == "ia3":
        return _IA3_TARGETS, "PEFT: keys, values and the MLP's last product of most families"
    return ("q_proj", "v_proj"), TARGETS


def _type(settings: Settings, value: Any, because: str) -> None:
    word = str(value).lower()
    settings.put("method", TYPES.get(word, word), because)


def _dora(settings: Settings, value: Any, because: str) -> None:
    settings.put("adapter.dora", flag(value), because)


RULES: dict[str, Rule] = {
    "peft_type": _type,
    "base_model_name_or_path": ("model", text),
    "r": ("adapter.rank", whole),
    "init_r": ("adapter.rank", whole),
    "lora_dropout": ("adapter.dropout", number),
    "target_modules": ("adapter.targets", lambda v: (v,) if isinstance(v, str) else names(v)),
    "target_parameters": ("adapter.parameters", names),
    "modules_to_save": ("adapter.modules_to_save", names),
    "use_dora": _dora,
    "num_virtual_tokens": ("adapter.sizes.num_virtual_tokens", whole),
    "encoder_hidden_size": ("adapter.sizes.encoder_hidden_size", whole),
    **{
        size: (f"adapter.sizes.{size}", lambda v: int(v) if v else None)
        for kind in KINDS.values()
        for size in kind.sizes
        if size not in ("r", "feedforward")
    },
}
IDLE = (
    "lora_alpha", "task_type", "inference_mode", "bias", "fan_in_fan_out", "init_*", "layers_*", "rank_pattern",
    "alpha_pattern", "auto_mapping", "revision", "peft_version", "use_rslora", "megatron_*", "loftq_config", "eva_config",
    "corda_config", "lora_bias", "exclude_modules", "layer_replication", "runtime_config", "qalora_*", "use_qalora",
    "trainable_token_indices", "alpha", "*_dropout", "feedforward_modules", "target_r", "tinit", "tfinal", "deltaT", "beta1",
    "beta2", "orth_reg_weight", "total_step", "arrow_config", "ensure_weight_tying", "use_bdlora", "lora_ga_config",
    "alora_invocation_tokens", "module_dropout", "rank_dropout", "coft", "eps", "use_cayley_neumann",
    "num_cayley_neumann_terms", "projection_prng_key", "save_projection", "d_initial", "scaling",
)  # fmt: skip


def finish(settings: Settings) -> None:
    """PEFT's default targets."""
    settings.put("framework", "hf_trainer", "a PEFT configuration by itself")
    if settings.get("method") in KINDS:
        settings.put("adapter.targets", *default_targets(settings.get("method")))
