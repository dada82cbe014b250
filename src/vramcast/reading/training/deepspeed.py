"""DeepSpeed JSON: stage, offload, buckets, precision. ``auto`` is what the Trainer fills in, and stays open here.

Source: deepspeed 0.18.2, runtime/zero/config.py and offload_config.py (keys and defaults), runtime/config.py. Since
0.12.5 weights are gathered into where they lie (runtime/utils.py, all_gather_into_tensor_dp_groups), through no bucket.
"""

from typing import Any

from vramcast.reading.training.keys import Rule, dtype, flag, natural, whole
from vramcast.reading.training.settings import UNSET, Settings
from vramcast.training.frameworks.common import DEEPSPEED_BUCKET
from vramcast.training.recipe.parts import Sharding

NAME = "DeepSpeed JSON"
SIGNATURE = frozenset(
    {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "wall_clock_breakdown", "steps_per_print"}
)


def _stage(settings: Settings, value: Any, because: str) -> None:
    settings.put("zero.file", True, because)
    if value not in UNSET:
        settings.put("zero", int(value), because)


def _offload(part: str) -> Rule:
    def read(settings: Settings, value: Any, because: str) -> None:
        if str(value).lower() in ("cpu", "nvme"):
            settings.add("offload", part, because)

    return read


def _legacy(part: str) -> Rule:
    def read(settings: Settings, value: Any, because: str) -> None:
        if flag(value):
            settings.add("offload", part, because)

    return read


def _optimizer(settings: Settings, value: Any, because: str) -> None:
    name = str(value).lower()
    settings.put("optimizer", {"adam": "adamw", "fusedadam": "adamw", "deepspeedcpuadam": "adamw"}.get(name, name), because)


def _size(target: str) -> Rule:
    """A number of elements; "auto" stays open for what the Trainer fills in, where a key that is absent is the engine's own."""

    def read(settings: Settings, value: Any, because: str) -> None:
        settings.put(target, natural(value), because)
        if value == "auto":
            settings.leave_open(target)

    return read


def _type(name: str) -> Rule:
    """A type's own switch; "auto" stays open for what the Trainer fills in."""

    def read(settings: Settings, value: Any, because: str) -> None:
        if value == "auto":
            settings.leave_open("compute_dtype")
        elif flag(value):
            settings.put("compute_dtype", name, because)

    return read


def _autocast(part: str) -> Rule:
    """PyTorch's autocast, which the engine turns on around the forward; both its switch and its type decide."""

    def read(settings: Settings, value: Any, because: str) -> None:
        settings.put(f"autocast.{part}", flag(value) if part == "on" else dtype(value), because)
        if settings.get("autocast.on") and settings.get("autocast.dtype"):
            settings.put("compute_dtype", settings.get("autocast.dtype"), settings.because["autocast.dtype"])

    return read


RULES: dict[str, Rule] = {
    "zero_optimization.stage3_max_live_parameters": ("options.live_elements", natural),
    "zero_optimization.stage3_max_reuse_distance": ("options.reuse_elements", natural),
    "zero_optimization.stage3_prefetch_bucket_size": _size("fetch.ahead"),
    "zero_optimization.stage3_param_persistence_threshold": _size("fetch.persistent"),
    "zero_optimization.stage": _stage,
    "zero_optimization.offload_optimizer.device": _offload("optimizer"),
    "zero_optimization.offload_param.device": _offload("parameters"),
    "zero_optimization.cpu_offload": _legacy("optimizer"),
    "zero_optimization.reduce_bucket_size": _size("bucket.reduce"),
    "zero_optimization.overlap_comm": ("bucket.overlap", flag),
    "zero_optimization.sub_group_size": ("options.sub_group", whole),
    "zero_optimization.zero_hpz_partition_size": ("parallel.hpz", whole),
    "zero_optimization.zero_quantized_weights": ("options.quantized_gathers", flag),
    "zero_optimization.zero_quantized_gradients": ("options.quantized_gradients", flag),
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": ("options.saves", lambda v: "full" if flag(v) else None),
    "zero_optimization.mics_shard_size": ("parallel.shard", lambda v: None if v in UNSET or int(v) < 1 else int(v)),
    "bf16.enabled": _type("bfloat16"),
    "bfloat16.enabled": _type("bfloat16"),
    "fp16.enabled": _type("float16"),
    "torch_autocast.enabled": _autocast("on"),
    "torch_autocast.dtype": _autocast("dtype"),
    "data_types.grad_accum_dtype": ("grad_dtype", dtype),
    "train_micro_batch_size_per_gpu": ("micro_batch", whole),
    "gradient_accumulation_steps": ("accumulate", whole),
    "train_batch_size": ("global_batch", whole),
    "optimizer.type": _optimizer,
    "activation_checkpointing.cpu_checkpointing": _legacy("activations"),
}
IDLE = (
    "zero_optimization.allgather_bucket_size", "zero_optimization.contiguous_gradients",
    "zero_optimization.reduce_scatter", "zero_optimization.allgather_partitions",
    "zero_optimization.round_robin_gradients", "zero_optimization.ignore_unused_parameters",
    "zero_optimization.elastic_checkpoint",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save", "zero_optimization.load_from_fp32_weights",
    "zero_optimization.memory_efficient_linear", "zero_optimization.log_trace_cache*", "zero_optimization.offload_optimizer.*",
    "zero_optimization.offload_param.*", "zero_optimization.use_multi_rank_bucket*", "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer", "gradient_clipping", "steps_per_print", "wall_clock_breakdown", "optimizer.params*",
    "scheduler*", "fp16.*", "bf16.*", "amp*", "flops_profiler*", "comms_logger*", "tensorboard*", "wandb*",
    "prescale_gradients", "gradient_predivide_factor", "dump_state", "checkpoint*", "aio*", "communication_data_type",
    "activation_checkpointing.*", "seed", "csv_monitor*", "monitor_config*", "autotuning*", "curriculum_learning*",
    "torch_autocast.lower_precision_safe_modules",
    "zero_optimization.override_module_apply", "zero_optimization.param_persistence*", "zero_optimization.legacy_stage1",
    "train_batch_size_per_gpu", "disable_allgather", "sparse_gradients", "zero_optimization.module_granularity_threshold",
)  # fmt: skip


