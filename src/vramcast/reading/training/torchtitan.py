"""torchtitan TOML. Keys and defaults: torchtitan 0.2.2, config/job_config.py; -1 is what the world leaves."""

from typing import Any

from vramcast.reading.training.keys import Rule, dtype, flag, text, whole
from vramcast.reading.training.settings import Settings

NAME = "torchtitan TOML"
SIGNATURE = frozenset(
    {
        "training.local_batch_size",
        "training.batch_size",
        "parallelism.data_parallel_shard_degree",
        "model.flavor",
        "activation_checkpoint.mode",
        "training.seq_len",
    }
)
MODELS = {
    ("llama3", "8B"): "meta-llama/Llama-3.1-8B", ("llama3", "70B"): "meta-llama/Llama-3.1-70B",
    ("llama3", "405B"): "meta-llama/Llama-3.1-405B", ("deepseek_v3", "671B"): "deepseek-ai/DeepSeek-V3",
    ("deepseek_v3", "16B"): "deepseek-ai/DeepSeek-V2-Lite", ("qwen3", "32B"): "Qwen/Qwen3-32B",
    ("qwen3", "0.6B"): "Qwen/Qwen3-0.6B", ("qwen3", "1.7B"): "Qwen/Qwen3-1.7B", ("qwen3", "8B"): "Qwen/Qwen3-8B",
    ("qwen3", "14B"): "Qwen/Qwen3-14B", ("qwen3", "30B-A3B"): "Qwen/Qwen3-30B-A3B", ("gpt_oss", "20b"): "openai/gpt-oss-20b",
    ("gpt_oss", "120b"): "openai/gpt-oss-120b", ("llama4", "17bx16e"): "meta-llama/Llama-4-Scout-17B-16E",
    ("llama4", "17bx128e"): "meta-llama/Llama-4-Maverick-17B-128E",
}  # fmt: skip


def _degree(target: str) -> Rule:
    return target, lambda value: None if int(value) < 1 else int(value)


def _reshard(settings: Settings, value: Any, because: str) -> None:
    if value in ("never", "always"):
        settings.put("options.reshard", value == "always", because)


def _offload(settings: Settings, value: Any, because: str) -> None:
    if flag(value):
        settings.add("offload", "parameters", because)
        settings.add("offload", "optimizer", because)


def _converters(settings: Settings, value: Any, because: str) -> None:
    listed = " ".join(value) if isinstance(value, list) else str(value)
    if "float8" in listed or "mx" in listed.split():
        settings.put("compute_dtype", "fp8", because)


def _components(settings: Settings, value: Any, because: str) -> None:
    if "loss" not in value:
        settings.put("loss", "plain", f"{because}: without the loss")


def _loss_parallel(settings: Settings, value: Any, because: str) -> None:
    if flag(value):
        settings.put("options.vocab_parallel", False, because)


# Schedules of torch with several stages a rank (torch 2.13, distributed/pipelining/schedules.py, PipelineScheduleMulti)
_LOOPED = ("interleaved1f1b", "loopedbfs", "interleavedzerobubble", "zbvzerobubble", "dualpipev")


def _schedule(settings: Settings, value: Any, because: str) -> None:
    """Two stages a rank, torchtitan's default for such schedules (distributed/pipeline_parallel.py, stages_per_rank)."""
    if str(value).lower() in _LOOPED:
        settings.put("parallel.vpp", 2, f"{because}: two stages a rank")


def _in_backward(settings: Settings, value: Any, because: str) -> None:
    if flag(value):
        settings.replace("options.update", "in_backward", because)


