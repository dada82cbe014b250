"""axolotl YAML. Keys and defaults: axolotl 0.12.2, src/axolotl/utils/schemas (config, training, peft, fsdp, deprecated)."""

from typing import Any

from vramcast.reading.training.huggingface import (
    adapters,
    attention,
    checkpointing,
    eight_bit,
    fsdp_idle,
    fsdp_rules,
    fused_kernels,
    offloads,
    optimizer_args,
    sharded,
    sharding,
)  # fmt: skip
from vramcast.reading.training.keys import Rule, flag, names, number, text, when, whole
from vramcast.reading.training.settings import UNSET, Settings

NAME = "axolotl YAML"
_ENDS = ("embed_tokens", "lm_head", "wte")
SIGNATURE = frozenset({"base_model", "micro_batch_size", "sequence_len", "datasets", "adapter", "sample_packing"})


def _adapter(settings: Settings, value: Any, because: str) -> None:
    if value not in UNSET:
        settings.put("adapter.on", True, because)
        settings.put("method", str(value), because)


def _all_linear(settings: Settings, value: Any, because: str) -> None:
    """Every linear layer beside those that ``lora_target_modules`` names (loaders/adapter.py, load_lora)."""
    if flag(value):
        settings.put("targets.linear", True, because)


def _four_bit(settings: Settings, value: Any, because: str) -> None:
    """4 bits only under an adapter called qlora; ``load_in_8bit: false`` is in most files."""
    if flag(value):
        settings.put("quant", "nf4", because)


def _plugins(settings: Settings, value: Any, because: str) -> None:
    listed = " ".join(value) if isinstance(value, list) else str(value)
    if "cut_cross_entropy" in listed:
        settings.put("loss", "linear", f"{because}: cut cross entropy")


def _offloading(settings: Settings, value: Any, because: str) -> None:
    """True offloads what layers save; ``legacy`` and ``disk`` the inputs of checkpointed layers (schemas/config.py)."""
    if str(value).lower() in ("legacy", "disk"):
        settings.replace("checkpointing", "offloaded", because)
    elif flag(value):
        settings.add("offload", "activations", because)


def _unfrozen(settings: Settings, value: Any, because: str) -> None:
    if value:
        settings.unread.append(because.rsplit(": ", 1)[-1])


def _mlp_kernel(settings: Settings, value: Any, because: str) -> None:
    """One function for gate, up, product and down, whose backward overwrites gate and up (kernels/lora.py, LoRA_MLP)."""
    if flag(value):
        settings.put("options.fused_adapter", True, because)
        settings.put("options.glu", "fused", because)


