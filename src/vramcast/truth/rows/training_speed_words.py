"""The words of a training-speed row, read one by one: batch, sharding, recomputation, formats, and what a card's remarks tell."""

import re
from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.training.job import OPERATIONS_AGAIN, Attention, Recomputed, Scaling
from vramcast.speed.training.job import gathered_bytes as job_gathers
from vramcast.training.frameworks.common import ALIASES
from vramcast.truth.judgement import Unexpressed
from vramcast.truth.rows.bridge_recipes import captured, recipe_of
from vramcast.untrusted import finite

Row = dict[str, Any]

# How a row's framework is called here, longest beginnings first.
FRAMEWORKS = (
    ("megatron-deepspeed", "megatron_deepspeed"), ("megatron", "megatron"), ("nemo", ALIASES["nemo"]),
    ("llm-foundry", "llm_foundry"), ("torchtitan", "torchtitan"),
    ("hf trainer + deepspeed (qwen", "qwen_finetune"), ("hf trainer", "hf_trainer"),
    ("xtuner", "hf_trainer"), ("easycontext", "hf_trainer"), ("fsdp_qlora", "fsdp_qlora"), ("fms-fsdp", "fms_fsdp"),
    ("paxml", "jax"), ("maxtext", "jax"), ("colossal", "colossalai"), ("tinyllama", "litgpt"), ("litgpt", "litgpt"),
    ("torchtune", "torchtune"), ("deepspeed", "deepspeed"), ("axolotl", "axolotl"), ("unsloth", "unsloth"), ("trl", "trl"),
    ("llama-factory", "llama_factory"), ("ms-swift", "ms_swift"), ("nanogpt", "nanogpt"), ("nanochat", "nanogpt"),
    ("automodel", "hf_trainer"), ("kempnerforge", "torchtitan"), ("olmo-core", "torchtitan"), ("internevo", "deepspeed"),
    ("lightning", "litgpt"), ("transformers", "hf_trainer"), ("huggingface", "hf_trainer"), ("accelerate", "hf_trainer"),
    ("prime-rl", "prime_rl"), ("nanotron", "nanotron"),
)  # fmt: skip
COMPILED = frozenset({"jax", "torchtitan", "fms_fsdp", "nanogpt"})
_FP8 = re.compile(r"fp8|mxfp8|float8", re.IGNORECASE)
_FP4 = re.compile(r"nvfp4|mxfp4|\bfp4", re.IGNORECASE)
_OFFLOADS = re.compile(r"offload", re.IGNORECASE)
_FOR_GPUS = re.compile(r"(\d+)\s*\((\d+) GPUs?\)(?:\s*/\s*(\d+))?")
_WATTS = re.compile(r"(\d{2,4})\s*W\b")
_RATE = re.compile(r"([\d.]+)\s*TB/s")
_AHEAD = ("deepseek-v3", "nemotron-3-super", "nemotron-3-ultra", "qwen3-next")  # models whose recipes train MTP layers
# What selective recomputation runs again, in the row's own words.
_AGAIN = {
    "core_attn": ("core_attn",),
    "moe": ("moe",),
    "custom rematerialisation": ("layernorm", "activation"),
    "selective op": OPERATIONS_AGAIN,
    "all but linear products": ("scores", "layernorm", "activation"),
}


_UNDROPPED = ("torchtune", "llama-factory", "unsloth", "automodel", "nemo", "megatron-bridge")  # whose adapters have no dropout
_PRODUCT_OF = {
    "q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "o_proj": "o", "gate_proj": "gate_up", "up_proj": "gate_up",
    "down_proj": "down",
}  # fmt: skip


# Settings that became part of the job; those that decide nothing: model sizes beside the model's name, dates, samples of a
# total time.
_READ = frozenset({
    "seq_len", "micro_batch_size", "global_batch_size", "grad_accum", "batch_per_dp", "tp", "pp", "cp", "ep", "vp", "etp", "dp",
    "precision", "activation_checkpointing", "sharding", "fsdp", "cpu_offload", "method", "task", "compile", "async_tp",
    "overlap", "deepep", "sequence_parallel", "mp_mode", "moe_note", "variant", "known_issue", "n_heads", "moe_capacity",
    "lora_targets", "lora_dropout",
})  # fmt: skip
_QUIET = frozenset(
    {"arch", "n_params", "n_params_b", "hidden", "layers", "note", "samples", "train_tokens", "kind", "global_batch_tokens"}
)


