"""accelerate's YAML: how many processes, mixed precision, FSDP or DeepSpeed, and the axes of parallelism.

Source: accelerate 1.15, commands/config/config_args.py and utils/dataclasses.py (names), parallelism_config.py.
"""

from typing import Any

from vramcast.reading.training.huggingface import checkpointing, fsdp_idle, fsdp_rules
from vramcast.reading.training.keys import Rule, apply, flag, one_of, text, whole
from vramcast.reading.training.settings import UNSET, Settings
from vramcast.training.frameworks.common import DEEPSPEED_BUCKET
from vramcast.training.recipe.parts import Sharding

NAME = "accelerate YAML"
SIGNATURE = frozenset(
    {"compute_environment", "distributed_type", "num_processes", "mixed_precision"}
    | {"fsdp_config.fsdp_sharding_strategy", "fsdp_config.fsdp_auto_wrap_policy"}
)


def _device(part: str) -> Rule:
    def read(settings: Settings, value: Any, because: str) -> None:
        if str(value).lower() in ("cpu", "nvme"):
            settings.add("offload", part, because)

    return read


def _file(settings: Settings, value: Any, because: str) -> None:
    settings.put("file.deepspeed", text(value), because)
    settings.put("zero.file", text(value), because)


RULES: dict[str, Rule] = {
    "num_processes": ("gpus", whole),
    "mixed_precision": ("compute_dtype", one_of({"bf16": "bfloat16", "fp16": "float16", "fp8": "fp8", "no": "float32"})),
    "distributed_type": ("distributed", text),
    "gradient_accumulation_steps": ("accumulate", whole),
    **fsdp_rules("fsdp_config."),
    "deepspeed_config.zero_stage": ("zero", lambda v: None if v in UNSET else int(v)),
    "deepspeed_config.offload_optimizer_device": _device("optimizer"),
    "deepspeed_config.offload_param_device": _device("parameters"),
    "deepspeed_config.gradient_accumulation_steps": ("accumulate", whole),
    "deepspeed_config.deepspeed_config_file": _file,
    "parallelism_config.parallelism_config_dp_replicate_size": ("parallel.replicate", whole),
    "parallelism_config.parallelism_config_dp_shard_size": ("parallel.shard", whole),
    "parallelism_config.parallelism_config_tp_size": ("parallel.tp", whole),
    "parallelism_config.parallelism_config_cp_size": ("parallel.cp", whole),
    "parallelism_config.parallelism_config_sp_size": ("parallel.cp", whole),
    "dynamo_config.dynamo_backend": ("compile", lambda v: None if v in UNSET or str(v).upper() == "NO" else True),
    "dynamo_backend": ("compile", lambda v: None if v in UNSET or str(v).upper() == "NO" else True),  # as files of 2022 have it
    "megatron_lm_config.megatron_lm_tp_degree": ("parallel.tp", whole),
    "megatron_lm_config.megatron_lm_pp_degree": ("parallel.pp", whole),
    "megatron_lm_config.megatron_lm_sequence_parallelism": ("parallel.sp", flag),
    "megatron_lm_config.megatron_lm_recompute_activations": checkpointing,
}
IDLE = (
    "compute_environment", "debug", "downcast_bf16", "machine_rank", "main_process_ip", "main_process_port",
    "main_training_function", "num_machines", "rdzv_backend", "same_network", "tpu_*", "use_cpu", "gpu_ids",
    "enable_cpu_affinity", "dynamo_config.*", "deepspeed_config.zero3_init_flag", "deepspeed_config.zero3_save_16bit_model",
    "deepspeed_config.gradient_clipping", "deepspeed_config.deepspeed_*", "deepspeed_config.offload_*", "main_process_*",
    "fp8_config.*", "parallelism_config.*", "megatron_lm_config.megatron_lm_gradient_clipping",
    "megatron_lm_config.megatron_lm_num_micro_batches", "megatron_lm_config.megatron_lm_use_distributed_optimizer",
    "command_file", "commands", "fsdp_config", "deepspeed_config", "megatron_lm_config", "dynamo_config", "fp8_config",
    "fsdp_config.mixed_precision", "ipex_config*", "mpirun_config*", *fsdp_idle("fsdp_config."),
)  # fmt: skip


# Flags of accelerate launch, by the names that its own file has for them.
_FLAGS = {
    "zero_stage": "deepspeed_config.zero_stage", "offload_optimizer_device": "deepspeed_config.offload_optimizer_device",
    "offload_param_device": "deepspeed_config.offload_param_device", "mixed_precision": "mixed_precision",
}  # fmt: skip


def without_launcher(flags: dict[str, Any], settings: Settings, *, where: str) -> dict[str, Any]:
    """A command's flags less those of accelerate's launcher, which are read as its own file would be."""
    switches = {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "multi_gpu": "MULTI_GPU"}
    kind = next((kind for name, kind in switches.items() if flags.get(name)), None)
    if kind is None and not {"mixed_precision", "num_machines", "dynamo_backend"} & flags.keys():
        return flags
    said: dict[str, Any] = {"distributed_type": kind} if kind else {}
    said |= {_FLAGS[name]: value for name, value in flags.items() if name in _FLAGS}
    if any(str(flags.get(name, "")).lower() in ("true", "1") for name in ("bf16", "fp16")):
        said.pop("mixed_precision", None)  # the script's own stands: TrainingArguments sets ACCELERATE_MIXED_PRECISION again
    said |= {f"fsdp_config.{name}": value for name, value in flags.items() if name.startswith("fsdp_") and name != "fsdp_config"}
    apply(settings, said, RULES, IDLE, where=where)
    if kind == "DEEPSPEED":
        settings.put("zero", 2, f"{where}: use_deepspeed, zero_stage 2 where none is given")
    elif kind == "FSDP":
        settings.put("fsdp", 1, f"{where}: use_fsdp, version 1 where none is given")
    taken = {*switches, *_FLAGS}
    return {
        name: value for name, value in flags.items() if name not in taken and not (kind == "FSDP" and name.startswith("fsdp_"))
    }


def finish(settings: Settings) -> None:
    """The engine that ``distributed_type`` names; version 1 where an FSDP section states none."""
    kind = str(settings.get("distributed", "")).upper()
    because = settings.because.get("distributed", "accelerate")
    if kind == "FSDP":
        settings.put("fsdp", 1, "fsdp_version 1 where none is given")
    elif kind == "DEEPSPEED":
        settings.put("zero", 2, "accelerate: zero_stage 2")
        if not settings.get("zero.file"):
            _own_sizes(settings)
    elif kind == "MEGATRON_LM":
        settings.put("framework", "megatron", because)
    settings.put("framework", "accelerate", "an accelerate configuration by itself")


def _own_sizes(settings: Settings) -> None:
    """Without a DeepSpeed file the plugin writes one that names no sizes, so that the Trainer has no "auto" to fill in.

    Source: accelerate 1.15, utils/dataclasses.py, DeepSpeedPlugin.__post_init__; DeepSpeed 0.19.8, runtime/zero/config.py.
    """
    own, because = Sharding(), "DeepSpeed's own: accelerate's plugin names no sizes"
    settings.put("options.reduce_bucket", DEEPSPEED_BUCKET, because)
    if settings.get("zero") == 3:
        settings.put("options.prefetch_elements", own.prefetch_elements, because)
        settings.put("options.persistent_elements", own.persistent_elements, because)
    settings.put("options.overlaps", settings.get("zero") == 3, "overlap_comm: at stage 3 alone")