RULES: dict[str, Rule] = {
    "base_model": ("model", text),
    "sequence_len": ("seq", whole),
    "micro_batch_size": ("micro_batch", whole),
    "gradient_accumulation_steps": ("accumulate", whole),
    "sample_packing": ("lengths.packed", flag),
    "pad_to_sequence_len": ("lengths.padded", flag),
    "gradient_checkpointing": checkpointing,
    "gradient_checkpointing_kwargs.use_reentrant": ("options.reentrant", flag),
    "activation_offloading": _offloading,
    "layer_offloading": offloads("parameters"),
    "optimizer": ("optimizer", text),
    "optim_args": optimizer_args,
    "bf16": ("compute_dtype", when("bfloat16")),
    "bfloat16": ("compute_dtype", when("bfloat16")),
    "fp16": ("compute_dtype", when("float16")),
    "float16": ("compute_dtype", when("float16")),
    "fp8": ("compute_dtype", when("fp8")),
    "load_in_4bit": _four_bit,
    "load_in_8bit": eight_bit,
    "adapter": _adapter,
    "lora_r": ("adapter.rank", whole),
    "lora_dropout": ("adapter.dropout", number),
    "lora_target_modules": ("adapter.targets", names),
    "lora_target_parameters": ("adapter.parameters", names),
    "lora_target_linear": _all_linear,
    "lora_modules_to_save": ("adapter.modules_to_save", names),
    "peft_use_dora": ("adapter.dora", flag),
    "lora_mlp_kernel": _mlp_kernel,
    "lora_qkv_kernel": ("options.fused_adapter", when(True)),
    "lora_o_kernel": ("options.fused_adapter", when(True)),
    "flash_attention": ("attention", when("flash")),
    "sdp_attention": ("attention", when("flash")),
    "xformers_attention": ("attention", when("efficient")),
    "eager_attention": ("attention", when("eager")),
    "flex_attention": ("attention", when("flash")),
    "s2_attention": ("attention", when("flash")),
    "attention": attention,
    "attn_implementation": attention,
    "chunked_cross_entropy": ("loss", when("chunked_linear")),
    "cut_cross_entropy": ("loss", when("linear")),
    "plugins": _plugins,
    "liger_fused_linear_cross_entropy": ("loss", when("linear")),
    "liger_cross_entropy": ("loss", when("fused")),
    "liger_rms_norm": ("options.norm", when("fused")),
    "liger_layer_norm": ("options.norm", when("fused")),
    "liger_rope": ("options.rope", when("fused")),
    "liger_glu_activation": ("options.glu", when("fused")),
    "liger_swiglu": ("options.glu", when("fused")),
    "liger_use_liger_kernel": fused_kernels,
    "torch_compile": ("compile", flag),
    "deepspeed": ("file.deepspeed", lambda value: value),
    "fsdp": sharding,
    "fsdp_version": ("fsdp", whole),
    **fsdp_rules("fsdp_config."),
    "dp_shard_size": ("parallel.shard", whole),
    "dp_replicate_size": ("parallel.replicate", whole),
    "tensor_parallel_size": ("parallel.tp", whole),
    "context_parallel_size": ("parallel.cp", whole),
    "sequence_parallel_degree": ("parallel.cp", whole),
    "expert_parallel_size": ("parallel.ep", whole),
    "rl": ("options.task", text),
    "unfrozen_parameters": _unfrozen,
    "eval_batch_size": ("eval.batch", whole),
    "val_set_size": ("eval.share", number),
    "batch_size": ("global_batch", whole),
    "gptq": ("quant", when("gptq")),
}
IDLE = (
    "base_model_*", "model_type", "tokenizer*", "is_*", "trust_remote_code", "strict", "datasets", "test_datasets", "dataset*",
    "output_dir", "lora_alpha", "lora_fan_in_fan_out", "lora_model_dir", "wandb*", "mlflow*", "comet*", "use_wandb",
    "num_epochs", "lr_scheduler*", "learning_rate", "cosine*", "train_on_inputs", "group_by_length", "tf32",
    "early_stopping_patience", "resume_from_checkpoint", "auto_resume_from_checkpoints", "local_rank", "logging_steps",
    "warmup_*", "evals_per_epoch", "eval_*", "saves_per_epoch", "save_*", "debug", "weight_decay", "special_tokens*", "tokens",
    "push_to_hub", "dpo_beta", "rl_adapter_ref_model",
    "chat_template*", "seed", "max_steps", "max_grad_norm", "adam_*", "hub_*", "hf_use_auth_token", "push_dataset_to_hub",
    "shuffle_*", "excess_length_strategy", "remove_unused_columns", "sample_packing_*", "multipack_real_batches",
    "peft_use_rslora", "peft", "loraplus_*", "relora*", "gpu_memory_limit", "lora_on_cpu", "ddp*", "dataloader_*",
    "use_tensorboard", "noisy_embedding_alpha", "neftune_noise_alpha", "overrides_of_model_config*",
    "experimental_skip_move_to_device", "embeddings_skip_upcast", "profiler_steps", "trl.*", "device_map", "roles*", "lisa_*",
    "loss_watchdog_*", "torch_compile_backend", "torch_compile_mode", "ring_attn_func", "heads_k_stride", "env*",
    "gradient_checkpointing_kwargs", "streaming", "pretraining_dataset", "flash_attn_*", "fsdp_final_state_dict_type",
    "gc_steps", "skip_prepare_dataset", "liger_*", "llama4_linearized_experts", "use_ray", "curriculum_sampling",
    "revision_of_model", "fsdp_config", "deepspeed_config.gradient_clipping", "deepspeed_config.zero3_*",
    *fsdp_idle("fsdp_config."),
)  # fmt: skip


def finish(settings: Settings) -> None:
    """Axolotl's defaults: 512 tokens, one sequence."""
    settings.put("framework", "axolotl", "the keys of this file")
    settings.put("seq", 512, "axolotl: sequence_len 512")
    settings.put("micro_batch", 1, "axolotl: micro_batch_size 1")
    settings.put("compute_dtype", "bfloat16", "axolotl: bf16 auto on a card that has it")
    sharded(settings, version=1)
    if settings.get("method") == "lora" and settings.get("quant"):
        settings.replace("method", "qlora")
    if settings.get("targets.linear"):
        kept = settings.get("adapter.modules_to_save", ())  # trained whole
        named = [name for name in settings.get("adapter.targets", ()) if name in _ENDS and name not in kept]
        settings.replace("adapter.targets", ("all-linear", *named), settings.because["targets.linear"])
        settings.drop("targets.linear")
    adapters(settings)
    if settings.get("lengths.packed") is False and not settings.get("lengths.padded"):
        settings.put("options.lengths", "variable", settings.because["lengths.packed"])
