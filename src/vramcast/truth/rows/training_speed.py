"""Rows of training speed: tokens per second and step times with their layout, beside the forecast of the same step."""

import re
from typing import Any

from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.cards import find_accelerator
from vramcast.models.inventory import Model
from vramcast.models.reading import read_model
from vramcast.speed.training.job import Job, Recomputed
from vramcast.speed.training.step import StepTime, step_time
from vramcast.training.shape import Shape, shape_model
from vramcast.truth.judgement import Judgement, Pair, Unexpressed
from vramcast.untrusted import finite

Row = dict[str, Any]

# How a row's framework is called here, longest beginnings first.
FRAMEWORKS = (
    ("megatron-deepspeed", "megatron_deepspeed"), ("megatron", "megatron"), ("nemo", "megatron"), ("llm-foundry", "llm_foundry"),
    ("torchtitan", "torchtitan"), ("hf trainer + deepspeed (qwen", "qwen_finetune"), ("hf trainer", "hf_trainer"),
    ("xtuner", "hf_trainer"), ("easycontext", "hf_trainer"), ("fsdp_qlora", "fsdp_qlora"), ("fms-fsdp", "fms_fsdp"),
    ("paxml", "jax"), ("maxtext", "jax"), ("colossal", "colossalai"), ("tinyllama", "litgpt"), ("litgpt", "litgpt"),
    ("torchtune", "torchtune"), ("deepspeed", "deepspeed"),
)  # fmt: skip
_COMPILED = frozenset({"jax", "torchtitan", "fms_fsdp"})
_FP8 = re.compile(r"fp8|mxfp8|float8", re.IGNORECASE)
_FP4 = re.compile(r"nvfp4|mxfp4|\bfp4", re.IGNORECASE)
_DESCRIBED = re.compile(r"h=(\d+), L=(\d+)(?:, vocab (\d+)k)?|L=(\d+),h=(\d+),a=(\d+)")
_OFFLOADS = re.compile(r"offload", re.IGNORECASE)


def judge(row: Row) -> Judgement:
    """The row beside its forecast. Raises Unexpressed with the reason when it cannot be asked."""
    answer, model = forecast_of(row)
    settings = row["settings"]
    keys = {
        "engine": answer.job.framework, "source": row.get("source") or "", "version": str(row.get("version") or ""),
        "gpu": str(row.get("gpu")), "recompute": answer.job.recomputed, "quant": answer.job.products, "family": model.family,
        "method": str(settings.get("method") or "full"),
        "parallel": "+".join(f"{k}{n}" for k in ("tp", "pp", "cp", "ep") if (n := getattr(answer.job, k)) > 1) or "dp",
    }  # fmt: skip
    return Judgement(
        id=row["id"], keys=keys, pairs=(Pair(measure="step_s", predicted=answer.step_s, measured=measured_s(row, answer.job)),)
    )


def forecast_of(row: Row) -> tuple[StepTime, Model]:
    """The forecast of a row's step, and its model. Raises Unexpressed."""
    try:
        model, card = model_of(row), card_of(row)
        job = job_of_row(row, model)
        return step_time(job, model, card), model
    except VramcastError as error:
        raise Unexpressed(str(error)) from error


def job_of_row(row: Row, model: Model) -> Job:
    """The row's words as a job. Raises Unexpressed for a batch or a layout that the row does not tell."""
    s, gpus = row["settings"], int(row.get("n_gpus") or 1)
    framework = framework_of(str(row.get("framework")))
    tp, pp, cp, ep, vpp = (_count(s.get(k)) or 1 for k in ("tp", "pp", "cp", "ep", "vp"))
    if gpus % (tp * pp * cp):
        raise Unexpressed(f"{gpus} cards do not divide into tp {tp} x pp {pp} x cp {cp}")
    dp, seq = gpus // (tp * pp * cp), _count(s.get("seq_len"))
    if not seq:
        raise Unexpressed("the row tells no sequence length")
    rows, micro_batches = _batch(s, dp)
    method = str(s.get("method") or "full").lower()
    frozen = "lora" in method or "adapter" in method
    sharding = _sharding(s, framework)
    offload = ("optimizer",) if s.get("cpu_offload") is True or _OFFLOADS.search(str(s.get("sharding") or "")) else ()
    return Job(
        seq=seq, rows=rows, micro_batches=micro_batches, gpus=gpus, tp=tp, pp=pp, vpp=vpp, cp=cp, ep=min(ep, dp * tp), dp=dp,
        sequence_parallel=tp > 1 and framework in ("megatron", "torchtitan"), sharding=sharding,
        shards=_shards(s, dp * cp), regathers=str(s.get("sharding")) != "SHARD_GRAD_OP",
        recomputed=_recomputed(str(s.get("activation_checkpointing") or "")), products=_products(str(s.get("precision") or "")),
        reduce_bytes=4 if framework.startswith("megatron") else 2, frozen=frozen,
        trained_parameters=model.parameters // 200 if frozen else model.parameters,
        dequantizes="qlora" in method or "nf4" in str(s.get("precision")) or "int4" in str(s.get("precision")),
        overlaps_experts=bool(s.get("overlap")), offload=offload, framework=framework,
        compiled=bool(s.get("compile", framework in _COMPILED)),
    )  # fmt: skip


