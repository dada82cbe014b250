"""Rows of training speed: tokens per second and step times with their layout, beside the forecast of the same step."""

import re
from typing import Any

from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.cards import find_accelerator
from vramcast.models.inventory import Model
from vramcast.models.reading import read_model
from vramcast.speed.training.job import Job, runs_every_expert, summed_bytes
from vramcast.speed.training.step import StepTime, step_time
from vramcast.speed.training.unknowns import unknowns
from vramcast.training.methods import THROUGH_TRANSFORMERS
from vramcast.training.shape import Shape, shape_model
from vramcast.truth.judgement import Judgement, Pair, Unexpressed
from vramcast.truth.rows import training_speed_words as words
from vramcast.truth.step_bars import step_interval
from vramcast.untrusted import finite

Row = dict[str, Any]

_DESCRIBED = re.compile(r"h=(\d+), L=(\d+)(?:, vocab (\d+)k)?|L=(\d+),h=(\d+),a=(\d+)")
# Models that a source describes and no hub has. Megatron-Kwai, examples/atc24/llama-175b (b2646e4d9f); KempnerForge,
# benchmarks/mfu_scaling/mfu_bench.sh (its ffn: two thirds of 4 x hidden, x 1.3, up to 256); nanotron's bench_cluster,
# create_configs.py (HuggingFaceFW/ablation-model-fineweb-v1); lsaie-ss26-gipfelsturm, launch.sh (vocabulary of GPT-2, padded).
_NAMED = {
    "llama-13b (kempner)": Shape(layers=40, hidden=5120, heads=40, kv_heads=8, ffn=17920, vocab=128_256),
    "llama-1b (nanotron)": Shape(layers=24, hidden=2048, heads=32, kv_heads=32, ffn=4096, vocab=50_257),
    "llama-760m (gipfelsturm)": Shape(layers=24, hidden=1536, heads=16, kv_heads=4, ffn=4096, vocab=50_304),
    "llama-8b (gipfelsturm)": Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=50_304),
    "llama-175b (kwai)": Shape(layers=96, hidden=12288, heads=96, ffn=32768, vocab=32_000),
}


def judge(row: Row) -> Judgement:
    """The row beside its forecast. Raises Unexpressed with the reason when it cannot be asked."""
    answer, model = forecast_of(row)
    settings = row["settings"]
    keys = {
        "engine": answer.job.framework, "source": row.get("source") or "", "version": str(row.get("version") or ""),
        "gpu": str(row.get("gpu")), "recompute": answer.job.recomputed, "quant": answer.job.products, "family": model.family,
        "method": words.method_of(settings),
        "parallel": "+".join(f"{k}{n}" for k in ("tp", "pp", "cp", "ep") if (n := getattr(answer.job, k)) > 1) or "dp",
    }  # fmt: skip
    bar = step_interval(answer.step_s, unknowns(answer, model, card_of(row)))
    pair = Pair(measure="step_s", predicted=answer.step_s, measured=measured_s(row, answer.job), low=bar.low, high=bar.high)
    doubtful, unread = doubt(row), words.unread(settings)
    return Judgement(
        id=row["id"],
        keys=keys,
        pairs=(pair,),
        quality="C" if doubtful else "A",
        unread=(*unread, *([doubtful] if doubtful else ())),
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
    framework = words.framework_of(str(row.get("framework")))
    tp, pp, cp, ep, vpp = (words.count(s.get(k), gpus) or 1 for k in ("tp", "pp", "cp", "ep", "vp"))
    if framework == "hf_trainer" and words.count(s.get("sequence_parallel")):
        cp = int(s["sequence_parallel"])  # ranks that share one sequence: DeepSpeed-Ulysses (XTuner), a ring (EasyContext)
    if gpus % (tp * pp * cp):
        raise Unexpressed(f"{gpus} cards do not divide into tp {tp} x pp {pp} x cp {cp}")
    dp, seq = gpus // (tp * pp * cp), words.count(s.get("seq_len"))
    if not seq:
        raise Unexpressed("the row tells no sequence length")
    rows, micro_batches = words.batch(s, dp)
    method = words.method_of(s)
    frozen = method != "full"
    return Job(
        seq=seq, rows=rows, micro_batches=micro_batches, gpus=gpus, tp=tp, pp=pp, vpp=vpp, cp=cp, ep=min(ep, dp * cp * tp), dp=dp,
        sequence_parallel=tp > 1 and framework in ("megatron", "nanotron", "torchtitan"), sharding=words.sharding(s, framework),
        shards=words.shards(s, dp * cp), regathers=str(s.get("sharding")) != "SHARD_GRAD_OP",
        **words.recomputation(row, model.layers, framework), products=words.products(str(s.get("precision") or "")),
        weight_bytes=words.gathered_bytes(row, framework), reduce_bytes=words.reduced_bytes(row, framework), frozen=frozen,
        trained_parameters=model.parameters // 200 if frozen else model.parameters, unpacks=words.unpacks(s, method),
        unpacks_experts=words.unpacks(s, method),
        every_expert=runs_every_expert(model.text_class if framework in THROUGH_TRANSFORMERS else ""),
        adapted=words.adapted(row, method), drops=words.drops(row),
        offload=words.offloads(s), framework=words.kernels_of(row, framework), compiled=words.compiled(row, framework),
        attention=words.attention(row, framework), scaling=words.scaling(str(s.get("precision"))),
        summed_bytes=summed_bytes(framework, words.reduced_bytes(row, framework)), **words.launching(row),
    )  # fmt: skip


def doubt(row: Row) -> str:
    """Why a row's words do not decide its time, or nothing."""
    if "power limited" in str(row.get("gpu")):
        return "the cards' power limit is not told"
    if row["settings"].get("moe_capacity"):
        return "experts padded to a capacity in a run that is slower than the same without: its other settings are not told"
    return ""


def whole_row(row: Row) -> Row:
    """The raw shape of a row of the project's own corpus; a raw row as it is."""
    if "form" not in row:
        return row
    from vramcast.truth.rows.own import restore_row

    return restore_row(row)


def model_of(row: Row) -> Model:
    """The row's model: by its id, or by the numbers that stand in its name or settings. Raises VramcastError."""
    name, s = str(row.get("model_id")), row["settings"]
    if name in _NAMED:
        return shape_model(_NAMED[name])
    found = _DESCRIBED.search(name)
    if found and found[1]:
        heads = words.count(s.get("n_heads")) or int(found[1]) // 128
        vocab = int(found[3] or 50) * 1000
        shape = Shape(
            layers=int(found[2]), hidden=int(found[1]), heads=heads, vocab=vocab, gated=False, ffn=4 * int(found[1]), tied=True,
            position="alibi", norm="layernorm", bias=True,
        )  # fmt: skip
        return shape_model(shape)
    return read_model(name, offline=True)


def card_of(row: Row) -> Accelerator:
    """The row's card; remarks in brackets (a power cap) are not part of its name."""
    remarks = str(row.get("gpu"))
    return words.limited(find_accelerator(re.sub(r"\s*\(.*\)", "", remarks)), remarks)


def measured_s(row: Row, job: Job) -> float:
    """Seconds of the measured step: printed, or from tokens per second. Raises Unexpressed where neither is told."""
    measured = row["measured"]
    rate = measured.get("tokens_per_s_per_gpu")
    if finite(measured.get("step_time_s")):
        return float(measured["step_time_s"])
    if not finite(rate) or rate <= 0:
        raise Unexpressed("the row tells neither a step time nor tokens per second")
    return job.tokens / float(rate) / job.gpus
