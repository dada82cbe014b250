"""ms-swift arguments (YAML, JSON or flags).

Keys and defaults: ms-swift 4.6.0, swift/arguments and swift/trainers/arguments.py.
"""

from typing import Any

from vramcast.reading.training.huggingface import TRAINER, TRAINER_IDLE, attention, fused_kernels, pixels, sharded
from vramcast.reading.training.keys import Rule, dtype, flag, names, number, one_of, text, when, whole
from vramcast.reading.training.objectives import evaluation
from vramcast.reading.training.settings import UNSET, Settings

NAME = "ms-swift arguments"
SIGNATURE = frozenset({"train_type", "tuner_type", "sft_type", "model_type", "target_modules", "attn_impl"})
_TASKS = {"dpo": "dpo", "kto": "kto", "orpo": "orpo", "rm": "reward", "ppo": "ppo", "grpo": "grpo"}


def _bits(settings: Settings, value: Any, because: str) -> None:
    if value not in UNSET and str(value) != "0":
        settings.put("quant", {"4": "nf4", "8": "int8"}.get(str(value), f"{value}bit"), because)


def _zero(settings: Settings, value: Any, because: str) -> None:
    """A stage by its short name (zero2, zero3_offload), or a file."""
    word = str(value)
    if not word.startswith("zero"):
        settings.put("file.deepspeed", value, because)
        return
    settings.put("zero", int(word[4]), because)
    if word.endswith("offload"):
        settings.add("offload", "optimizer", because)


RULES: dict[str, Rule] = TRAINER | {
    "model": ("model", text),
    "model_id_or_path": ("model", text),
    "train_type": ("method", text),
    "tuner_type": ("method", text),
    "sft_type": ("method", text),
    "rlhf_type": ("options.task", one_of(_TASKS)),
    "torch_dtype": ("compute_dtype", dtype),
    "dtype": ("compute_dtype", one_of({"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "auto": None})),
    "max_length": ("seq", whole),
    "max_completion_length": ("lengths.completion", whole),
    "batch_size": ("micro_batch", whole),
    "max_pixels": pixels,
    "freeze_vit": ("options.freezes_towers", flag),
    "lora_rank": ("adapter.rank", whole),
    "lora_dropout": ("adapter.dropout", number),
    "target_modules": ("adapter.targets", names),
    "lora_target_modules": ("adapter.targets", names),
    "target_parameters": ("adapter.parameters", names),
    "modules_to_save": ("adapter.modules_to_save", names),
    "use_dora": ("adapter.dora", flag),
    "quant_bits": _bits,
    "quantization_bit": _bits,
    "bnb_4bit_quant_type": ("quant.kind", text),
    "bnb_4bit_use_double_quant": ("options.double_quant", flag),
    "attn_impl": attention,
    "use_flash_attn": ("attention", when("flash", "eager")),
    "packing": ("lengths.packed", flag),
    "padding_free": ("lengths.packed", when(True)),
    "use_liger_kernel": fused_kernels,
    "deepspeed": _zero,
    "sequence_parallel_size": ("parallel.cp", whole),
    "use_galore": ("optimizer", when("galore_adamw")),
    "galore_rank": ("options.optimizer_rank", whole),
    "vllm_gpu_memory_utilization": ("engine.share", number),
    "vllm_mode": ("engine.mode", text),
    "use_vllm": ("engine.on", flag),
}
IDLE = (
    "load_from_cache_file", "max_new_tokens", "stream",
    *TRAINER_IDLE, "lora_alpha", "lora_bias", "lora_dtype", "freeze_*", "trainable_parameters*", "system", "model_type",
    "template", "num_labels", "model_name", "model_author", "custom_*", "val_dataset", "split_dataset_ratio",
    "dataset_num_proc", "quant_method", "strict", "tuner_backend", "use_hf", "check_model", "lazy_tokenize",
    "truncation_strategy", "galore_*", "add_version", "create_checkpoint_symlink", "ignore_args_error", "beta", "rpo_alpha",
    "sleep_level", "offload_*", "num_infer_workers", "external_plugins", "reward_funcs", "loss_scale",
    "acc_strategy", "init_weights", "merge_lora", "num_generations", "response_length", "per_device_generation_batch_size",
    "attn_impl_*", "save_only_model", "metric", "interleave_prob",
)  # fmt: skip


def finish(settings: Settings) -> None:
    """LoRA of rank 8 on every linear layer, one sequence."""
    settings.put("framework", "ms_swift", "the keys of this file")
    settings.put("method", "lora", "ms-swift: tuner_type lora")
    settings.put("micro_batch", 1, "ms-swift: per_device_train_batch_size 1")
    settings.put("seq", 2048, "max_length is the model's when none is given; 2,048 is taken")
    if settings.get("method") == "lora":
        settings.put("adapter.rank", 8, "ms-swift: lora_rank 8")
        settings.put("adapter.targets", ("all-linear",), "ms-swift: target_modules all-linear")
        if settings.get("quant"):
            settings.replace("method", "qlora")
            settings.replace("quant", settings.get("quant.kind") or settings.get("quant"))
    if settings.get("options.task") == "grpo":
        prompt, completion = settings.get("seq"), settings.get("lengths.completion", 512)
        settings.replace("seq", prompt + completion, "max_length for the prompt and max_completion_length")
        settings.put("options.scored", completion / (prompt + completion), "GRPO: logits of the completion only")
    if settings.get("engine.on") and settings.get("engine.mode", "colocate") == "colocate":
        settings.put("options.tenant", settings.get("engine.share", 0.9), "vLLM on the same card")
    sharded(settings, version=1)
    evaluation(settings)
