"""torchtune YAML. Keys: torchtune 0.6.1, recipes/configs; the builders' names say the model and the adapter."""

import re
from typing import Any

from vramcast.reading.training.keys import Rule, dtype, flag, names, number, whole
from vramcast.reading.training.settings import Settings

NAME = "torchtune YAML"
SIGNATURE = frozenset(
    {"model._component_", "tokenizer._component_", "enable_activation_checkpointing", "checkpointer._component_"}
)
_OPTIMIZERS = {"adamw": "adamw", "pagedadamw8bit": "paged_adamw_8bit", "pagedadamw": "paged_adamw", "adamw8bit": "adamw_8bit",
               "sgd": "sgd", "adam": "adamw", "cpuoffloadoptimizer": "adamw"}  # fmt: skip
# families of builders, and the published model of each size
_MODELS = {
    "code_llama2": "codellama/CodeLlama-{}-hf", "llama2": "meta-llama/Llama-2-{}-hf", "llama3": "meta-llama/Meta-Llama-3-{}",
    "llama3_1": "meta-llama/Llama-3.1-{}", "llama3_2": "meta-llama/Llama-3.2-{}",
    "llama3_3": "meta-llama/Llama-3.3-{}-Instruct", "mistral": "mistralai/Mistral-{}-v0.1", "qwen2": "Qwen/Qwen2-{}",
    "qwen2_5": "Qwen/Qwen2.5-{}", "gemma": "google/gemma-{}", "gemma2": "google/gemma-2-{}",
    "llama3_2_vision": "meta-llama/Llama-3.2-{}-Vision", "phi3": "microsoft/Phi-3-{}-4k-instruct", "phi4": "microsoft/phi-4",
}  # fmt: skip
_SMALL = ("gemma", "gemma2")


def model_of(component: str) -> str | None:
    """The published model of a builder: torchtune.models.llama3_1.lora_llama3_1_8b is meta-llama/Llama-3.1-8B."""
    found = re.search(r"models\.(\w+)\.(?:q?lora_)?\1_(\d+(?:_\d+)?b|mini)(?:_base|_instruct)?$", component)
    pattern = _MODELS.get(found[1]) if found else None
    if found is None or pattern is None:
        return None
    size = found[2].replace("_", ".")
    return pattern.format(size if found[1] in _SMALL or size == "mini" else size.upper())


def _model(settings: Settings, value: Any, because: str) -> None:
    component = str(value)
    settings.put("model", model_of(component), because)
    settings.put("torchtune.builder", component, because)
    leaf = component.rsplit(".", 1)[-1]
    if leaf.startswith(("lora_", "qlora_")):
        settings.put("method", leaf.split("_", 1)[0], because)
        if leaf.startswith("qlora"):
            settings.put("quant", "nf4", because)


def _quantised(settings: Settings, value: Any, because: str) -> None:
    if flag(value):
        settings.put("quant", "nf4", because)


def _optimizer(settings: Settings, value: Any, because: str) -> None:
    leaf = str(value).rsplit(".", 1)[-1].lower()
    source = "torchao_" if "torchao" in str(value) and "bit" in leaf else ""
    name = f"adamw_{source}{leaf[5:]}" if source else _OPTIMIZERS.get(leaf, leaf)
    settings.put("optimizer", name, because)
    if leaf == "cpuoffloadoptimizer":
        settings.add("offload", "optimizer", because)


def _in_backward(settings: Settings, value: Any, because: str) -> None:
    if flag(value):
        settings.replace("options.update", "in_backward", because)


def _loss(settings: Settings, value: Any, because: str) -> None:
    leaf = str(value).rsplit(".", 1)[-1]
    named = {"LinearCrossEntropyLoss": "linear_chunks", "CEWithChunkedOutputLoss": "chunked", "CrossEntropyLoss": "plain"}
    settings.put("loss", named.get(leaf), because)
    if leaf == "DPOLoss":
        settings.put("options.task", "dpo", because)


def _checkpointing(settings: Settings, value: Any, because: str) -> None:
    settings.put("checkpointing", "full" if flag(value) else "none", because)


def _offloading(settings: Settings, value: Any, because: str) -> None:
    if flag(value):
        settings.add("offload", "activations", because)


def _host(settings: Settings, value: Any, because: str) -> None:
    if flag(value):
        settings.add("offload", "parameters", because)
        settings.add("offload", "optimizer", because)


def _mlp(settings: Settings, value: Any, because: str) -> None:
    if flag(value):
        settings.put("adapter.mlp", ("gate_proj", "up_proj", "down_proj"), because)