def framework_of(text: str) -> str:
    """Our name of a row's framework. Raises Unexpressed for one without a kind of kernels."""
    lowered = text.lower()
    found = next((name for begun, name in FRAMEWORKS if lowered.startswith(begun)), None)
    if found is None:
        raise Unexpressed(f"no rules for the framework {text[:60]!r}")
    return found


def whole_row(row: Row) -> Row:
    """The raw shape of a row of the project's own corpus; a raw row as it is."""
    if "form" not in row:
        return row
    from vramcast.truth.rows.own import restore_row

    return restore_row(row)


def model_of(row: Row) -> Model:
    """The row's model: by its id, or by the numbers that stand in its name or settings. Raises VramcastError."""
    name, s = str(row.get("model_id")), row["settings"]
    found = _DESCRIBED.search(name)
    if found and found[1]:
        heads = _count(s.get("n_heads")) or int(found[1]) // 128
        vocab = int(found[3] or 50) * 1000
        shape = Shape(
            layers=int(found[2]), hidden=int(found[1]), heads=heads, vocab=vocab, gated=False, ffn=4 * int(found[1]), tied=True,
            position="alibi", norm="layernorm", bias=True,
        )  # fmt: skip
        return shape_model(shape)
    return read_model(name, offline=True)


def card_of(row: Row) -> Accelerator:
    """The row's card; remarks in brackets (a power cap) are not part of its name."""
    return find_accelerator(re.sub(r"\s*\(.*\)", "", str(row.get("gpu"))))


def measured_s(row: Row, job: Job) -> float:
    """Seconds of the measured step: printed, or from tokens per second. Raises Unexpressed where neither is told."""
    measured = row["measured"]
    rate = measured.get("tokens_per_s_per_gpu")
    if finite(measured.get("step_time_s")):
        return float(measured["step_time_s"])
    if not finite(rate) or rate <= 0:
        raise Unexpressed("the row tells neither a step time nor tokens per second")
    return job.tokens / float(rate) / job.gpus


def _batch(s: Row, dp: int) -> tuple[int, int]:
    rows, whole, times = (_count(s.get(k)) for k in ("micro_batch_size", "global_batch_size", "grad_accum"))
    if rows is None and whole is not None and times is not None:
        rows = max(1, whole // (dp * times))
    if rows is None:
        rows = _count(s.get("batch_per_dp")) or 1
    if times is None:
        times = max(1, round(whole / (rows * dp))) if whole else 1
    return rows, times


def _sharding(s: Row, framework: str) -> str:
    text = str(s.get("sharding") or ("fsdp" if s.get("fsdp") else "")).lower()
    if "zero-3" in text or "zero3" in text:
        return "zero3"
    if "zero-2" in text or "shard_grad_op" in text:
        return "zero2" if "zero" in text else "fsdp1"
    if "zero" in text:
        return "zero1"
    if "fsdp" in text or "full_shard" in text or "hsdp" in text:
        return "fsdp2" if framework == "torchtitan" else "fsdp1"
    if framework == "qwen_finetune":  # finetune/ds_config_zero3.json for full runs, zero2 for adapters (QwenLM/Qwen)
        return "zero3" if str(s.get("method")) == "full" else "zero2"
    return "distributed_optimizer" if framework.startswith("megatron") else "fsdp1" if framework == "jax" else "ddp"


def _shards(s: Row, ranks: int) -> int:
    told = re.search(r"FSDP (\d+)", str(s.get("sharding") or ""))
    return min(ranks, int(told[1])) if told and int(told[1]) > 1 else min(8, ranks) if "HSDP" in str(s.get("sharding")) else ranks


def _recomputed(text: str) -> Recomputed:
    lowered = text.lower()
    if lowered in ("", "none", "no", "minimal_flash"):
        return "none"
    return "full" if lowered.startswith("full") else "selective"


def _products(text: str) -> str:
    if _FP4.search(text) and "nf4" not in text:
        return "nvfp4"
    return "fp8" if _FP8.search(text) else "bf16"


def _count(value: object) -> int | None:
    return int(value) if finite(value) and value >= 1 else None  # type: ignore[call-overload, operator]
