"""LLaMA-Factory's sectioned YAML (model, peft_config, kernel_config, quant_config, dist_config).

Keys and defaults: llamafactory 0.9.5, src/llamafactory/v1 (config/model_args.py, training_args.py; plugins/model_plugins/peft.py,
quantization.py; plugins/trainer_plugins/distributed/fsdp2.py).
"""

from typing import Any

from vramcast.reading.training.huggingface import attention, four_bit, offloads
from vramcast.reading.training.keys import Rule, flag, names, number, text, when, whole
from vramcast.reading.training.settings import Settings

NAME = "LLaMA-Factory v1 YAML"
SIGNATURE = frozenset({"peft_config.name", "kernel_config.name", "dist_config.name", "quant_config.name", "cutoff_len",
                       "enable_activation_checkpointing", "train_dataset"})  # fmt: skip


def _distribution(settings: Settings, value: Any, because: str) -> None:
    settings.put("fsdp" if str(value) == "fsdp2" else "engine.name", 2 if str(value) == "fsdp2" else str(value), because)


def _bits(settings: Settings, value: Any, because: str) -> None:
    settings.put("quant", {"4": "nf4", "8": "int8"}.get(str(value), f"{value}bit"), because)


def _kernels(settings: Settings, value: Any, because: str) -> None:
    settings.unread.append(f"{because.rsplit(': ', 1)[-1]} ({value}: kernels are chosen where it runs)")


RULES: dict[str, Rule] = {
    "kernel_config.name": _kernels,
    "kernel_config.include_kernels": _kernels,
    "model": ("model", text),
    "micro_batch_size": ("micro_batch", whole),
    "global_batch_size": ("global_batch", whole),
    "cutoff_len": ("seq", whole),
    "bf16": ("compute_dtype", when("bfloat16", "float32")),
    "enable_activation_checkpointing": ("checkpointing", when("full", "none")),
    "flash_attn": attention,
    "batching_strategy": ("lengths.strategy", text),
    "peft_config.name": ("method", text),
    "peft_config.r": ("adapter.rank", whole),
    "peft_config.lora_dropout": ("adapter.dropout", number),
    "peft_config.target_modules": ("adapter.targets", names),
    "peft_config.modules_to_save": ("adapter.modules_to_save", names),
    "peft_config.use_dora": ("adapter.dora", flag),
    "peft_config.freeze_trainable_layers": ("options.trainable_layers", whole),
    "quant_config.quantization_bit": _bits,
    "quant_config.quantization_type": ("quant.kind", text),
    "quant_config.double_quantization": ("options.double_quant", flag),
    "quant_config.load_in_4bit": four_bit,
    "dist_config.name": _distribution,
    "dist_config.reshard_after_forward": ("options.reshard", flag),
    "dist_config.offload_params": offloads("parameters"),
    "dist_config.cp_size": ("parallel.cp", whole),
    "dist_config.config_file": ("file.deepspeed", text),
    "optim_config.name": ("optimizer", text),
}
IDLE = (
    "template", "trust_remote_code", "train_dataset", "eval_dataset", "model_class", "init_config.*", "output_dir",
    "learning_rate", "num_train_epochs", "max_steps", "max_grad_norm", "batching_workers", "lr_scheduler_config*", "seed",
    "full_determinism", "resume_from_checkpoint", "save_*", "logging_steps", "sample_backend", "max_new_tokens",
    "peft_config.*", "dist_config.pin_memory", "dist_config.dcp_path", "dist_config.num_micro_batch", "quant_config.name",
    "optim_config.*",
)  # fmt: skip


def finish(settings: Settings) -> None:
    """FSDP2 by default layout, 2,048 tokens; adapters on every linear layer."""
    settings.put("framework", "llama_factory", "the sections of this file")
    settings.put("seq", 2048, "LLaMA-Factory v1: cutoff_len 2048")
    settings.put("micro_batch", 1, "LLaMA-Factory v1: micro_batch_size 1")
    settings.put("checkpointing", "full", "LLaMA-Factory v1: enable_activation_checkpointing")
    if settings.get("method") != "lora":
        return
    settings.put("adapter.rank", 8, "LLaMA-Factory v1: r 8")
    settings.put("adapter.targets", ("all-linear",), "LLaMA-Factory v1: target_modules all")
    if settings.get("quant"):
        settings.replace("method", "qlora")
