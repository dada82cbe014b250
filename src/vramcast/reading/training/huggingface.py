"""HF TrainingArguments as YAML, JSON or flags, and what TRL's scripts add: trainer, PEFT, quantisation and model arguments.

Sources: transformers 5.23, training_args.py (defaults, aliases); trl 1.16.0, trainer/{sft,dpo,grpo,kto}_config.py and
model_config.py; accelerate's FSDP plugin for the names inside ``fsdp_config``.
"""

import re
from typing import Any

from vramcast.hardware.accelerator import NODE_CARDS
from vramcast.reading.training.example_scripts import (
    answers,
    finds_batch,
    frozen,
    modules_named,
    peft,
    targets,
    task,
    train_mode,
    tune_type,
    tuned,
)
from vramcast.reading.training.keys import Rule, dtype, flag, names, natural, number, one_of, text, when, whole
from vramcast.reading.training.objectives import evaluation, lengths, loss_type, objective, preference, run_named
from vramcast.reading.training.peft_config import TYPES as PEFT_TYPES
from vramcast.reading.training.peft_config import UNSLOTH_TARGETS, default_targets
from vramcast.reading.training.pins import settle_release
from vramcast.reading.training.settings import UNSET, Settings
from vramcast.training.adapters.kinds import KINDS

NAME = "Hugging Face TrainingArguments"
# The last two lines are TRL's own: its trainers' configurations and ModelConfig.
SIGNATURE = frozenset(
    {"per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "output_dir", "model_name_or_path"}
    | {"use_peft", "lora_target_modules", "dataset_name", "max_length", "max_prompt_length", "max_completion_length"}
    | {"num_generations", "use_vllm", "vllm_mode", "beta", "loss_type"}
)
# transformers 5.23, modeling_utils.py and integrations/hub_kernels.py: names of its own, and kernels by their repository's name
_ATTENTION = {
    "fa2": "flash", "fa3": "flash", "fa4": "flash", "sdpa": "flash", "flex_attention": "flash", "flex": "flash",
    "disabled": "eager", "off": "eager",
    "xformers": "efficient", "flash": "flash", "eager": "eager", "math": "math", "unfused": "unfused",
    "efficient": "efficient", "cudnn": "cudnn",
}  # fmt: skip
_FLASH = re.compile(r"flash[-_]?att(?:entio)?n", re.I)


def attention(settings: Settings, value: Any, because: str) -> None:
    """An implementation by its name in transformers or by a kernel's repository; a word of nobody's is told as unread."""
    word, switch = str(value).lower().replace("paged|", ""), flag(value)
    found = "flash" if _FLASH.search(word) or switch else "eager" if switch is False else _ATTENTION.get(word)
    if found is None and value not in UNSET:
        settings.unread.append(f"{because.rsplit(': ', 1)[-1]} (an implementation that is not known here)")
    settings.put("attention", found, because)


OPTIMIZER_ARGS = {"rank": "options.optimizer_rank"}


def precision(word: str) -> Rule:
    """bf16, fp16: the type of the matmuls, when the switch is on; that it was turned off stands against defaults."""

    def read(settings: Settings, value: Any, because: str) -> None:
        if flag(value):
            settings.put("compute_dtype", word, because)
        elif flag(value) is False:
            settings.put(f"off.{word}", True, because)

    return read


def checkpointing(settings: Settings, value: Any, because: str) -> None:
    """On, off, or offloaded to the host; ``unsloth`` is a word of that loader's alone (unsloth, models/_utils.py)."""
    if str(value).lower() == "unsloth":
        settings.replace("checkpointing", "offloaded", because)
        settings.put("framework", "unsloth", because)
    elif str(value).startswith(("offload", "unsloth")):
        settings.put("checkpointing", "offloaded", because)
    elif flag(value) is not None:
        settings.put("checkpointing", "full" if flag(value) else "none", because)


def four_bit(settings: Settings, value: Any, because: str) -> None:
    """A 4-bit base under adapters."""
    if flag(value):
        settings.put("quant", "nf4", because)


def eight_bit(settings: Settings, value: Any, because: str) -> None:
    """An LLM.int8 base under adapters."""
    if flag(value):
        settings.put("quant", "int8", because)


def fused_kernels(settings: Settings, value: Any, because: str) -> None:
    """Liger's patches: norm, rope and SwiGLU in one kernel each, head and loss in one function."""
    if flag(value):
        settings.put("loss", "linear", because)
        for part in ("norm", "rope", "glu"):
            settings.put(f"options.{part}", "fused", because)


def optimizer_args(settings: Settings, value: Any, because: str) -> None:
    """``rank=64,scale=2``: the rank of a projecting optimizer."""
    pairs = dict(pair.split("=", 1) for pair in str(value).replace(" ", "").split(",") if "=" in pair)
    for name, target in OPTIMIZER_ARGS.items():
        if name in pairs:
            settings.put(target, int(pairs[name]), because)


def sharding(settings: Settings, value: Any, because: str) -> None:
    """``full_shard auto_wrap offload``: FSDP by its words."""
    words = " ".join(value) if isinstance(value, list) else str(value)
    if not words or words in ("False", "false", "[]"):
        return
    settings.put("fsdp.on", True, because)
    if "shard_grad_op" in words or "hybrid_shard_zero2" in words:
        settings.put("options.reshard", False, because)
    if "hybrid_shard" in words:  # shards over the cards of a node (torch 2.13, fsdp/_init_utils.py)
        settings.put("parallel.shard", NODE_CARDS, f"{because}: shards in a node of {NODE_CARDS} cards")
    if "offload" in words.split():
        settings.add("offload", "parameters", because)


def model_called(settings: Settings, value: Any, because: str) -> None:
    """A model's id or path; a bare word may be the program's own name for its run, so that any other key stands before it."""
    word = str(value)
    told = "/" in word or re.search(r"\d+(?:\.\d+)?[bm]\b", word.lower())
    settings.put("model" if told else "model.called", None if value in UNSET else word, because)


def state_dict(settings: Settings, value: Any, because: str) -> None:
    """How FSDP writes a checkpoint: whole on rank 0, or each rank its shard."""
    word = str(value).upper()
    settings.put("options.saves", "full" if word.startswith("FULL") else "sharded", because)


def strategy(settings: Settings, value: Any, because: str) -> None:
    """FSDP1's sharding strategy, by name or number."""
    word = str(value).upper()
    if word in ("SHARD_GRAD_OP", "2", "_HYBRID_SHARD_ZERO2", "HYBRID_SHARD_ZERO2", "5"):
        settings.put("options.reshard", False, because)
    if "HYBRID" in word or word in ("4", "5"):
        settings.put("parallel.shard", NODE_CARDS, f"{because}: shards in a node of {NODE_CARDS} cards")
    elif word in ("NO_SHARD", "3"):
        settings.put("options.sharding", "ddp", because)


def offloads(part: str) -> Rule:
    """A switch that keeps something in host memory."""

    def read(settings: Settings, value: Any, because: str) -> None:
        if flag(value):
            settings.add("offload", part, because)

    return read


def fsdp_rules(prefix: str) -> dict[str, Rule]:
    """Keys of an FSDP section; every one is written with and without ``fsdp_`` in front."""
    plain: dict[str, Rule] = {
        "version": ("fsdp", whole),
        "reshard_after_forward": ("options.reshard", flag),
        "offload_params": offloads("parameters"),
        "cpu_offload": offloads("parameters"),
        "activation_checkpointing": checkpointing,
        "sharding_strategy": strategy,
        "state_dict_type": state_dict,
    }
    return {f"{prefix}{mark}{name}": rule for name, rule in plain.items() for mark in ("", "fsdp_")}


def fsdp_idle(prefix: str) -> tuple[str, ...]:
    """Keys of an FSDP section that decide how a run loads, wraps or saves, not what it holds."""
    plain = (
        "auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params", "backward_prefetch", "backward_prefetch_policy",
        "forward_prefetch", "limit_all_gathers", "use_orig_params", "sync_module_states", "cpu_ram_efficient_loading",
        "xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt", "final_state_dict_type",
    )  # fmt: skip
    return tuple(f"{prefix}{mark}{name}" for name in plain for mark in ("", "fsdp_"))


def pixels(settings: Settings, value: Any, because: str) -> None:
    """How large an image may be: told, for the patches of images are counted where ``--images`` asks for them."""
    if value not in UNSET:
        settings.unread.append(f"{because.rsplit(': ', 1)[-1]} (the size of images: text alone is counted, add --images N)")


def bits(settings: Settings, value: Any, because: str) -> None:
    """A base of 4 or 8 bits under adapters; 16 is none."""
    if str(value) in ("4", "8"):
        settings.put("quant", {"4": "nf4", "8": "int8"}[str(value)], because)


TOWERS_FROZEN = (
    "freeze_vision_tower", "freeze_vision_encoder", "freeze_vision_backbone", "freeze_vit", "freeze_vision_model",
    "freeze_vision_modules", "freeze_image_encoder",
)  # fmt: skip
TRAINER: dict[str, Rule] = {
    "per_device_train_batch_size": ("micro_batch", whole),
    "gradient_accumulation_steps": ("accumulate", whole),
    "gradient_checkpointing": checkpointing,
    "activation_checkpointing": checkpointing,
    "gradient_checkpointing_kwargs.use_reentrant": ("options.reentrant", flag),
    "activation_checkpointing_kwargs.use_reentrant": ("options.reentrant", flag),
    "bf16": precision("bfloat16"),
    "fp16": precision("float16"),
    "optim": ("optimizer", text),
    "optim_args": optimizer_args,
    "auto_find_batch_size": finds_batch,
    "use_liger_kernel": fused_kernels,
    "fsdp": sharding,
    **fsdp_rules("fsdp_config."),
    "torch_compile": ("compile", flag),
    "per_device_eval_batch_size": ("eval.batch", whole),
    "eval_accumulation_steps": ("eval.accumulation", whole),
    "eval_strategy": ("eval.strategy", text),
    "evaluation_strategy": ("eval.strategy", text),
    "do_eval": ("eval.strategy", when("steps")),
    "deepspeed": ("file.deepspeed", lambda value: value),
    "model_name_or_path": ("model", text),
    "attn_implementation": attention,
}
TRL: dict[str, Rule] = {
    "torch_dtype": ("param_dtype", dtype),
    "dtype": ("param_dtype", dtype),
    "model_init_kwargs.torch_dtype": ("param_dtype", dtype),
    "model_init_kwargs.dtype": ("param_dtype", dtype),
    "model_init_kwargs.attn_implementation": attention,
    "load_in_4bit": four_bit,
    "load_in_8bit": eight_bit,
    "bnb_4bit_quant_type": ("quant.kind", text),
    "use_bnb_nested_quant": ("options.double_quant", flag),
    "use_peft": peft,
    "lora_r": ("adapter.rank", whole),
    "lora_dropout": ("adapter.dropout", number),
    "lora_target_modules": ("adapter.targets", targets),
    "lora_target_parameters": ("adapter.parameters", names),
    "lora_modules_to_save": ("adapter.modules_to_save", names),
    "use_dora": ("adapter.dora", flag),
    "max_length": ("seq", whole),
    "max_seq_length": ("seq", whole),
    "packing": ("lengths.packed", flag),
    "padding_free": ("lengths.packed", flag),
    "activation_offloading": offloads("activations"),
    "loss_type": loss_type,
    **dict.fromkeys(("hub_model_id", "output_dir", "run_name", "exp_name", "experiment_name"), run_named),
    "use_liger": fused_kernels,
    "use_liger_loss": ("loss", when("linear")),
    "max_prompt_length": ("lengths.prompt", whole),
    "max_completion_length": ("lengths.completion", whole),
    "num_generations": answers,
    "max_response_length": ("lengths.completion", whole),
    "beta": ("preference.beta", number),
    "precompute_ref_log_probs": ("options.frozen_copies", when(0)),
    "use_vllm": ("engine.on", flag),
    "vllm_mode": ("engine.mode", text),
    "vllm_device": ("engine.mode", lambda value: "a card of its own" if value else None),  # TRL 0.14 to 0.17: the next one
    "vllm_gpu_memory_utilization": ("engine.share", number),
    "vllm_tensor_parallel_size": ("engine.tp", whole),
    "vllm_enable_sleep_mode": ("engine.sleeps", flag),
    "task": task,
    # what the example scripts of PEFT, FastChat, Qwen, InternVL, MedicalGPT, Firefly and DeepSpeed-Chat call the same
    "lora_rank": ("adapter.rank", natural),
    "lora_dim": ("adapter.rank", natural),
    "lora_module_name": modules_named,
    "trainable": ("adapter.targets", names),  # Chinese-LLaMA-Alpaca
    "modules_to_save": ("adapter.modules_to_save", names),
    "load_in_kbits": bits,
    "load_in_bits": bits,
    "lora_enable": ("adapter.on", flag),  # LLaVA
    "model_max_len": ("seq", whole),
    "use_llm_lora": ("adapter.rank", natural),
    "lora_modules": ("adapter.targets", targets),
    "target_modules": ("adapter.targets", targets),
    "train_mode": train_mode,
    "tune_type_llm": tune_type,
    "tune_type_vision_tower": ("options.freezes_towers", lambda value: str(value) == "frozen"),
    "freeze_llm": frozen,
    "tune_mm_llm": tuned,
    "tune_mm_mlp_adapter": frozen,
    "tune_mm_vision": ("options.freezes_towers", when(False, True)),
    "unfreeze_mm_vision_tower": ("options.freezes_towers", when(False, True)),
    **dict.fromkeys(TOWERS_FROZEN, ("options.freezes_towers", flag)),
    **dict.fromkeys(("image_max_pixels", "video_max_pixels", "max_pixels", "image_resolution", "video_fps"), pixels),
    "grad_checkpoint": checkpointing,
    "zero_stage": ("zero", natural),
    "precision": ("compute_dtype", one_of({"fp16": "float16", "bf16": "bfloat16", "fp32": None})),
    "use_flash_attn": ("attention", when("flash", "eager")),
    "use_peft_lora": ("adapter.on", flag),
    "use_lora": ("adapter.on", flag),
    "use_4bit_quantization": four_bit,
    "use_8bit_quantization": eight_bit,
    "q_lora": four_bit,
    "use_nested_quant": ("options.double_quant", flag),
    "use_reentrant": ("options.reentrant", flag),
    "model_max_length": ("seq", whole),
    "max_seq_len": ("seq", whole),
    "block_size": ("seq", whole),
    "model_name": model_called,
    "pretrained_model_name": ("model", text),
    "base_model": ("model", text),
}
RULES = TRAINER | TRL
IDLE = (
    "overwrite_output_dir", "do_train", "do_predict", "learning_rate", "weight_decay", "adam_*", "max_grad_norm",
    "num_train_epochs", "max_steps", "lr_scheduler*", "warmup_*", "log_*", "logging_*", "save_*", "eval_steps", "eval_delay",
    "eval_on_start", "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "seed", "data_seed", "report_to",
    "push_to_hub", "hub_*", "dataloader_*", "dataset*", "disable_tqdm", "remove_unused_columns", "label_names",
    "group_by_length", "length_column_name", "ddp_timeout", "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "tf32",
    "resume_from_checkpoint", "torch_empty_cache_steps", "neftune_noise_alpha", "include_*",
    "skip_memory_metrics", "full_determinism", "trust_remote_code", "model_revision", "lora_alpha", "lora_task_type",
    "use_rslora", "num_virtual_tokens", "preprocessing_num_workers", "streaming", "local_rank", "use_cpu", "no_cuda",
    "prediction_loss_only", "torch_compile_backend", "torch_compile_mode", "accelerator_config*", "packing_strategy",
    "eval_packing", "chat_template*", "eos_token", "pad_token", "truncation_mode", "completion_only_loss",
    "assistant_only_loss", "label_smoothing*", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "epsilon*",
    "reward_*", "num_iterations", "steps_per_generation", "generation_batch_size", "shuffle_dataset",
    "ds3_gather_for_generation", "vllm_*", "scale_rewards", "mask_truncated_completions", "wandb_*",
    "gradient_checkpointing_kwargs", "bf16_full_eval", "fp16_full_eval", "bnb_4bit_quant_storage*", "bnb_4bit_compute_dtype",
    "add_special_tokens", "append_concat_token", "splits", "use_vllm_*", "tokenizer_name*", "data_path", "train_file",
    "validation_file", "eval_data_path", "ignore_bias_buffers", "disable_dropout", "ref_model_*", "sync_ref_model",
    "desirable_weight", "undesirable_weight", "max_samples", "desc", "fsdp_min_num_params",
    "fsdp_transformer_layer_cls_to_wrap", "model_init_kwargs", "cache_dir", "token", "project", "trackio*",
    "load_from_cache_file", "num_completions_to_print", "max_tool_calling_iterations",
    "system_prompt", "with_tracking", "log_completions",
    *fsdp_idle("fsdp_config."),
)  # fmt: skip
TRAINER_IDLE = ("output_dir", "run_name", *IDLE)  # for those whose files tell the objective themselves


def finish(settings: Settings) -> None:
    """TrainingArguments' own defaults, and what several keys mean together."""
    settings.put("model", settings.get("model.called"), settings.because.get("model.called", ""))
    settings.drop("model.called")
    objective(settings)
    if settings.get("framework") == "pytorch":  # a program's own loop: no trainer's default stands behind it
        settle_release(settings)
        settings.drop("library.trl")
        adapters(settings)
        settings.drop("model.handed")
        lengths(settings)
        return
    framework = "trl" if _is_trl(settings) else "hf_trainer"
    settings.drop("library.trl")
    settings.put("framework", framework, "the keys of this file")
    settle_release(settings)
    settings.default("micro_batch", 8, "TrainingArguments: per_device_train_batch_size 8")
    handed = settings.get("model.handed")
    settings.drop("model.handed")
    if framework == "trl":
        by_name = settings.get("options.task") == "grpo"  # GRPOTrainer(model="org/name"), as its documentation writes it
        settings.put("options.given_loaded", True if handed and not by_name else None, str(handed))
        settings.default("seq", 1024, "TRL: max_length 1024")
        if settings.get("options.autocast") is not False:
            off = settings.get("off.bfloat16") and settings.get("framework") == "trl"  # Unsloth follows the model's own type
            because = settings.because["off.bfloat16"] if off else "TRL: bf16 unless fp16"
            settings.put("compute_dtype", "float32" if off else "bfloat16", because)
    sharded(settings, version=2)
    adapters(settings, rank=16 if framework == "trl" else 8)
    evaluation(settings)
    preference(settings)
    lengths(settings)


def sharded(settings: Settings, *, version: int) -> None:
    """The version of FSDP that a framework runs where none is stated."""
    if settings.get("fsdp.on"):
        settings.put("fsdp", version, settings.because["fsdp.on"])


def _is_trl(settings: Settings) -> bool:
    own = ("lengths.packed", "lengths.completion", "preference.beta", "options.task", "library.trl", "engine.on")
    data = "dataset_name" in settings.idle and not settings.own_program  # transformers' run_clm.py and its copies have it too
    return any(name in settings.values for name in own) or data


def adapters(settings: Settings, *, rank: int = 8) -> None:
    """The method from what was said of adapters and quantisation."""
    if settings.get("adapter.rank") == 0:  # how DeepSpeed-Chat, verl and EasyR1 say that every weight is trained
        settings.replace("adapter.on", False, settings.because["adapter.rank"])
    if settings.get("method") in {*KINDS, *PEFT_TYPES.values()} - {"lora", "qlora"}:  # a kind with sizes of its own
        settings.drop("adapter.on")
        if settings.get("method") in KINDS:
            settings.put("adapter.targets", *default_targets(settings.get("method")))
        return
    said = settings.values.keys() | settings.opened.keys()  # a rank that a variable holds is one
    on = settings.get("adapter.on", bool({"adapter.rank", "adapter.targets"} & said))
    kind = settings.get("quant.kind")
    if settings.get("quant") == "nf4" and kind:
        settings.replace("quant", kind)
    if not on:  # what the adapter would have been
        settings.drop(*(name for name in settings.values if name.startswith("adapter.") and name != "adapter.on"))
        return
    told, method = ("quant", "qlora") if settings.get("quant") is not None else ("adapter.rank", "lora")
    settings.put("method", method, settings.because.get(told, "PEFT"))
    if settings.get("framework") == "unsloth":
        settings.default("adapter.rank", 16, "unsloth: get_peft_model")
        settings.default("adapter.targets", UNSLOTH_TARGETS, "unsloth: get_peft_model")
    settings.default("adapter.rank", rank, "default rank")
    settings.default("adapter.targets", *default_targets("lora"))
