"""Configurations of a training question in its framework's own words. Reading one back (``--from``) asks the same question.

Keys: those that ``reading/training`` reads, with the versions named there.
"""

from collections.abc import Callable
from typing import Any

from vramcast.errors import QuestionError, unknown_name
from vramcast.models.inventory import Model
from vramcast.workload import Training

Writer = Callable[[Training, Model], str]


def emitted(kind: str, question: Training, model: Model, *, told: str = "") -> str:
    """The text of one kind; ``told``: a line of comment above. Raises QuestionError for a kind that is none or does not suit."""
    name = _OTHER_NAMES.get(kind, kind)
    if name not in _WRITERS:
        raise unknown_name("--emit", kind, (*_WRITERS, *_OTHER_NAMES))
    writer, frameworks = _WRITERS[name]
    if question.framework not in frameworks:
        raise QuestionError(
            f"--emit {kind} writes what {' or '.join(frameworks)} runs, and this layout is {question.framework}'s"
        )
    return (f"# {told}\n" if told else "") + writer(question, model)


def framework_for(kind: str) -> str:
    """The framework whose layouts a kind can write. Raises QuestionError for a kind that is none."""
    name = _OTHER_NAMES.get(kind, kind)
    if name not in _WRITERS:
        raise unknown_name("--emit", kind, (*_WRITERS, *_OTHER_NAMES))
    return _WRITERS[name][1][0]


def _torchtitan(question: Training, model: Model) -> str:
    from vramcast.reading.training.torchtitan import MODELS

    layout, flavour = question.parallel, next((key for key, own in MODELS.items() if own == model.id), None)
    named = {"name": flavour[0], "flavor": flavour[1]} if flavour else {"hf_assets_path": f"./assets/hf/{_last(model)}"}
    return _toml({
        "model": named,
        "training": {
            "local_batch_size": question.micro_batch,
            "global_batch_size": question.micro_batch * question.accumulate * layout.dp, "seq_len": question.seq,
        },
        "parallelism": {
            "data_parallel_replicate_degree": layout.replicate, "data_parallel_shard_degree": layout.dp // layout.replicate,
            "tensor_parallel_degree": layout.tp, "pipeline_parallel_degree": layout.pp,
            "context_parallel_degree": layout.cp, "expert_parallel_degree": layout.ep,
            **({"enable_async_tensor_parallel": True} if question.options.get("overlaps_tensor") else {}),
        },
        "activation_checkpoint": _torchtitan_checkpoints(question.checkpointing),
        "compile": {"enable": bool(question.compile)},
        **({"optimizer": {"name": "AdamW"}} if question.optimizer in (None, "adamw") else {}),
    })  # fmt: skip


def _torchtitan_checkpoints(policy: str | None) -> dict[str, Any]:
    if policy in ("none", "full"):
        return {"mode": policy}
    return {"mode": "selective", "selective_ac_option": "op"}


