"""LLaMA-Factory YAML or JSON. Keys and defaults: llamafactory 0.9.5, src/llamafactory/hparams (model, data, finetuning args)."""

from typing import Any

from vramcast.reading.training.huggingface import TRAINER, TRAINER_IDLE, attention, fused_kernels, pixels, sharded
from vramcast.reading.training.keys import Rule, flag, names, number, one_of, text, when, whole
from vramcast.reading.training.objectives import evaluation
from vramcast.reading.training.settings import UNSET, Settings

NAME = "LLaMA-Factory YAML"
SIGNATURE = frozenset(
    {"finetuning_type", "cutoff_len", "stage", "template", "lora_target", "dataset_dir", "quantization_bit", "flash_attn"}
)
_STAGES = {"pt": "pretrain", "sft": "sft", "rm": "reward"}


def _checkpointing(settings: Settings, value: Any, because: str) -> None:
    settings.put("checkpointing", "none" if flag(value) else "full", because)


def _bits(settings: Settings, value: Any, because: str) -> None:
    if value not in UNSET:
        settings.put("quant", {4: "nf4", 8: "int8"}.get(int(value), f"{value}bit"), because)


def _optimizer(name: str) -> Rule:
    def read(settings: Settings, value: Any, because: str) -> None:
        if flag(value):
            settings.put("optimizer", name, because)

    return read


def _rank(settings: Settings, value: Any, because: str) -> None:
    settings.put("options.optimizer_rank", whole(value), because)


def _badam(settings: Settings, value: Any, because: str) -> None:
    if flag(value):  # beside finetuning_type full, which it needs (llamafactory/hparams/finetuning_args.py)
        settings.replace("method", "badam", because)


RULES: dict[str, Rule] = TRAINER | {
    "stage": ("options.task", one_of(_STAGES)),
    "finetuning_type": ("method", text),
    "pref_loss": ("ref.loss", text),
    "lora_rank": ("adapter.rank", whole),
    "lora_dropout": ("adapter.dropout", number),
    "lora_target": ("adapter.targets", names),
    "additional_target": ("adapter.modules_to_save", names),
    "use_dora": ("adapter.dora", flag),
    "cutoff_len": ("seq", whole),
    "packing": ("lengths.packed", flag),
    "neat_packing": ("lengths.packed", when(True)),
    "quantization_bit": _bits,
    "double_quantization": ("options.double_quant", flag),
    "quantization_type": ("quant.kind", text),
    "pure_bf16": ("param_dtype", when("bfloat16")),
    "disable_gradient_checkpointing": _checkpointing,
    "use_reentrant_gc": ("options.reentrant", flag),
    "use_unsloth_gc": ("checkpointing", when("offloaded")),
    "use_unsloth": ("framework", when("unsloth")),
    "enable_liger_kernel": fused_kernels,
    "flash_attn": attention,
    "freeze_trainable_layers": ("options.trainable_layers", whole),
    **dict.fromkeys(("image_max_pixels", "video_max_pixels", "image_resolution", "video_resolution", "video_maxlen"), pixels),
    "freeze_vision_tower": ("options.freezes_towers", flag),
    "use_galore": _optimizer("galore_adamw"),
    "galore_rank": _rank,
    "galore_layerwise": ("optimizer", when("galore_adamw_layerwise")),
    "use_apollo": _optimizer("apollo_adamw"),
    "apollo_rank": _rank,
    "use_badam": _badam,
    "use_muon": _optimizer("muon"),
    "use_adam_mini": _optimizer("adam_mini"),
    "oft_block_size": ("adapter.sizes.oft_block_size", whole),
    "oft_target": ("adapter.targets", names),
    "deepspeed": ("file.deepspeed", lambda value: value),
    "vllm_gpu_util": ("engine.share", number),
    "infer_dtype": ("infer_dtype", text),
    "ref_model": ("ref.model", text),
    "ref_model_quantization_bit": ("ref.bits", whole),
    "ray_num_workers": ("gpus", whole),
}
IDLE = (
    *TRAINER_IDLE, "model_type", "template", "dataset*", "eval_dataset", "overwrite_cache", "plot_loss", "val_size", "lora_alpha",
    "loraplus_*", "use_rslora", "pissa_*", "create_new_adapter", "adapter_name_or_path", "adapter_folder", "train_on_prompt",
    "mask_history", "cache_dir", "use_fast_tokenizer", "resize_vocab", "split_special_tokens", "rope_scaling", "shift_attn",
    "freeze_multi_modal_projector", "freeze_language_model", "freeze_trainable_modules",
    "freeze_extra_modules", "galore_*", "apollo_*", "badam_*", "pref_*", "dpo_label_smoothing", "kto_*", "simpo_gamma",
    "ppo_*", "image_*", "video_*", "audio_*", "quantization_method", "quantization_device_map", "upcast_layernorm",
    "upcast_lmhead_output", "moe_aux_loss_coef", "infer_backend", "vllm_*", "sglang_*", "media_dir", "mix_strategy",
    "interleave_probs", "tokenized_path", "ref_model_adapters", "reward_model*", "export_*", "add_tokens", "add_special_tokens",
    "low_cpu_mem_usage", "max_new_tokens", "predict_with_generate", "compute_accuracy", "oft_*",
    "include_num_input_tokens_seen", "ignore_pad_token_for_loss", "use_kv_cache", "offload_folder", "early_stopping_steps",
    "tool_format", "enable_thinking", "llamaboard", "use_swanlab", "swanlab_*", "ray_*", "resources_per_worker",
    "placement_strategy", "print_param_status",
)  # fmt: skip


