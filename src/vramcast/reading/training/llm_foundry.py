"""llm-foundry YAML. Keys: llm-foundry 0.22.0, utils/config_utils.py and models/mpt/configuration_mpt.py; composer FSDPConfig."""

from typing import Any

from vramcast.reading.training.keys import Rule, flag, number, one_of, text, whole
from vramcast.reading.training.settings import UNSET, Settings

NAME = "llm-foundry YAML"
SIGNATURE = frozenset({"device_train_microbatch_size", "global_train_batch_size", "max_seq_len", "model.name", "max_duration"})
_PRECISION = {"amp_bf16": "bfloat16", "amp_fp16": "float16", "fp32": "float32", "amp_fp8": "fp8"}


def _checkpointing(settings: Settings, value: Any, because: str) -> None:
    settings.put("checkpointing", "full" if flag(value) else "none", because)


def _offload(part: str) -> Rule:
    def read(settings: Settings, value: Any, because: str) -> None:
        if flag(value):
            settings.add("offload", part, because)

    return read


def _strategy(settings: Settings, value: Any, because: str) -> None:
    settings.put("fsdp", 1, because)
    if value == "SHARD_GRAD_OP":
        settings.put("options.reshard", False, because)
    elif value == "NO_SHARD":
        settings.put("options.sharding", "ddp", because)


def _mixed(settings: Settings, value: Any, because: str) -> None:
    if value == "PURE":
        settings.put("options.gradients", "bfloat16", because)
        settings.put("options.reduce", "bfloat16", because)


def _batch(settings: Settings, value: Any, because: str) -> None:
    if value not in UNSET:
        settings.put("micro_batch", whole(value), because)


_SHAPE = {"n_layers": "layers", "d_model": "hidden", "n_heads": "heads", "vocab_size": "vocab"}
RULES: dict[str, Rule] = {
    "variables.max_seq_len": ("seq", whole),
    "max_seq_len": ("seq", whole),
    "device_train_microbatch_size": _batch,
    "global_train_batch_size": ("global_batch", whole),
    "variables.global_train_batch_size": ("global_batch", whole),
    "precision": ("compute_dtype", one_of(_PRECISION)),
    "optimizer.name": ("optimizer", text),
    "fsdp_config.sharding_strategy": _strategy,
    "fsdp_config.mixed_precision": _mixed,
    "fsdp_config.activation_checkpointing": _checkpointing,
    "fsdp_config.activation_checkpointing_reentrant": ("options.reentrant", flag),
    "fsdp_config.activation_cpu_offload": _offload("activations"),
    "fsdp_config.cpu_offload": _offload("parameters"),
    "fsdp_config.data_parallel_shard_degree": ("parallel.shard", lambda v: None if int(v) < 1 else int(v)),
    "fsdp_config.data_parallel_replicate_degree": ("parallel.replicate", whole),
    "model.pretrained_model_name_or_path": ("model", text),
    "model.attn_config.attn_impl": ("attention", one_of({"torch": "eager", "flash": "flash", "triton": "flash"})),
    "model.attn_config.kv_n_heads": ("shape.kv_heads", whole),
    "model.expansion_ratio": ("foundry.expansion", number),
    "model.loss_fn": ("loss", one_of({"fused_crossentropy": "fused", "torch_crossentropy": "plain"})),
    "model.peft_config.r": ("adapter.rank", whole),
    "model.peft_config.target_modules": ("adapter.targets", lambda v: tuple(v) if isinstance(v, list) else (str(v),)),
    "model.peft_config.lora_dropout": ("adapter.dropout", number),
    "model.peft_config.use_dora": ("adapter.dora", flag),
    "model.load_in_8bit": ("quant", lambda v: "int8" if flag(v) else None),
    "compile_config": ("compile", lambda v: True if v is not None else None),
    **{f"model.{name}": (f"shape.{target}", whole) for name, target in _SHAPE.items()},
}
IDLE = (
    "variables.*", "max_duration", "eval_*", "run_name", "data_*", "global_seed", "seed", "save_*", "load_*", "tokenizer*",
    "train_loader*", "optimizer.*", "scheduler*", "algorithms*", "progress_bar", "log_*", "loggers*", "callbacks*",
    "python_log_level", "device_eval_*", "console_log_interval", "fsdp_config.*", "model.name", "model.init_device",
    "model.config_overrides*", "model.pretrained", "model.use_auth_token", "model.trust_remote_code", "model.attn_config.*",
    "model.peft_config.*", "model.norm_type", "model.max_seq_len", "model.init_*", "autoresume", "dist_timeout", "eval_first",
    "icl_*", "model.no_bias", "model.use_*", "only_*", "evaluators*", "model.emb_pdrop", "model.resid_pdrop",
    "model.learned_pos_emb", "model.ffn_config*", "model.fc_type*", "expandable_segments",
)  # fmt: skip


def finish(settings: Settings) -> None:
    """MPT's shape from its numbers, where no published model is named."""
    settings.put("framework", "llm_foundry", "the keys of this file")
    settings.put("micro_batch", 1, "device_train_microbatch_size auto: found at run time; 1 is taken")
    if "shape.layers" in settings.values and "shape.hidden" in settings.values:
        hidden = settings.get("shape.hidden")
        settings.put("shape.ffn", int(settings.get("foundry.expansion", 4) * hidden), "MPT: expansion_ratio 4")
        settings.put("shape.gated", False, "MPT: ungated feed-forward")
        settings.put("shape.norm", "layernorm", "MPT: layer norms")
        settings.put("shape.tied", True, "MPT: tied embeddings")
        settings.put("shape.packed", True, "MPT: Wqkv")
    if "adapter.rank" in settings.values:
        settings.put("method", "lora", settings.because["adapter.rank"])
        settings.put("adapter.targets", ("all-linear",), "all-linear")