def _megatron(question: Training, model: Model) -> str:
    """A torchrun line; the model's own shape is the checkpoint's to say and stands in a comment."""
    layout, nodes = question.parallel, max(1, question.gpus // 8)
    flags: dict[str, Any] = {
        "seq-length": question.seq, "micro-batch-size": question.micro_batch,
        "global-batch-size": question.micro_batch * question.accumulate * layout.dp,
        "tensor-model-parallel-size": layout.tp, "pipeline-model-parallel-size": layout.pp,
        "context-parallel-size": layout.cp, "expert-model-parallel-size": layout.ep, "bf16": True,
        "use-distributed-optimizer": question.fsdp is None, "use-megatron-fsdp": bool(question.fsdp),
        "sequence-parallel": layout.sp,
    }  # fmt: skip
    if question.options.get("stage_layout"):
        flags["pipeline-model-parallel-layout"] = f'"{question.options["stage_layout"]}"'
    elif layout.vpp > 1:
        flags["num-layers-per-virtual-pipeline-stage"] = model.layers // (layout.pp * layout.vpp)
    if question.checkpointing == "full":
        flags |= {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
    elif question.checkpointing == "selective":
        flags["recompute-granularity"] = "selective"
    elif str(question.checkpointing).startswith("modules:"):
        modules = str(question.checkpointing).partition(":")[2].replace("+", " ")
        flags |= {"recompute-granularity": "selective", "recompute-modules": modules}
    flags |= {flag: own for name, flag in _MEGATRON_OPTIONS.items() if (own := question.options.get(name)) not in (None, False)}
    if flags.get("moe-token-dispatcher-type") == "padded":  # the all-to-all of as many rows as an expert's capacity
        flags |= {"moe-token-dispatcher-type": "alltoall", "moe-pad-expert-input-to-capacity": True}
        flags["moe-expert-capacity-factor"] = question.options.get("imbalance", 1.0)
    flags |= _megatron_shape(model)
    words = [f"--{name}" if value is True else f"--{name} {value}" for name, value in flags.items() if value is not False]
    launch = f"torchrun --nproc-per-node {min(8, question.gpus)} --nnodes {nodes} pretrain_gpt.py"
    return " \\\n  ".join((launch, *words)) + "\n"


_MEGATRON_OPTIONS = {
    "expert_tp": "expert-tensor-parallel-size",
    "overlaps_tensor": "tp-comm-overlap",
    "dispatcher": "moe-token-dispatcher-type",
}


def _megatron_shape(model: Model) -> dict[str, Any]:
    """The shape of a model of equal gated layers with one kind of attention, as Megatron's flags; nothing for others."""
    from vramcast.models.layers import Attention, Dense

    mixers = {mixer for block in model.blocks for mixer in block.mixers}
    dense = {block.feedforward for block in model.blocks}
    if len(mixers) != 1 or len(dense) != 1:
        return {}
    (mixer,), (wide,) = mixers, dense
    if not (isinstance(mixer, Attention) and isinstance(wide, Dense) and wide.gated):
        return {}
    return {
        "num-layers": model.layers, "hidden-size": model.hidden, "ffn-hidden-size": wide.intermediate,
        "num-attention-heads": mixer.heads, "group-query-attention": True, "num-query-groups": mixer.kv_heads,
        "kv-channels": mixer.head_dim, "vocab-size": model.vocab, "max-position-embeddings": model.positions,
        "swiglu": True, "normalization": "RMSNorm", "disable-bias-linear": True, "position-embedding-type": "rope",
        "untie-embeddings-and-output-weights": not model.tied,
    }  # fmt: skip


_TRAINER_NAMES = {"adamw": "adamw_torch"}  # transformers 5.6, training_args.py OptimizerNames; axolotl takes the same


def _trainer(question: Training, model: Model) -> dict[str, Any]:
    """Keys that TrainingArguments and LLaMA-Factory share."""
    policy = {"gradient_checkpointing": question.checkpointing == "full"}
    return {
        "model_name_or_path": model.id, "bf16": True, "per_device_train_batch_size": question.micro_batch,
        "gradient_accumulation_steps": question.accumulate, **policy,
        **({"optim": _TRAINER_NAMES.get(question.optimizer, question.optimizer)} if question.optimizer else {}),
    }  # fmt: skip


def _llama_factory(question: Training, model: Model) -> str:
    own = _trainer(question, model)
    own.pop("gradient_checkpointing")
    own |= {"stage": "pt" if question.method == "pretrain" else "sft", "cutoff_len": question.seq, "template": "default"}
    own |= {"dataset": "your_dataset", "output_dir": "outputs"}  # it starts with neither open
    own["disable_gradient_checkpointing"] = question.checkpointing != "full"
    adapter = question.adapter
    own["finetuning_type"] = "full" if question.method in ("full", "pretrain") else "lora"
    if own["finetuning_type"] == "lora":
        own |= {"lora_rank": adapter.rank if adapter else 8, "lora_target": "all"}
    if question.method == "qlora":
        own |= {"quantization_bit": 4, "quantization_type": "nf4"}
    if question.zero:
        own["deepspeed"] = _deepspeed_config(question)
    elif question.fsdp:
        own |= {"fsdp": "full_shard auto_wrap", "fsdp_config": {"fsdp_version": question.fsdp}}
    return _yaml(own)


def _axolotl(question: Training, model: Model) -> str:
    adapter = question.adapter
    own: dict[str, Any] = {
        "base_model": model.id, "sequence_len": question.seq, "micro_batch_size": question.micro_batch,
        "gradient_accumulation_steps": question.accumulate, "bf16": True, "sample_packing": True,
        "gradient_checkpointing": question.checkpointing == "full", "flash_attention": True,
    }  # fmt: skip
    own["datasets"] = [{"path": "your-org/your-dataset", "type": "chat_template"}]  # its schema has no file without one
    if question.optimizer:
        own["optimizer"] = _TRAINER_NAMES.get(question.optimizer, question.optimizer)
    own["learning_rate"] = 2e-4 if question.adapter else 2e-5  # required too, and of no effect on memory
    if question.method in ("lora", "qlora"):
        own |= {"adapter": question.method, "lora_r": adapter.rank if adapter else 8, "lora_target_linear": True}
        own |= {"load_in_4bit": True} if question.method == "qlora" else {}
    if question.zero:
        own["deepspeed"] = _deepspeed_config(question)
    elif question.fsdp:
        own |= {"fsdp_version": question.fsdp, "fsdp_config": {"reshard_after_forward": True, "offload_params": False}}
    return _yaml(own)


def _deepspeed_config(question: Training) -> dict[str, Any]:
    stage: dict[str, Any] = {"stage": question.zero}
    if "optimizer" in question.offload:
        stage["offload_optimizer"] = {"device": "cpu"}
    return {
        "zero_optimization": stage, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": question.micro_batch,
        "gradient_accumulation_steps": question.accumulate,
    }  # fmt: skip


def _accelerate(question: Training, model: Model) -> str:
    """Accelerate's launch configuration: FSDP or DeepSpeed; the script's own arguments stand in a comment."""
    own: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE", "mixed_precision": "bf16", "num_processes": question.gpus,
        "num_machines": max(1, question.gpus // 8),
    }  # fmt: skip
    if question.zero:
        where = "cpu" if "optimizer" in question.offload else "none"
        own |= {
            "distributed_type": "DEEPSPEED",
            "deepspeed_config": {
                "zero_stage": question.zero,
                "gradient_accumulation_steps": question.accumulate,
                "offload_optimizer_device": where,
            },
        }
    elif question.fsdp:
        own |= {
            "distributed_type": "FSDP",
            "fsdp_config": {
                "fsdp_version": question.fsdp,
                "fsdp_reshard_after_forward": True,
                "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "fsdp_activation_checkpointing": question.checkpointing == "full",
                "fsdp_offload_params": False,
            },
        }
    else:
        own["distributed_type"] = "MULTI_GPU" if question.gpus > 1 else "NO"
    arguments = (
        f"# accelerate launch --config_file THIS train.py --model_name_or_path {model.id} "
        f"--per_device_train_batch_size {question.micro_batch} --gradient_accumulation_steps {question.accumulate} "
        f"--gradient_checkpointing {question.checkpointing == 'full'} --bf16 True --max_length {question.seq}\n"
    )
    return arguments + _yaml(own)


def _deepspeed(question: Training, _: Model) -> str:
    import json

    if not question.zero:
        raise QuestionError("--emit deepspeed writes ZeRO's configuration, and this layout has no ZeRO")
    return json.dumps(_deepspeed_config(question), indent=2) + "\n"


_TRAINER = ("hf_trainer", "trl", "accelerate", "deepspeed")
_WRITERS: dict[str, tuple[Writer, tuple[str, ...]]] = {
    "torchtitan": (_torchtitan, ("torchtitan",)),
    "megatron": (_megatron, ("megatron",)),
    "accelerate": (_accelerate, _TRAINER),
    "deepspeed": (_deepspeed, _TRAINER),
    "axolotl": (_axolotl, ("axolotl",)),
    "llama_factory": (_llama_factory, ("llama_factory",)),
}
_OTHER_NAMES = {"llamafactory": "llama_factory", "llama-factory": "llama_factory", "titan": "torchtitan", "fsdp": "accelerate"}
KINDS = tuple(_WRITERS)


def _last(model: Model) -> str:
    return model.id.rpartition("/")[2]


def _toml(tables: dict[str, dict[str, Any]]) -> str:
    lines: list[str] = []
    for name, values in tables.items():
        lines += [f"[{name}]", *(f"{key} = {_toml_value(value)}" for key, value in values.items()), ""]
    return "\n".join(lines)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f'"{value}"'


def _yaml(value: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=False, width=120)
    return text
