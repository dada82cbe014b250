"""The measured rows of truth/ as cases: one function per source says which program made the figure, or why none can."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from public.case import Case
from public.fsdp_qlora_runs import fsdp_qlora_run
from public.peft_runs import peft_run
from public.torchtitan_runs import torchtitan_run
from vramcast.errors import VramcastError
from vramcast.hardware.cards import find_accelerator
from vramcast.hardware.runtime import context_bytes, nccl_bytes
from vramcast.models.inventory import Model
from vramcast.planning.tracing.request import device_model
from vramcast.tracing.configs import derived
from vramcast.tracing.extrapolation.depth import shallow_depths
from vramcast.truth.judgement import Unexpressed
from vramcast.truth.rows.own import restore_row
from vramcast.truth.rows.training_model import model_of

Row = dict[str, Any]
MEASURES = {
    "peak_allocated_gib": "allocated",
    "peak_active_gib": "allocated",
    "torch_peak_alloc_gib": "allocated",
    "peak_reserved_gib": "reserved",
    "peak_gpu_gb": "reserved",
}


class RefusedError(Exception):
    """The row cannot be executed; the message says why."""


def rows(truth: Path) -> Iterator[Row]:
    """The visible rows with a counter of PyTorch's allocator."""
    for name in ("training_memory", "inference_memory"):
        for line in (truth / f"{name}.jsonl").read_bytes().splitlines():
            own = msgspec.json.decode(line)
            if figures(own):
                yield own


def figures(own: Row) -> dict[str, float]:
    """The row's figures in GiB by measure."""
    return {measure: own["figures"][key] for key, measure in MEASURES.items() if own.get("figures", {}).get(key)}


def case_of(own: Row) -> Case:
    """The row's program. Raises RefusedError where there is none."""
    make = next((make for source, make in SOURCES.items() if source in own["facts"]["source"]), None)
    if make is None:
        raise RefusedError(
            next((why for source, why in WITHOUT.items() if source in own["facts"]["source"]), "no program written")
        )
    try:
        return make(restore_row(own))
    except (VramcastError, Unexpressed) as error:
        raise RefusedError(str(error)) from None


def fine_tuning(row: Row) -> Case:
    """fms-acceleration's benchmark: packed rows of 4,096 tokens, with and without its plugins, on one card or under FSDP1."""
    s = row["settings"]
    if "gptq" in str(s.get("quant")):
        raise RefusedError("GPTQ's kernels are compiled CUDA")
    lora = {"r": 16, "lora_alpha": 16, "lora_dropout": 0.1, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}
    arguments = {
        "seq": s["seq_len"],
        "micro_batch": s["micro_batch"],
        "dtype": _DTYPES[s["param_dtype"][:4]],
        "autocast": "autocast" in s["amp"],
        "quant": bool(s.get("quant")),
        "lora": None if row["method"] == "full" else lora,
        "plugins": _plugins(s["framework_config"]),
    }
    return _case(
        row,
        "fms",
        arguments,
        libraries="fms-2025" if "4.48" in row["framework_version"] else "fms-2024",
        environment=_ACCELERATE_FSDP if row["n_gpus"] > 1 else {},
    )


def _plugins(name: str) -> dict[str, Any]:
    """The plugins that a configuration of fms-acceleration's benchmark switches on."""
    fused: dict[str, Any] = {"fast_loss": True, "fast_rms_layernorm": True, "fast_rope_embeddings": True}
    if name.endswith("liger"):
        fused["fast_loss"] = "fused_ce_liger"
    if name.startswith("foak-fast-kernels"):
        return {"training": {"fused_ops_and_kernels": fused}}
    if "peft-bnb" not in name:
        return {}
    quantization: dict[str, Any] = {"bitsandbytes": {"quant_type": "nf4", "no_peft_model": name == "baseline-peft-bnb"}}
    if "foak" in name:
        quantization["fused_ops_and_kernels"] = {**fused, "base_layer": "bitsandbytes", "fused_lora": True}
    return {"peft": {"quantization": quantization}}


def generation(row: Row) -> Case:
    """Qwen's speed benchmark: a prompt and 2,048 tokens after it."""
    s = row["settings"]
    if row.get("quant"):
        raise RefusedError(f"weights in {row['quant']}: their kernels are compiled CUDA")
    if row["n_gpus"] > 1:
        raise RefusedError("layers spread over cards, and the figure is their sum")
    arguments = {
        "dtype": row["dtype"],
        "attention": "flash_attention_2",
        "prompt": s["input_len"],
        "output": s["output_len"],
        "prefill": _QWEN3_PAGE not in row["source"],
    }
    version = str(row["engine_version"]).lstrip("~")[:4]
    return _case(row, "generation", arguments, libraries=f"transformers-{version}")


def litgpt(row: Row) -> Case:
    """Litgpt's tables: its fine-tuning loops at the longest sample."""
    s = row["settings"]
    if "2023" in row["framework_version"]:
        raise RefusedError("a litgpt of 2023, of another name and with another model")
    leaf = row["model_id"].rsplit("/", 1)[-1]
    adapter = s.get("adapters")
    arguments = {
        "name": _LITGPT_NAMES.get(leaf, leaf),
        "micro_batch": s["micro_batch"],
        "accumulate": min(s["grad_accum"], 3),  # each further one does what the third does
        "seq": s["seq_len"],
        "ranks": row["n_gpus"],
        "quant": s.get("quant", "").removeprefix("bnb-"),
        "adapter": {"rank": adapter["r"], **{key: adapter[key] for key in ("dropout", "targets")}} if adapter else None,
    }
    return _case(row, "litgpt_finetune", arguments, libraries="litgpt-2024", config=False)