def unread(s: Row) -> tuple[str, ...]:
    """Each setting of the row that nothing reads, as "name=value"."""
    return tuple(f"{name}={str(size)[:40]}" for name, size in s.items() if name not in _READ | _QUIET and size not in (None, ""))


def framework_of(text: str) -> str:
    """Our name of a row's framework. Raises Unexpressed for one without a kind of kernels."""
    lowered = text.lower()
    found = next((name for begun, name in FRAMEWORKS if lowered.startswith(begun)), None)
    if found is None:
        raise Unexpressed(f"no rules for the framework {text[:60]!r}")
    return found


def limited(card: Accelerator, words: str) -> Accelerator:
    """The card under the power limit and with the memory rate that its remarks tell; the card itself where they tell none."""
    watts, rate = _WATTS.search(words), _RATE.search(words)
    if watts and 0 < int(watts[1]) < card.tdp_w:
        card = msgspec.structs.replace(card, tdp_w=int(watts[1]))
    if rate and float(rate[1]) > 0:
        card = msgspec.structs.replace(card, bandwidth_bytes_per_s=float(rate[1]) * 1e12)
    return card


def method_of(s: Row) -> str:
    """full, lora or qlora: the row's method, else its task (pre-training, SFT, LoRA)."""
    told = str(s.get("method") or s.get("task") or "full").lower()
    return "qlora" if "qlora" in told else "lora" if "lora" in told or "adapter" in told else "full"


