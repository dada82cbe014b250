"""A training row as a question: framework, recipe and layout from a report's words."""

import re
from typing import Any, get_args

from vramcast.errors import VramcastError
from vramcast.training.frameworks.common import DEEPSPEED_FLATTENS, DEEPSPEED_LATE_BUCKETS, DEEPSPEED_READ
from vramcast.training.optimizers.rules import optimizer
from vramcast.training.recipe.parts import Module
from vramcast.training.stage_layouts import chunks_of
from vramcast.truth.rows.training_adapter import adapter_of, method_of
from vramcast.truth.rows.training_keys import OFFLOAD, same_keys
from vramcast.truth.rows.training_words import ATTENTION, DTYPES, FRAMEWORKS, LOSS, MERGED, NARROW, PREFERENCES, month_of_commit
from vramcast.workload import Parallel, Training


def question_of(row: dict[str, Any]) -> Training:
    """The question a row asks. Raises VramcastError when something it needs is absent."""
    row = same_keys(row)
    s = row["settings"]
    parallel = s.get("parallel") or {}
    seq = s.get("seq_len")
    if not seq or not s.get("micro_batch"):
        raise VramcastError("no sequence length" if not seq else "no micro-batch")
    return Training(
        model=row["model_id"],
        gpu=None,
        gpus=row.get("n_gpus") or 1,
        framework=framework_of(row["framework"]),
        framework_version=_version(row),
        method=method_of(row["method"]),
        adapter=adapter_of(row),
        micro_batch=int(s["micro_batch"]),
        seq=int(seq),
        accumulate=1 if parallel.get("pp_naive") else int(s.get("grad_accum") or _micro_batches(s, parallel)),
        checkpointing=_checkpointing(str(s.get("activation_checkpointing") or "")),
        attention=_first(str((s.get("flags") or {}).get("attention-backend") or s.get("attention") or ""), ATTENTION),
        loss=_loss(s),
        compute_dtype=_first(str(s.get("compute_dtype") or ""), NARROW),
        compile=s.get("compile") is True or "inductor" in str(s.get("compile")) or None,
        optimizer=_optimizer(str(s.get("optimizer") or "")),
        zero=_zero(parallel, row["framework"]),
        fsdp=_fsdp(parallel, row["framework"]),
        offload=_offload(s),
        parallel=_layout(parallel, row.get("arch") or {}, s.get("flags") or {}),
        options=_options(row),
    )


def framework_of(text: str) -> str:
    """The framework's name here for a report's words."""
    lowered = text.lower()
    found = next((name for word, name in FRAMEWORKS if word in lowered), None)
    if found is None:
        raise VramcastError(f"framework {text!r} is not known")
    return found


def _version(row: dict[str, Any]) -> str | None:
    text = str(row.get("framework_version") or "")
    own = re.search(r"unsloth (20\d\d\.\d+)", text)
    if own:
        return own[1]
    dated = re.search(r"(20\d\d)-(\d\d)", text)
    if dated and "transformers" not in text:
        return f"{dated[1]}.{int(dated[2])}"
    merged = next((month for commit, month in MERGED.items() if commit in text), None)
    if merged or "torchtitan" in row["framework"].lower():
        merged = merged or month_of_commit(f"{text} {row.get('source') or ''}")
    if merged:
        return merged
    year = re.search(r"\b(20\d\d)\b(?!-)", text)
    if year and "transformers" not in text:
        return f"{year[1]}.6"  # its middle
    core = re.search(r"core[ _]r?v?(\d+(?:\.\d+)+)", text)  # Megatron's, beside Bridge's own or alone
    if core and "egatron" in row["framework"]:
        return core[1]
    leading = re.match(r"v?(\d+(?:\.\d+)+)", text)
    beneath = None if leading and framework_of(row["framework"]) == "trl" else re.search(r"transformers (\d[\d.]*)", text)
    match = beneath or leading
    return match[1].rstrip(".") if match else None


def _first(text: str, table: tuple[tuple[str, str], ...]) -> str | None:
    """What the first word of the table that stands in the text means; hyphens, underscores and spaces are one."""
    plain = _plain(text)
    return next((name for word, name in table if _plain(word) in plain), None)


def _plain(text: str) -> str:
    return re.sub(r"[-_\s]+", " ", text.lower())


def _loss(s: dict[str, Any]) -> str | None:
    """The loss in words, or by Megatron's flags: --cross-entropy-loss-fusion is its native one unless another is named.

    Source: Megatron-LM core 0.16.1, model_parallel_config.py: cross_entropy_fusion_impl "native".
    """
    flags = s.get("flags") or {}
    told = _first(str(s.get("cross_entropy") or ""), LOSS)
    if not flags.get("cross-entropy-loss-fusion") or told not in (None, "vocab_parallel"):
        return told
    return "fused" if flags.get("cross-entropy-fusion-impl") == "te" else "vocab_parallel_copy"


