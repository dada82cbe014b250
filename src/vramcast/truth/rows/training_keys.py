"""Keys of training reports: other spellings of the same key, what decides no byte, and what nothing reads.

A setting is read (it became part of the question), quiet (it decides no byte of the measured figure), or unread. A key that
nobody has met before is unread: it may matter, so the run takes the bar of the unmeasured.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from vramcast.errors import VramcastError

Row = dict[str, Any]

SYNONYMS: Mapping[str, Mapping[str, str]] = {
    "settings": {
        "micro_batch_size": "micro_batch", "mbs": "micro_batch", "per_device_train_batch_size": "micro_batch",
        "local_batch_size": "micro_batch", "batch_size_per_gpu": "micro_batch", "per_device_batch_size": "micro_batch",
        "seq_length": "seq_len", "sequence_length": "seq_len", "sequence_len": "seq_len", "max_seq_length": "seq_len",
        "max_length": "seq_len", "cutoff_len": "seq_len", "context_length": "seq_len",
        "gradient_accumulation_steps": "grad_accum", "gradient_accumulation": "grad_accum", "grad_acc": "grad_accum",
        "global_batch_size": "global_batch", "gradient_checkpointing": "activation_checkpointing",
        "recompute": "activation_checkpointing", "attn_implementation": "attention", "attn_impl": "attention",
        "loss": "cross_entropy", "optim": "optimizer", "gradient_dtype": "grad_dtype",
        "activation_offloading": "activation_offload",
        "torch_compile": "compile", "freeze_vit": "freeze_vision_tower", "freezes_towers": "freeze_vision_tower",
    },
    "arch": {
        "num_layers": "layers", "num_hidden_layers": "layers", "n_layers": "layers", "n_layer": "layers",
        "hidden_size": "hidden", "n_embd": "hidden", "d_model": "hidden", "dim": "hidden",
        "num_attention_heads": "heads", "n_heads": "heads", "n_head": "heads",
        "num_key_value_heads": "kv_heads", "num_query_groups": "kv_heads", "n_kv_heads": "kv_heads",
        "intermediate_size": "ffn", "ffn_hidden_size": "ffn", "vocab_size": "vocab", "num_experts": "experts",
        "n_routed_experts": "experts", "num_experts_per_tok": "topk", "moe_router_topk": "topk",
        "moe_intermediate_size": "moe_ffn", "moe_ffn_hidden_size": "moe_ffn", "tie_word_embeddings": "tied",
        "first_k_dense_replace": "first_k_dense", "mtp_num_layers": "mtp", "kv_channels": "head_dim",
    },
    "parallel": {
        "tensor_parallel": "tp", "tensor_parallel_size": "tp", "pipeline_parallel": "pp", "pipeline_parallel_size": "pp",
        "context_parallel": "cp", "context_parallel_size": "cp", "expert_parallel": "ep", "expert_parallel_size": "ep",
        "data_parallel": "dp", "data_parallel_size": "dp", "sequence_parallel": "sp", "zero": "zero_stage", "stage": "zero_stage",
    },
}  # fmt: skip
_NUMBERS = frozenset({"micro_batch", "seq_len", "grad_accum", "global_batch"})

READ = frozenset({
    "task", "param_dtype", "compute_dtype", "optimizer", "optimizer_impl", "micro_batch", "seq_len", "seq_kind", "grad_accum",
    "adapters", "activation_checkpointing", "attention", "cross_entropy", "compile", "parallel", "quant", "amp", "flags",
    "framework_config", "reshard_after_forward", "activation_offload", "grad_dtype", "dropout", "global_batch", "offload",
    "fused_norm_rope", "optimizer_dtype", "freeze_vision_tower", "norm", "kernels", "reduce_dtype", "allocator",
})  # fmt: skip
QUIET = frozenset({
    "trainable_params", "fp8_allgather", "rmsnorm", "local_batch", "n_pp_microbatches", "pp_schedule",
    "padding_free", "plugins", "limit_all_gathers", "moe", "precision_aware_optimizer", "packing", "lr", "learning_rate",
    "dataset", "note", "notes", "steps", "max_steps", "epochs", "warmup_steps", "seed", "lr_scheduler", "weight_decay",
    "max_grad_norm",
})  # fmt: skip
PARALLEL = frozenset({
    "world", "dp", "zero_stage", "tp", "sp", "pp", "cp", "ep", "impl", "etp", "vpp", "partition", "pp_naive", "ulysses",
    "reduce_bucket_size",
})  # fmt: skip
# What a row may hold on the host: its key, and the part it names.
OFFLOAD = {"params": "parameters", "optimizer": "optimizer", "gradients": "gradients"}
ADAPTERS = frozenset({
    "r", "alpha", "dropout", "targets", "dtype", "modules_to_save", "trainable_m", "trainable_params", "use_dora", "extra",
    "use_rslora", "bias", "task_type", "init_lora_weights", "kernels",
})  # fmt: skip
# Megatron's flags. What is read elsewhere in the row (its arch, its parallel layout, its recomputation) is quiet here.
FLAGS = frozenset({
    "transformer-impl", "use-distributed-optimizer", "no-gradient-accumulation-fusion", "attention-backend",
    "microbatch-group-size-per-virtual-pipeline-stage", "overlap-moe-expert-parallel-comm", "cross-entropy-loss-fusion",
    "cross-entropy-fusion-impl", "grad-reduce-in-bf16", "main-grads-dtype", "exp-avg-dtype", "exp-avg-sq-dtype",
    "use-megatron-fsdp", "use-flash-attn", "use-precision-aware-optimizer", "pipeline-model-parallel-layout",
    "cp-comm-type", "fine-grained-activation-offloading", "offload-modules", "num-virtual-stages-per-pipeline-rank",
})  # fmt: skip
QUIET_FLAGS = frozenset({
    "overlap-grad-reduce", "overlap-param-gather", "disable-bias-linear", "attention-dropout", "hidden-dropout", "bf16", "fp16",
    "mock-data", "deterministic-mode", "num-layers-per-virtual-pipeline-stage", "untie-embeddings-and-output-weights",
    "recompute-activations", "sequence-parallel",
    "overlap-p2p-communication-warmup-flush", "swiglu", "squared-relu", "mtp-num-layers", "mtp-loss-scaling-factor",
    "data-parallel-sharding-strategy", "outer-dp-sharding-strategy", "recompute-granularity", "recompute-modules",
    "megatron-fsdp-main-params-dtype", "megatron-fsdp-main-grads-dtype", "megatron-fsdp-grad-comm-dtype", "optimizer",
    "attention-softmax-in-fp32", "normalization", "qk-layernorm", "train-samples", "make-vocab-size-divisible-by",
    "calculate-per-token-loss", "num-distributed-optimizer-instances", "fp8-format", "fp8-recipe", "fp4-format", "fp4-recipe",
    "tp-comm-overlap-cfg", "hierarchical-context-parallel-sizes", "no-bias-gelu-fusion", "no-rope-fusion",
    "check-weight-hash-across-dp-replicas-interval", "no-mmap-bin-files", "no-ckpt-fully-parallel-save",
})  # fmt: skip
_QUIET_KINDS = re.compile(r"^(moe-(?!latent|enable-deepep)|muon-|wandb|log-|async-|no-ckpt|use-fused-weighted)")


def same_keys(row: Row) -> Row:
    """The row with every key under its usual name. Raises VramcastError for a count that names several numbers."""
    settings = _renamed(row.get("settings") or {}, "settings")
    settings |= {name: _one(name, settings[name]) for name in _NUMBERS & settings.keys()}
    if isinstance(settings.get("parallel"), dict):
        settings["parallel"] = _renamed(settings["parallel"], "parallel")
    found = row | {"settings": settings}
    return found | ({"arch": _renamed(row["arch"], "arch")} if isinstance(row.get("arch"), dict) else {})


def _renamed(mapping: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A usual name that is there already stays."""
    names = SYNONYMS[kind]
    plain = {key: value for key, value in mapping.items() if _spelt(key) not in names}
    return {names[_spelt(key)]: value for key, value in mapping.items() if _spelt(key) in names} | plain