def parameters_stay(settings: Settings) -> None:
    """Below stage 3 ``offload_param`` moves nothing (DeepSpeed 0.19, runtime/zero/config.py: valid only with stage 3)."""
    held, stage = settings.get("offload") or [], settings.get("zero")
    if "parameters" not in held or stage is None or stage >= 3 or settings.get("fsdp"):
        return
    kept = [part for part in held if part != "parameters"]
    settings.unread.append(f"offload_param (read at stage 3 alone, and this is stage {stage}: parameters stay on the card)")
    settings.drop("offload")
    if kept:
        settings.put("offload", kept, settings.because["offload"])


def _without_stage(settings: Settings) -> None:
    """Megatron's layers under DeepSpeed without ZeRO, whose rules begin at stage 1."""
    if max(settings.get(f"parallel.{name}") or 1 for name in ("tp", "pp")) == 1:
        settings.replace("framework", "deepspeed", "no stage of ZeRO, and no model parallelism: DeepSpeed's own engine")
    else:
        settings.replace("zero", 1, "stage 0 where the rules begin at stage 1: the same on one data-parallel rank")


def finish(settings: Settings) -> None:
    """A key that is absent is the engine's own: buckets, how far stage 3 fetches ahead, and overlap at stage 3 alone."""
    stage = settings.get("zero", 0)
    if settings.get("autocast.on"):  # runtime/engine.py: the forward runs in autocast, the weights stay as they were made
        settings.default("param_dtype", "float32", f"{settings.because['autocast.on']}: the weights are not cast")
        settings.unread += [] if settings.get("autocast.dtype") else ["torch_autocast.enabled (its dtype is not said)"]
    settings.drop("autocast.on", "autocast.dtype")
    settings.put("framework", "deepspeed", "a DeepSpeed configuration by itself")
    if settings.get("framework") == "megatron_deepspeed" and not stage:
        _without_stage(settings)
    own_sizes = "train_micro_batch_size_per_gpu" in settings.because.get("micro_batch", "")
    if own_sizes and settings.get("framework") == "deepspeed" and settings.get("param_dtype") is None:
        settings.default("compute_dtype", "float32", "DeepSpeed's own: neither bf16 nor fp16 is on in the file")
    if not stage:
        return
    own, absent = Sharding(), "DeepSpeed's own, zero/config.py: the file has no such key"
    sizes = {"bucket.reduce": ("reduce_bucket", DEEPSPEED_BUCKET)}
    if stage == 3:
        sizes["fetch.ahead"] = ("prefetch_elements", own.prefetch_elements)
        sizes["fetch.persistent"] = ("persistent_elements", own.persistent_elements)
    for target, (option, size) in sizes.items():
        settings.default(target, size, absent)
        settings.put(f"options.{option}", settings.get(target), settings.because.get(target, ""))
    overlaps = settings.get("bucket.overlap", stage == 3)
    settings.put("options.overlaps", overlaps, settings.because.get("bucket.overlap", "overlap_comm: at stage 3 alone"))