def _micro_batches(s: dict[str, Any], parallel: dict[str, Any]) -> int:
    whole, dp = int(s.get("global_batch") or 0), int(parallel.get("dp") or 1)
    return max(1, whole // (dp * int(s["micro_batch"])))


def _checkpointing(text: str) -> str | None:
    if text.startswith("unsloth"):
        return "offloaded"
    if text.startswith("selective-op"):
        return "op"
    modules = re.match(r"selective[\s:(]*\[?([a-z_, ]+?)\]?\)?$", text)
    named = [word for word in re.split(r"[,\s]+", modules[1]) if word] if modules else []
    if named and set(named) <= set(get_args(Module)):
        return f"modules:{'+'.join(named)}"
    chunks = re.match(r"full \((?:uniform, )?(\d+) layers\)", text)
    if chunks:
        return f"uniform:{chunks[1]}"
    return next((w for w in ("full", "selective", "none") if text.startswith(w)), None)


def _optimizer(text: str) -> str | None:
    lowered = text.lower()
    if not lowered:
        return None
    if lowered.startswith("none"):
        return "none"
    four, eight = "4bit" in lowered or "4-bit" in lowered, "8bit" in lowered or "8-bit" in lowered
    if "torchao" in lowered or lowered == "adamw_torch_8bit" or four:
        return "adamw_torchao_4bit" if four else "adamw_torchao_8bit"
    if "muon" in lowered:
        return "muon"
    paged = "paged" in lowered
    if "adam" in lowered or lowered in _ADAMW_BENEATH:
        return ("paged_adamw_8bit" if eight else "paged_adamw") if paged else ("adamw_8bit" if eight else "adamw")
    return optimizer(re.split(r"[\s(]", lowered, maxsplit=1)[0]).name


_ADAMW_BENEATH = ("lora-fa",)  # peft 0.21, optimizers/lorafa.py: AdamW's two moments, of B alone


def _zero(parallel: dict[str, Any], framework: str) -> int | None:
    stage, impl = parallel.get("zero_stage"), str(parallel.get("impl") or "")
    piped = "deepspeed" in impl.lower() and int(parallel.get("pp") or 1) > 1  # its PipelineEngine, whatever the stage
    if _fsdp(parallel, framework) or ("egatron" in impl and "DeepSpeed" not in impl) or not (stage or piped):
        return None
    return int(stage or 0)


_FULLY_SHARDS = ("torchtitan", "torchtune")  # no DeepSpeed in them: a stage 3 is fully_shard


def _fsdp(parallel: dict[str, Any], framework: str) -> int | None:
    impl = str(parallel.get("impl") or "").lower()
    if "no_shard" in impl:
        return None
    if not impl and parallel.get("zero_stage") == 3 and any(name in framework.lower() for name in _FULLY_SHARDS):
        return 2
    megatron = "megatron" in impl and "fsdp" in impl
    return 2 if megatron or re.search(r"fsdp ?v?2|fully_shard", impl) else 1 if "fsdp" in impl else None


def _keeps_gathered(parallel: dict[str, Any], framework: str) -> bool:
    """Whether FSDP shards gradients and states alone (SHARD_GRAD_OP, reshard_after_forward=False): what ZeRO calls stage 2."""
    return parallel.get("zero_stage") == 2 and _fsdp(parallel, framework) is not None


_MOVED = (("parameters", "param"), ("optimizer", "optim"), ("gradients", "gradient"))


def _offload(s: dict[str, Any]) -> tuple[str, ...]:
    """What lies on the host: a table of parts, or words as "optimizer and parameters to CPU"."""
    given = s.get("offload") or {}
    if isinstance(given, str | list):
        text = " ".join(given) if isinstance(given, list) else given
        parts = tuple(name for name, word in _MOVED if word in text.lower())
        return parts + (("activations",) if "activation" in text.lower() or s.get("activation_offload") else ())
    parts = tuple(part for key, part in OFFLOAD.items() if str(given.get(key)).lower() in ("true", "cpu", "host"))
    return parts + (("activations",) if s.get("activation_offload") else ())


def _layout(p: dict[str, Any], arch: dict[str, Any], flags: dict[str, Any]) -> Parallel:
    vpp = str(p.get("vpp") or flags.get("num-virtual-stages-per-pipeline-rank") or "1")
    if written := flags.get("pipeline-model-parallel-layout"):
        vpp = str(chunks_of(str(written), int(p.get("pp") or 1)))
    if vpp.startswith("layers_per_stage="):
        vpp = str(int(arch.get("layers") or 1) // (int(p.get("pp") or 1) * int(vpp.split("=")[1])))
    return Parallel(
        tp=p.get("tp") or 1,
        pp=p.get("pp_naive") or p.get("pp") or 1,
        dp=p.get("dp") or 1,
        ep=p.get("ep") or 1,
        cp=p.get("cp") or 1,
        sp=bool(p.get("sp")),
        vpp=max(1, int(vpp)) if vpp.isdigit() else 1,
        replicate=_instances(flags),
    )


def _instances(flags: dict[str, Any]) -> int:
    """Replicas of Megatron's distributed optimizer, each divided over its own ranks."""
    written = str(flags.get("num-distributed-optimizer-instances", 1))
    return int(written) if written.isdigit() else 1


def _options(row: dict[str, Any]) -> dict[str, Any]:
    """Decisions the row states outright, by recipe field."""
    s = row["settings"]
    options = _dtype_options(s) | _quant_options(row) | _layout_options(s) | _LENIENT
    task = str(s.get("task") or "")
    if task in PREFERENCES:
        options["task"] = task
    implementation = str(s.get("optimizer_impl") or "")
    update = next((u for w, u in _UPDATES if w in implementation), "fused" if implementation == "fused" else None)
    if update:
        options["update"] = update
    stage = (s.get("parallel") or {}).get("zero_stage")
    copies = str((s.get("parallel") or {}).get("impl") or "").lower() in ("ddp", "ddp replicated", "replicated")
    alone = (s.get("parallel") or {}).get("dp") == 1
    whole = stage == 0 and any(name in row["framework"] for name in (("Megatron-LM",) if alone else ("DeepSpeed", "Megatron-LM")))
    if "replicated" in implementation or whole or copies:
        options["sharding"] = "ddp"
    if any(word in str(s.get("seq_kind")) for word in _VARYING):
        options["lengths"] = "variable"
    if "first iteration" in str(s.get("seq_kind")):
        options["longest_first"] = True
    tail = re.search(r"fp[48] \((?:layers 0-(\d+)|last layers)", str(s.get("compute_dtype")))
    if tail:
        options["narrow_layers"] = int(tail[1]) + 1 if tail[1] else int(LEADING * int((row.get("arch") or {}).get("layers") or 0))
    options |= _kernel_options(row)
    if s.get("fused_norm_rope") is True:
        options |= {"norm": "fused", "rope": "fused"}
    if str(s.get("reshard_after_forward")).startswith("never") or _keeps_gathered(s.get("parallel") or {}, row["framework"]):
        options["reshard"] = False
    engine = re.match(r"0\.\d+(\.\d+)?", str(row.get("framework_version"))) if "DeepSpeed" in row["framework"] else None
    if engine:
        release = tuple(map(int, engine[0].split(".")))
        options["flattens_beside"] = release >= DEEPSPEED_FLATTENS
        if stage in (1, 2) and release >= DEEPSPEED_READ and framework_of(row["framework"]) == "deepspeed":
            options["buckets_from"] = "gradients" if release >= DEEPSPEED_LATE_BUCKETS else "loss"
    if "expandable" in str(s.get("allocator")):
        options["expandable"] = True
    dropout = s.get("dropout") or {}
    options |= {f"{kind}_dropout": float(dropout[kind]) for kind in ("hidden", "attention") if dropout.get(kind)}
    return options


def _kernel_options(row: dict[str, Any]) -> dict[str, Any]:
    """Norms, fused adapters, frozen towers and the loss of a loop around a model of its own."""
    s = row["settings"]
    options: dict[str, Any] = {}
    norm = str(s.get("norm") or "").lower()
    if re.search("liger|fused", norm):
        options["norm"] = "fused"
    options |= {name: "fused" for word, name in (("rope", "rope"), ("swiglu", "glu")) if word in norm}
    kernels = str((s.get("adapters") or {}).get("kernels") or s.get("kernels") or "").lower()
    if "fused" in kernels:
        options |= {"fused_adapter": True, **({"glu": "fused"} if "mlp" in kernels else {})}
    if "f.cross_entropy" in str(s.get("cross_entropy")).lower() and framework_of(row["framework"]) == "pytorch":
        # a loop around a model of its own, whose logits no library makes float
        options |= {"direct_loss": True, "holds_logits": _named_logits(s)}
    if s.get("freeze_vision_tower") is True:
        options["freezes_towers"] = True
    return options


def _named_logits(s: dict[str, Any]) -> str:
    """The type of the logits that a variable names through backward, where the row says that one does."""
    return _first(str(s.get("compute_dtype")), DTYPES) or "" if "names" in str(s.get("cross_entropy")) else ""


def _layout_options(s: dict[str, Any]) -> dict[str, Any]:
    """How layers, experts and micro-batches are spread over the ranks."""
    parallel, flags = s.get("parallel") or {}, s.get("flags") or {}
    group = flags.get("microbatch-group-size-per-virtual-pipeline-stage")
    found = {
        "reduce_bucket": parallel.get("reduce_bucket_size"),
        "spread": bool(parallel.get("pp_naive")) or None,
        "stage_cut": "balanced_ends" if "embed" in str(parallel.get("partition")) else None,
        "stage_layout": str(flags["pipeline-model-parallel-layout"]) if flags.get("pipeline-model-parallel-layout") else None,
        "offload_modules": tuple(re.findall(r"[a-z_0-9]+", str(flags.get("offload-modules") or ""))) or None,
        "cp_comm": "a2a" if "a2a" in str(flags.get("cp-comm-type")) or _exchanges(parallel) else None,
        "expert_tp": int(parallel["etp"]) if parallel.get("etp") else None,
        "microbatch_group": int(group) if group else None,
        "one_graph": "graph trainer" in str(parallel.get("impl")) or None,
        "overlaps_experts": bool(flags.get("overlap-moe-expert-parallel-comm")) or None,
        "placeholders": False if flags.get("no-gradient-accumulation-fusion") else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _exchanges(parallel: dict[str, Any]) -> bool:
    return bool(parallel.get("ulysses")) or "ulysses" in str(parallel.get("impl")).lower()


LEADING = 0.85  # of the layers that NVFP4's recipe quantises when only its 16-bit tail is named (arXiv 2509.25149)
_LENIENT = {"extends_positions": True, "uneven_stages": True}  # reports of runs that did run
_VARYING = ("longest kept", "dynamic")
_UPDATES = (("foreach", "foreach"), ("backward", "in_backward"), ("loop", "loop"))


def _dtype_options(s: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    held, compute = str(s.get("param_dtype") or ""), _first(str(s.get("compute_dtype") or ""), DTYPES)
    if compute:
        options["compute"] = compute
    if held and "not stated" not in held and "/" not in held:
        options["weights"] = "float32" if held.startswith("fp32") else _first(held, DTYPES[1:]) or compute
    if mixed := str(s.get("amp") or ""):
        options["autocast"] = "autocast" in mixed
    options |= _gradients(s)
    adapter = (s.get("adapters") or {}).get("dtype")
    if adapter:
        options["adapter_dtype"] = _first(str(adapter), DTYPES)
    return options


def _gradients(s: dict[str, Any]) -> dict[str, Any]:
    """Types of gradients and of the optimizer's states, in words or by Megatron's flags.

    Source: Megatron-LM core 0.16.1, training/arguments.py: --grad-reduce-in-bf16, --main-grads-dtype, --exp-avg-dtype.
    """
    flags, told = s.get("flags") or {}, str(s.get("grad_dtype") or "")
    gradients = _first(told.split(" ", 1)[0], DTYPES)
    if gradients is None and (flags.get("grad-reduce-in-bf16") or flags.get("main-grads-dtype") in ("bf16", "fp16")):
        gradients = _first(str(flags.get("main-grads-dtype") or "bf16"), DTYPES)
    moments = str(s.get("optimizer_dtype") or flags.get("exp-avg-dtype") or "")
    states = _first(moments.split(",", maxsplit=1)[0], DTYPES) if re.search("moment|state|^[bf]p?f?16$", moments) else None
    master = re.search(r"(bf16|fp16|fp32) master", moments)
    found = {"gradients": gradients, "states": states, "master": _first(master[1], DTYPES) if master else None}
    found["reduce"] = _first(str(s.get("reduce_dtype") or ""), DTYPES)
    return {name: value for name, value in found.items() if value}


def _quant_options(row: dict[str, Any]) -> dict[str, Any]:
    """The quantised base; fms-acceleration's plugins quantise twice, skip the k-bit upcasts and fuse the adapters."""
    s, config = row["settings"], str(row["settings"].get("framework_config"))
    options: dict[str, Any] = {}
    quant = s.get("quant")
    if quant:
        options["quant"] = _quant_word(quant)
    if quant == "bnb-nf4-dq" or "fms" in row["framework"]:
        options["double_quant"] = True
    if s.get("kbit_prepared") is True:  # the script's own call of prepare_model_for_kbit_training
        options["unquantized"] = "float32"
    if config.startswith("accelerated-peft"):
        options["unquantized"] = _first(str(s.get("compute_dtype")), DTYPES) or ""
        options["fused_adapter"] = "foak" in config
    return options


def _quant_word(quant: str) -> str:
    """The report's scheme as recipes name it: AutoGPTQ in 4 or 8 bits, LLM.int8, AWQ, else NF4."""
    if "gptq" in quant:
        return "gptq8" if "int8" in quant or "8bit" in quant else "gptq"
    if "awq" in quant:
        return "awq"
    return "int8" if "int8" in quant else "nf4"