def _spelt(key: str) -> str:
    return key.lower().replace("-", "_")


def _one(name: str, value: Any) -> Any:
    """The number of a list whose numbers are all the same."""
    if not isinstance(value, list):
        return value
    if len({str(v) for v in value}) != 1:
        raise VramcastError(f"{name} names {len(value)} numbers ({', '.join(str(v) for v in value)[:40]}): one row for each")
    return value[0]


def unread_words(row: Row) -> tuple[str, ...]:
    """Each setting that nothing reads, as "name=value", in a row whose keys have their usual names."""
    return tuple(_unread(row))


def _unread(row: Row) -> Iterator[str]:
    settings = row["settings"]
    parts = (
        (settings, READ | QUIET, ""),
        (settings.get("parallel"), PARALLEL, "parallel."),
        (settings.get("adapters"), ADAPTERS, "adapters."),
        (settings.get("offload"), frozenset(OFFLOAD), "offload."),
        (settings.get("flags"), FLAGS | QUIET_FLAGS, "--"),
    )
    for mapping, known, prefix in parts:
        for key, value in mapping.items() if isinstance(mapping, dict) else ():
            quiet = prefix == "--" and _QUIET_KINDS.match(key)
            if key not in known and not quiet and value not in (None, "", False):
                yield f"{prefix}{key}={str(value)[:40]}"