def finish(settings: Settings) -> None:
    """LoRA on every linear layer at 2,048 tokens and rank 8, unless said otherwise."""
    settings.put("framework", "llama_factory", "the keys of this file")
    settings.put("method", "lora", "LLaMA-Factory: finetuning_type lora")
    settings.put("seq", 2048, "LLaMA-Factory: cutoff_len 2048")
    settings.put("micro_batch", 8, "TrainingArguments: per_device_train_batch_size 8")
    if settings.get("method") in ("lora", "oft"):
        settings.put("adapter.rank", 8, "LLaMA-Factory: lora_rank 8")
        settings.put("adapter.targets", ("all",), "LLaMA-Factory: lora_target all")
        _quantised(settings)
    else:
        settings.drop(*[name for name in settings.values if name.startswith("adapter.")])
    if settings.get("optimizer", "").startswith(("galore", "apollo")):
        settings.put("options.optimizer_rank", 16, "LLaMA-Factory: galore_rank, apollo_rank 16")
    if settings.get("lengths.packed") is not True and settings.get("options.task", "sft") != "pretrain":
        settings.put("options.lengths", "variable", "LLaMA-Factory: batches are padded to their longest sample")
    _reference(settings)
    sharded(settings, version=1)
    evaluation(settings)


def _reference(settings: Settings) -> None:
    """A reference that is named is loaded by itself, also beside adapters (LLaMA-Factory 0.9.5, train/trainer_utils.py)."""
    if settings.get("options.task") == "dpo" and settings.get("ref.loss") in ("orpo", "simpo"):  # finetuning_args: use_ref_model
        settings.replace("options.task", "orpo", settings.because["ref.loss"])
    named, bits = settings.get("ref.model"), settings.get("ref.bits")
    if named and settings.get("options.task") in ("dpo", "kto"):
        if bits or named != settings.get("model"):
            how = f"in {bits} bits" if bits else "another model"
            settings.unread.append(f"ref_model (a frozen reference, {how}, beside the trained model)")
        else:
            settings.put("options.frozen_copies", 1, settings.because["ref.model"])
    settings.drop("ref.model", "ref.bits", "ref.loss")


def _quantised(settings: Settings) -> None:
    if settings.get("quant") == "nf4" and settings.get("quant.kind"):
        settings.replace("quant", settings.get("quant.kind"))
    if settings.get("quant") and settings.get("method") == "lora":
        settings.replace("method", "qlora")
