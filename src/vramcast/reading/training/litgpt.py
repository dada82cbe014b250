"""litgpt YAML (config_hub). Keys and defaults: litgpt 0.5.12, finetune/{full,lora}.py, pretrain.py and args.py."""

from typing import Any

from vramcast.reading.training.keys import Rule, flag, number, one_of, text, whole
from vramcast.reading.training.settings import UNSET, Settings

NAME = "litgpt YAML"
SIGNATURE = frozenset(
    {"checkpoint_dir", "train.micro_batch_size", "train.global_batch_size", "lora_query", "lora_projection", "tokenizer_dir"}
)
_PRECISION = {
    "bf16-true": "bfloat16",
    "16-true": "float16",
    "32-true": "float32",
    "bf16-mixed": "bfloat16",
    "16-mixed": "float16",
}
_ROLES = {"lora_query": "q_proj", "lora_key": "k_proj", "lora_value": "v_proj", "lora_projection": "o_proj"}
_DEFAULT = {"lora_query": True, "lora_value": True}


def _model(settings: Settings, value: Any, because: str) -> None:
    if value not in UNSET:
        settings.put("model", str(value).removeprefix("checkpoints/").strip("/"), because)


def _precision(settings: Settings, value: Any, because: str) -> None:
    word = str(value)
    settings.put("compute_dtype", _PRECISION.get(word), because)
    if word.endswith("-mixed"):
        settings.put("param_dtype", "float32", because)
        settings.put("options.autocast", True, because)


def _quantise(settings: Settings, value: Any, because: str) -> None:
    if value in UNSET:
        return
    word = str(value).removeprefix("bnb.")
    settings.put("quant", "int8" if word.startswith("int8") else word.removesuffix("-dq"), because)
    settings.put("options.double_quant", word.endswith("-dq"), because)


RULES: dict[str, Rule] = {
    "checkpoint_dir": _model,
    "model_name": ("model", text),
    "precision": _precision,
    "quantize": _quantise,
    "devices": ("gpus", lambda v: None if v in UNSET else int(v)),
    "num_nodes": ("nodes", whole),
    "lora_r": ("adapter.rank", whole),
    "lora_dropout": ("adapter.dropout", number),
    **{name: (f"litgpt.{name}", flag) for name in (*_ROLES, "lora_mlp", "lora_head")},
    "train.micro_batch_size": ("micro_batch", whole),
    "train.global_batch_size": ("global_batch", whole),
    "train.max_seq_length": ("seq", whole),
    "train.tie_embeddings": ("options.tied", flag),
    "optimizer.class_path": ("optimizer", lambda v: str(v).rsplit(".", 1)[-1].lower()),
    "optimizer": ("optimizer", one_of({"adamw": "adamw"})),
}
IDLE = (
    "out_dir", "resume", "initial_checkpoint_dir", "data*", "train.save_interval", "train.log_interval", "train.lr_*",
    "train.epochs", "train.max_tokens", "train.max_steps", "train.max_time", "train.max_norm", "train.min_lr",
    "train.learning_rate", "train.weight_decay", "train.beta*", "eval.*", "log.*", "logger_name", "seed", "access_token",
    "lora_alpha", "optimizer.init_args*", "tokenizer_dir", "model_config*",
)  # fmt: skip


def finish(settings: Settings) -> None:
    """LoRA on queries and values where a rank is given."""
    settings.put("framework", "litgpt", "the keys of this file")
    settings.put("micro_batch", 1, "litgpt: micro_batch_size 1")
    settings.put("seq", 2048, "max_seq_length is null, the longest sample decides; 2,048 is taken")
    settings.replace("gpus", settings.get("gpus", 1) * settings.get("nodes", 1))
    if "adapter.rank" not in settings.values:
        return
    chosen = [role for name, role in _ROLES.items() if settings.get(f"litgpt.{name}", _DEFAULT.get(name, False))]
    if settings.get("litgpt.lora_mlp"):
        chosen += ["gate_proj", "up_proj", "down_proj"]
    if settings.get("litgpt.lora_head"):
        chosen.append("lm_head")
    settings.put("adapter.targets", tuple(chosen), "litgpt: lora_query ... lora_head")
    settings.put("method", "qlora" if settings.get("quant") else "lora", settings.because["adapter.rank"])