def batch(s: Row, dp: int) -> tuple[int, int]:
    """Sequences of a micro-batch on one data-parallel rank, and micro-batches of a step."""
    rows, whole, times = (count(s.get(k)) for k in ("micro_batch_size", "global_batch_size", "grad_accum"))
    if rows is None and whole is not None and times is not None:
        rows = max(1, whole // (dp * times))
    if rows is None:
        rows = count(s.get("batch_per_dp")) or 1
    if times is None:
        times = max(1, round(whole / (rows * dp))) if whole else 1
    return rows, times


def sharding(s: Row, framework: str) -> str:
    """The recipe's word for how states are shared: the row's own, else the framework's default."""
    text = str(s.get("sharding") or ("fsdp" if s.get("fsdp") else "")).lower()
    if "zero-3" in text or "zero3" in text:
        return "zero3"
    if "zero-2" in text or "shard_grad_op" in text:
        return "zero2" if "zero" in text else "fsdp1"
    if "zero-1" in text or "zero1" in text or "zero-0" in text:
        return "zero1"
    if "zero" in text:  # XTuner's 70B and DeepSpeed's large runs do not fit below stage 3
        return "zero3"
    if "fsdp" in text or "full_shard" in text or "hsdp" in text:
        return "fsdp2" if framework == "torchtitan" else "fsdp1"
    if framework == "qwen_finetune":  # finetune/ds_config_zero3.json for full runs, zero2 for adapters (QwenLM/Qwen)
        return "zero3" if str(s.get("method")) == "full" else "zero2"
    return "distributed_optimizer" if framework.startswith("megatron") else "fsdp1" if framework == "jax" else "ddp"


def shards(s: Row, ranks: int) -> int:
    """Ranks that share one copy of the weights."""
    told = re.search(r"FSDP (\d+)", str(s.get("sharding") or ""))
    return min(ranks, int(told[1])) if told and int(told[1]) > 1 else min(8, ranks) if "HSDP" in str(s.get("sharding")) else ranks


def recomputation(row: Row, layers: int, framework: str) -> dict[str, Any]:
    """``recomputed``, ``repeated`` and ``repeated_share`` of the job. A printed HFU beside an MFU tells the share of layers."""
    s, measured = row["settings"], row["measured"]
    if own := bridge_recipe(row):
        if own.get("layers"):  # recompute_method "block": so many layers of each stage
            stage = max(1, layers // (count(s.get("pp")) or 1))
            return {"recomputed": "full", "repeated_share": min(1.0, own["layers"] / stage)}
        return {"recomputed": "selective" if own.get("again") else "none", "repeated": tuple(own.get("again", ()))}
    lowered = str(s.get("activation_checkpointing") or _default_recomputation(row)).lower()
    kind: Recomputed = "selective"
    if lowered in ("", "none", "no", "minimal_flash"):
        return {"recomputed": "none"}
    if lowered.startswith("full"):
        return {"recomputed": "full"}
    mfu, hfu = measured.get("mfu_pct"), measured.get("hfu_pct")
    if finite(mfu) and finite(hfu) and 0 < mfu <= hfu and not framework.startswith("megatron"):
        return {"recomputed": "full", "repeated_share": min(1.0, 3 * (hfu / mfu - 1))}
    if "selective layer" in lowered:  # torchtitan's selective_ac_option "2": every second layer
        return {"recomputed": "full", "repeated_share": 0.5}
    found = next((words for begun, words in _AGAIN.items() if lowered.startswith(begun)), None)
    if found is None:
        found = _AGAIN["selective op"] if framework == "torchtitan" else ("core_attn",)
    return {"recomputed": kind, "repeated": found}


def _default_recomputation(row: Row) -> str:
    """What a framework runs again where the row is silent.

    Paxml's base experiment saves nothing of a layer (paxml/tasks/lm/model_params.py, CHECKPOINT_POLICY SAVE_NOTHING); its GPT 5B
    for GPUs saves the products of its weights (paxml/contrib/gpu/scripts_gpu/configs.py, SAVE_DOT_WITH_NO_BATCH_DIM).
    """
    if "paxml" not in str(row.get("framework")).lower() or not str(row.get("model_id")).startswith("gpt3"):
        return ""
    return (
        "all but linear products"
        if str(row.get("model_id")).endswith("5b") and "175b" not in str(row.get("model_id"))
        else "full"
    )


def products(text: str) -> str:
    """The number format of the matrix products."""
    if _FP4.search(text) and "nf4" not in text:
        return "nvfp4"
    return "fp8" if _FP8.search(text) else "bf16"


def scaling(text: str) -> Scaling:
    """What shares a scale of 8-bit products."""
    lowered = text.lower()
    return "row" if "row" in lowered else "block" if "mx" in lowered else "tensor"


def adapted(row: Row, method: str) -> tuple[str, ...]:
    """Products with adapters: those of the modules that the row names, else its framework's.

    NeMo's default is attention_qkv, Megatron-Bridge's performance recipes adapt linear_qkv alone.

    Source: NeMo, examples/nlp/language_modeling/tuning/conf, lora_tuning; Megatron-Bridge, perf_recipes/llama, peft.
    """
    if told := re.findall(r"\w+_proj", str(row["settings"].get("lora_targets") or "")):
        return tuple(dict.fromkeys(_PRODUCT_OF[name] for name in told if name in _PRODUCT_OF))
    return ("qkv",) if method == "lora" and any(word in str(row.get("framework")).lower() for word in ("bridge", "nemo")) else ()


def drops(row: Row) -> bool:
    """Whether adapters' inputs pass a dropout: as the row says, else by the framework's own default.

    torchtune, recipes/configs: lora_dropout 0.0; LLaMA-Factory, hparams/finetuning_args.py; Unsloth's fast path; Automodel,
    components/_peft/lora.py PeftConfig.dropout; NeMo and Megatron-Bridge, peft/lora.py LoRA.dropout. Qwen's finetune.py has 0.05.
    """
    told = row["settings"].get("lora_dropout")
    return told > 0 if finite(told) else not str(row.get("framework")).lower().startswith(_UNDROPPED)


def unpacks(s: Row, method: str) -> str:
    """How frozen weights are unpacked (``work.UNPACKED_BYTES``)."""
    text = str(s.get("precision") or "").lower()
    if "gptq" in text or "awq" in text:
        return "operations"
    return "kernel" if method == "qlora" or "nf4" in text or "int4" in text else ""


def offloads(s: Row) -> tuple[str, ...]:
    """What the row keeps on the host."""
    return ("optimizer",) if s.get("cpu_offload") is True or _OFFLOADS.search(str(s.get("sharding") or "")) else ()


def count(value: object, gpus: int = 0) -> int | None:
    """A whole number of at least 1; of text as "32 (128 GPUs) / 64" the one for this many cards."""
    if isinstance(value, str) and (told := _FOR_GPUS.match(value)):
        return int(told[1]) if int(told[2]) == gpus or not told[3] else int(told[3])
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return int(value) if finite(value) and value >= 1 else None  # type: ignore[call-overload, operator]


def reduced_bytes(row: Row, framework: str) -> int:
    """Bytes of a gradient as ranks add it up.

    Megatron adds in float32, its performance recipes in 16 bits (Megatron-Bridge, perf_recipes/_common.py); Composer's DEFAULT
    mode adds in float32, PURE in 16 bits; torchtitan knows only float32 (torchtitan/config, mixed_precision_reduce).
    """
    if "bridge" in str(row.get("framework")).lower():
        return 2
    return 4 if framework.startswith(("megatron", "torchtitan")) or row["settings"].get("mp_mode") == "DEFAULT" else 2


def gathered_bytes(row: Row, framework: str) -> int:
    """Bytes of a weight as ranks gather it: as the row says, else by the framework's rule."""
    text = str(row["settings"].get("precision"))
    if re.search(r"\b(f8|float8|fp8) all-gather", text):
        return 1
    return 2 if "bf16 all-gather" in text else job_gathers(framework, products(text), scaling(text))


def kernels_of(row: Row, framework: str) -> str:
    """The framework whose kernels run: layers of Transformer Engine are Megatron's, whoever calls them."""
    return "megatron" if str(row["settings"].get("precision")).startswith("TE ") else framework


def compiled(row: Row, framework: str) -> bool:
    """Whether a compiler fuses the layers' small kernels."""
    return bool(row["settings"].get("compile", framework in COMPILED))


def attention(row: Row, framework: str) -> Attention:
    """The generation of the attention kernel that this framework ran at the row's time."""
    name, version, model = (str(row.get(key) or "").lower() for key in ("framework", "version", "model_id"))
    if framework == "megatron_deepspeed" or "2205.05198" in version:
        return "unfused"  # Megatron's fused softmax over scores in memory, before flash attention (2021 and 2022)
    if framework == "jax" and "te " not in str(row["settings"].get("precision")).lower() and "paxml" in name:
        return "unfused"  # XLA's own attention; Transformer Engine brings cuDNN's
    if framework == "megatron" and "gpt-oss" in model and row["settings"].get("known_issue"):
        return (
            "unfused"  # attention with sinks left cuDNN in container 26.06.01 (cudnn-frontend issue 256, noted under its table)
        )
    if framework in ("megatron", "jax") or kernels_of(row, framework) == "megatron":
        return "cudnn"
    if (
        "xtuner" in name
    ):  # its sequence parallelism needs FlashAttention 2 on any torch (docs/zh_cn/legacy/acceleration/flash_attn.rst)
        return "flash2"
    return "flash1" if framework == "llm_foundry" or "torch 1.13" in version else "flash2"


def launching(row: Row) -> dict[str, Any]:
    """What the row, or its framework's published recipes, run beside the products or replay from graphs."""
    s, name = row["settings"], str(row.get("framework")).lower()
    recipes = (
        "bridge" in name or "nemo" in name
    )  # both turn on TP user-buffer overlap where tp > 1 (comm_overlap.tp_comm_overlap)
    model, variant = str(row.get("model_id")).lower(), str(s.get("variant") or "").lower()
    own = bridge_recipe(row)
    flexible = own.get("dispatcher") or s.get("deepep") is True
    # grok1/launch.sh of dgxc-benchmarking replays whole layers on GB200, which needs experts padded to a capacity.
    whole = "dgxc" in name and "grok" in model and str(row.get("gpu")).startswith("GB200")
    padded = "tokendrop" in variant or whole
    return {
        "overlaps_tensor": s.get("async_tp") is True or recipes,
        "overlaps_experts": bool(own.get("overlap")) or str(s.get("overlap") or "none") not in ("none", "zero", "zero/tp"),
        "graphed": 1.0 if whole else captured(own.get("graphs", "")),
        "dispatcher": "padded" if padded else "flex" if flexible else "alltoall",
        "fused_experts": bool(own.get("fused")),
        "expert_tp": count(s.get("etp")) or 1,
        "predicts_ahead": recipes and any(word in model for word in _AHEAD) and "w/o mtp" not in variant,
    }


def bridge_recipe(row: Row) -> dict[str, Any]:
    """Megatron-Bridge's recipe of the row; empty for other frameworks."""
    if "bridge" not in str(row.get("framework")).lower():
        return {}
    s, told = row["settings"], str(row["settings"].get("task") or "").lower()
    task = told if told in ("sft", "lora") else "pretrain"
    card = str(row.get("gpu")).partition("-")[0].partition(" ")[0]
    return recipe_of(str(row.get("model_id")), task, card, str(s.get("precision")), str(row.get("version")))