def torchtune(row: Row) -> Case:
    """Torchtune's flag-by-flag table of Llama-3.2-3B; compiled from its third line on."""
    s = row["settings"]
    if s["compile"]:
        raise RefusedError("torch.compile allocates differently")
    if not s.get("seq_len"):
        raise RefusedError("the lengths of its batches are not at hand")
    model = model_of(row)
    attention, feedforward = model.blocks[0].mixers[0], model.blocks[0].feedforward
    shape = {
        "vocab_size": model.vocab,
        "embed_dim": model.hidden,
        "num_heads": attention.heads,
        "num_kv_heads": attention.kv_heads,
        "intermediate_dim": feedforward.intermediate,
    }
    arguments = {"micro_batch": s["micro_batch"], "seq": s["seq_len"], "checkpointing": False, "shape": shape}
    return _case(row, "torchtune_full", arguments, libraries="torchtune", config=False)


def torchtitan(row: Row) -> Case:
    """The commit messages and benchmark pages of torchtitan: its own trainer, in the nearest release."""
    return _case(row, config=False, **torchtitan_run(row))


def liger_mini(row: Row) -> Case:
    """A pull request's table of Liger's kernels beside transformers' own, which states every dimension that is cut."""
    arguments = {"seq": row["settings"]["seq_len"], "liger": "Liger" in row["framework"]}
    return _case(row, "liger_mini", arguments, libraries="liger", config=False)


def prompts(row: Row) -> Case:
    """DeepSeek-LLM's table of batches and lengths: a prompt and the first step after it; its script is not published."""
    if row["n_gpus"] > 1:
        raise RefusedError("how its layers lie on eight cards is not told")
    arguments = {"dtype": row["dtype"], "batch": row["settings"]["batch_size"], "seq": row["settings"]["seq_len"]}
    return _case(row, "prompts", arguments, libraries="transformers-4.35")


def fsdp_qlora(row: Row) -> Case:
    """Answer.AI's benchmarks of FSDP1 with LoRA and QLoRA on two cards."""
    return _case(row, **fsdp_qlora_run(row))


def peft_comparison(row: Row) -> Case:
    """PEFT's comparison of methods on MetaMathQA."""
    return _case(row, **peft_run(row))


SOURCES: dict[str, Callable[[Row], Case]] = {
    "foundation-model-stack/fms-acceleration": fine_tuning,
    "QwenLM/Qwen3": generation,
    "Lightning-AI/litgpt": litgpt,
    "pytorch/torchtune": torchtune,
    "pytorch/torchtitan": torchtitan,
    "linkedin/Liger-Kernel/pull/1424": liger_mini,
    "huggingface/peft:method_comparison": peft_comparison,
    "AnswerDotAI/fsdp_qlora": fsdp_qlora,
    "deepseek-ai/DeepSeek-LLM": prompts,
}
_LITGPT_NAMES = {
    "Meta-Llama-3-8B": "Llama-3-8B",
    "gemma-2b": "Gemma-2b",
    "TinyLlama-1.1B": "TinyLlama-1.1B-intermediate-step-1431k-3T",
}
WITHOUT = {
    "modelscope/ms-swift": "the lengths of its batches are those of a data set that is not at hand",
    "NVIDIA/Megatron-LM": "Megatron and Transformer Engine are compiled CUDA",
    "NVIDIA-NeMo/Megatron-Bridge": "Megatron and Transformer Engine are compiled CUDA",
    "unslothai/notebooks": "Unsloth rewrites and compiles its models, and the lengths of its batches are not at hand",
    "casper-hansen/AutoAWQ": "weights in AWQ: their kernels are compiled CUDA",
    "pytorch/ao:torchao/optim": "the lengths of its batches are not at hand",
    "huggingface/peft:README": "no lengths, and the types of weights are not stated",
    "meta-llama/llama-cookbook": "the lengths of its batches are not at hand",
    "InternLM/xtuner": "the lengths of its batches are not at hand",
}
# Its figures of long prompts hold no prefill: 0.6B to 32B stand within 0.2 % of weights and cache at the last token.
_QWEN3_PAGE = "getting_started/speed_benchmark.md"
# What "accelerate launch" makes of scripts/benchmarks/accelerate.yaml.
_ACCELERATE_FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_SHARDING_STRATEGY": "FULL_SHARD",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_BACKWARD_PREFETCH": "BACKWARD_PRE",
    "FSDP_FORWARD_PREFETCH": "false",
    "FSDP_OFFLOAD_PARAMS": "false",
    "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
    "FSDP_SYNC_MODULE_STATES": "true",
    "FSDP_USE_ORIG_PARAMS": "true",
}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "bfloat16"}  # "fp32 shards": loaded in bf16, widened by FSDP


def _case(row: Row, program: str, arguments: dict[str, Any], *, config: bool = True, **more: Any) -> Case:
    model: Model = model_of(row)
    card = find_accelerator(row["gpu"])
    return Case(
        id=row["id"],
        program=program,
        arguments={"config": derived(model), **arguments} if config else arguments,
        layers=model.layers,
        depths=shallow_depths(model.layer_list()),
        ranks=row["n_gpus"],
        device=device_model(card),
        capacity_bytes=card.visible_bytes - context_bytes(card) - nccl_bytes(row["n_gpus"]),
        **more,
    )