RULES: dict[str, Rule] = {
    "model.name": ("titan.name", text),
    "model.flavor": ("titan.flavor", text),
    "model.converters": _converters,
    "training.local_batch_size": ("micro_batch", whole),
    "training.batch_size": ("micro_batch", whole),
    "training.global_batch_size": _degree("global_batch"),
    "training.seq_len": ("seq", whole),
    "training.dtype": ("param_dtype", dtype),
    "training.mixed_precision_param": ("compute_dtype", dtype),
    "training.mixed_precision_reduce": ("options.reduce", dtype),
    "training.enable_cpu_offload": _offload,
    "training.compile": ("compile", flag),
    "compile.enable": ("compile", flag),
    "compile.components": _components,
    "parallelism.data_parallel_replicate_degree": _degree("parallel.replicate"),
    "parallelism.data_parallel_shard_degree": _degree("parallel.shard"),
    "parallelism.fsdp_reshard_after_forward": _reshard,
    "parallelism.tensor_parallel_degree": _degree("parallel.tp"),
    "parallelism.pipeline_parallel_degree": _degree("parallel.pp"),
    "parallelism.pipeline_parallel_schedule": _schedule,
    "parallelism.context_parallel_degree": _degree("parallel.cp"),
    "parallelism.expert_parallel_degree": _degree("parallel.ep"),
    "parallelism.expert_tensor_parallel_degree": _degree("options.expert_tp"),
    "parallelism.enable_async_tensor_parallel": ("options.overlaps_tensor", flag),
    "parallelism.disable_loss_parallel": _loss_parallel,
    # the same before release 0.2, and in forks of it (flame)
    "training.data_parallel_replicate_degree": _degree("parallel.replicate"),
    "training.data_parallel_shard_degree": _degree("parallel.shard"),
    "training.tensor_parallel_degree": _degree("parallel.tp"),
    "experimental.pipeline_parallel_degree": _degree("parallel.pp"),
    "experimental.context_parallel_degree": _degree("parallel.cp"),
    "training.gradient_accumulation_steps": ("accumulate", whole),
    "activation_checkpoint.mode": ("checkpoint.mode", lambda value: str(value).lower()),  # "none" is a mode, not unset
    "activation_checkpoint.selective_ac_option": ("checkpoint.option", text),
    "optimizer.name": ("optimizer", lambda v: str(v).lower()),
    "optimizer.implementation": ("options.update", lambda v: {"for-loop": "loop"}.get(str(v), str(v))),
    "optimizer.early_step_in_backward": _in_backward,
}
IDLE = (
    "job.*", "profiling.*", "metrics.*", "model.*", "optimizer.*", "lr_scheduler.*", "checkpoint.*", "validation.*",
    "training.dataset*", "training.max_norm", "training.steps", "training.seed", "training.deterministic", "training.gc_*",
    "training.data_parallel_*", "training.dataloader*", "training.warmup_steps", "comm.*",
    "parallelism.pipeline_parallel_*", "parallelism.context_parallel_*",
    "parallelism.module_fqns_per_model_part", "parallelism.expert_*", "parallelism.enable_compiled_autograd",
    "activation_checkpoint.*", "compile.*", "float8.*", "quantize.*", "mx.*", "experimental.*", "memory_estimation.*",
    "fault_tolerance.*", "debug.*",
)  # fmt: skip


def finish(settings: Settings) -> None:
    """The model of a flavor, and the policy of selective checkpointing."""
    settings.put("framework", "torchtitan", "the sections of this file")
    named = (settings.get("titan.name", ""), settings.get("titan.flavor", ""))
    settings.put("model", MODELS.get(named), f"model.name {named[0]}, model.flavor {named[1]}")
    if all(named) and named not in MODELS:  # a fork's own flavor, whose shapes its program holds
        settings.by_the_way.append((False, "-".join(named), "model.name and model.flavor"))
    settings.put("micro_batch", 8, "torchtitan: training.local_batch_size 8")
    settings.put("seq", 2048, "torchtitan: training.seq_len 2048")
    mode, option = settings.get("checkpoint.mode", "selective"), settings.get("checkpoint.option", "2")
    every = f"layer:{option}" if option.isdigit() else "op"
    known = {"none": "none", "full": "full", "selective": every}
    settings.put("checkpointing", known.get(mode), "torchtitan: activation_checkpoint")