_SHAPE = {
    "num_layers": "layers", "embed_dim": "hidden", "num_heads": "heads", "num_kv_heads": "kv_heads", "vocab_size": "vocab",
    "intermediate_dim": "ffn", "head_dim": "head_dim", "max_seq_len": "positions",
}  # fmt: skip
RULES: dict[str, Rule] = {
    "model._component_": _model,
    "model.lora_attn_modules": ("adapter.attention", names),
    "model.apply_lora_to_mlp": _mlp,
    "model.apply_lora_to_output": ("adapter.output", flag),
    "model.lora_rank": ("adapter.rank", whole),
    "model.lora_dropout": ("adapter.dropout", number),
    "model.use_dora": ("adapter.dora", flag),
    **{f"model.{name}": (f"shape.{target}", whole) for name, target in _SHAPE.items()},  # of builders without a size
    "model.quantize_base": _quantised,
    "tokenizer.max_seq_len": ("seq", whole),
    "dataset.max_seq_len": ("seq", whole),
    "dataset.packed": ("lengths.packed", flag),
    "batch_size": ("micro_batch", whole),
    "gradient_accumulation_steps": ("accumulate", whole),
    "dtype": ("compute_dtype", dtype),
    "optimizer._component_": _optimizer,
    "optimizer.fused": ("options.update", lambda v: "fused" if flag(v) else None),
    "optimizer.offload_gradients": _in_backward,
    "optimizer_in_bwd": _in_backward,
    "loss._component_": _loss,
    "enable_activation_checkpointing": _checkpointing,
    "enable_activation_offloading": _offloading,
    "compile": ("compile", flag),
    "fsdp_cpu_offload": _host,
    "fsdp_reshard_after_forward": ("options.reshard", flag),
    "tensor_parallel_dim": ("parallel.tp", whole),
    "context_parallel_dim": ("parallel.cp", whole),
    "data_parallel_shard_dim": ("parallel.shard", lambda v: None if int(v) < 1 else int(v)),
    "data_parallel_replicate_dim": ("parallel.replicate", whole),
}
IDLE = (
    "output_dir", "tokenizer.*", "checkpointer.*", "resume_from_checkpoint", "save_adapter_weights_only", "dataset.*",
    "dataset_val*", "seed", "shuffle", "optimizer.*", "lr_scheduler*", "epochs", "max_steps_per_epoch", "clip_grad_norm",
    "metric_logger*", "log_*", "device", "profiler*", "model.lora_alpha", "model.attn_dropout", "model.norm_eps",
    "model.rope_base", "model.scale_factor", "dataset", "loss.*", "custom_sharded_layers",
    "base_dir", "ac_mode", "collate_fn", "run_val_every_n_steps", "batch_size_val",
    "validation*", "model_dir", "cudnn_deterministic_mode", "enable_async*", "tensor_parallel_plan*", "epochs_trained",
    "max_validation_steps", "ref_checkpointer*", "use_distributed_state_dict", "data_dir",
)  # fmt: skip


def scale_hidden_dim_for_mlp(hidden: int) -> int:
    """The feed-forward's width of a Llama builder that is told none: torchtune 0.6.1, models/llama3/_model_utils.py.

    Two thirds of 4 x ``hidden`` features, up to the next multiple of 256.
    """
    return -(-4 * int(2 * hidden / 3) // 256) * 256


def _feed_forward(settings: Settings) -> None:
    """The width that a builder without a size computes itself; other families' builders ask for it."""
    hidden, component = settings.get("shape.hidden"), str(settings.get("torchtune.builder", ""))
    if settings.get("shape.layers") and hidden and not settings.get("shape.ffn"):
        if re.search(r"models\.(llama2|llama3|llama3_1)\.(?:lora_)?\1$", component):
            because = "torchtune, scale_hidden_dim_for_mlp: no intermediate_dim"
            settings.put("shape.ffn", scale_hidden_dim_for_mlp(hidden), because)
        elif not settings.get("model"):
            settings.unread.append("model.intermediate_dim (not said: 4 x embed_dim is taken)")
    settings.drop("torchtune.builder")


def finish(settings: Settings) -> None:
    """Pure bf16; the longest sample decides where max_seq_len is null."""
    _feed_forward(settings)
    settings.put("framework", "torchtune", "the keys of this file")
    settings.put("micro_batch", 2, "torchtune's recipes: batch_size 2")
    settings.put("seq", 2048, "max_seq_len is null, the longest sample decides; 2,048 is taken")
    attention = settings.get("adapter.attention")
    if attention:
        renamed = tuple("o_proj" if name == "output_proj" else name for name in attention)
        head = ("lm_head",) if settings.get("adapter.output") else ()
        settings.put(
            "adapter.targets", (*renamed, *settings.get("adapter.mlp", ()), *head), settings.because["adapter.attention"]
        )
        settings.put("method", "qlora" if settings.get("quant") else "lora", settings.because["adapter.attention"])
    if settings.get("lengths.packed") is False:
        settings.put("options.lengths", "variable", settings.because["lengths.packed"])
