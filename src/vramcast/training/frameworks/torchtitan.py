"""torchtitan: FSDP2 over fp32 shards, bf16 compute, fp32 reduction, per-operation selective checkpointing.

Sources, opened at torchtitan 0.2.2: config/job_config.py (dtype float32, mixed_precision_param bfloat16, selective checkpointing,
whose option "2" is every second layer where the train_configs say "op"; implementation fused), models/llama3 (repeat_kv, complex
rope), distributed/activation_checkpoint.py (the list of saved operations and every second matmul), components/loss.py (float
logits). What changed when: the repository's history.
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks.common import is_narrow, sharding
from vramcast.training.frameworks.releases import Version, month_of
from vramcast.training.recipe.draft import Draft, Overrides, Translation, because
from vramcast.training.recipe.parts import (
    Adapters,
    Kernels,
    Loss,
    ModelParallel,
    Policy,
    Precision,
    Process,
    Recomputation,
    Sharding,
    Update,
    width,
)
from vramcast.workload import Training

FUSED_LOSS = (2025, 4)  # the compiled run of issue 929, of March, takes what January's took
LOSS_PARALLEL = (2024, 5)
EXPANDABLE = (2025, 1)
FREES_LOGITS = (2024, 6)
FUSED_UPDATE = (2025, 1)
SCANS_KEPT = ((2024, 11), (2025, 2))  # abs was on the list of operations from pull request 701 to 820
FREES_OUTPUTS = (2025, 11)  # train.py passes return_outputs=False since pull request 1922 of 22 October 2025
COUNTS_ENDS = (2025, 8)  # distributed/pipeline.py, generate_llm_fqn_per_model_part, pull request 1416 of 30 July 2025
SEPARATE_ENDS = (2025, 7)  # models/llama3/infra/parallelize.py: 0.1.0 (June) wraps blocks and model, 0.2.0 the ends as well


def resolve(draft: Draft, question: Training, _model: Model) -> Overrides:
    """HEAD's configuration unless stated; each part may read what the parts before it decided."""
    month = month_of(question, "torchtitan")
    yield from _precision(draft, question)
    compiled = bool(draft.get("compiled"))
    yield from _kernels(question, month, compiled=compiled)
    yield from _loss(month, compiled=compiled)
    yield because(
        "optimizer.implementation", Update, optimizer="adamw", implementation="fused" if month >= FUSED_UPDATE else "foreach"
    )
    yield from _layout(draft, question, month)


def _precision(draft: Draft, question: Training) -> Overrides:
    """Shards in the type of training.dtype, layers in that of mixed_precision_param."""
    yield because("training.dtype float32", Precision, weights="float32", reduce="float32")
    yield from sharding(question, fallback="fsdp2")
    yield from _stays_wide(draft, question)
    yield because("as the shards", Precision, frozen=draft.get("weights"), gradients=draft.get("weights"))
    yield from _autocast(draft, question)
    yield because(
        "mixed_precision_param bfloat16", Precision, compute="bfloat16", backward_gradients="bfloat16", norm_weight="bfloat16"
    )
    yield because("mixed_precision_param bfloat16", Precision, residual="bfloat16", autocast=False)
    yield because("mixed_precision_param bfloat16", Adapters, adapter_dtype="bfloat16")


def _kernels(question: Training, month: Version, *, compiled: bool) -> Overrides:
    """Blocks compiled or eager, what their list of operations keeps, and the allocator that run_train.sh sets."""
    yield because(
        "compiled blocks" if compiled else "eager blocks",
        Kernels,
        norm="native" if compiled else "eager",
        rope="fused" if compiled else "eager",
        glu="recomputed" if compiled else "torch",
        repeats_kv=True,
    )
    scans = is_narrow(question) and not compiled and SCANS_KEPT[0] <= month <= SCANS_KEPT[1]
    yield because(
        "8-bit matmuls in eager mode, whose absolute values the list of operations kept" if scans else "", Precision, scans=scans
    )
    expandable = month >= EXPANDABLE
    yield because("run_train.sh sets expandable_segments" if expandable else "native allocator", Process, expandable=expandable)
    yield because("sdpa picks flash", Kernels, attention="flash", experts="grouped")
    yield Translation("selective_ac_option op", "checkpointing", {Policy("selective"): Policy("op")})
    yield because("activation_checkpoint.mode selective", Recomputation, policy=Policy("op"))


def _loss(month: Version, *, compiled: bool) -> Overrides:
    """Whether the compiler keeps the float logits inside the loss, and how long train.py holds the prediction."""
    fused = month >= FUSED_LOSS
    if not fused:
        yield Translation("inductor wrote the float logits out until spring 2025", "loss", {"compiled": "plain"})
    frees = month >= FREES_LOGITS
    yield because(
        "train.py deletes pred before backward" if frees else "pred, in float, lives through backward",
        Loss,
        holds_logits="" if frees else "float32",
    )
    yield because("components/loss.py", Loss, kind="compiled" if compiled and fused else "plain", logits_kept=not compiled)


def _layout(draft: Draft, question: Training, month: Version) -> Overrides:
    """What is gathered together, the pipeline, and what tensor parallelism cuts."""
    ends = month >= SEPARATE_ENDS or draft.framework == "xtuner"
    together = "embedding and head are one group, gathered from forward to backward"
    yield because(
        "embedding and head are groups of their own" if ends else together, Sharding, live_gathers=2, separate_ends=ends
    )
    kept = "parallelize_llama: the last block is not resharded after forward"
    yield because("" if ends else kept, Sharding, last_at_loss="" if ends else "whole")
    yield from _pipeline(draft, question)
    parallel = question.parallel.tp > 1
    yield because("DTensor sums the embedding's gradients" if parallel else "", ModelParallel, partial_embedding=parallel)
    yield because(
        "tensor parallelism shards the sequence and the loss",
        ModelParallel,
        sequence_parallel=parallel,
        vocab_parallel=parallel and month >= LOSS_PARALLEL,
    )


def _stays_wide(draft: Draft, question: Training) -> Overrides:
    """Model parallelism alone computes in the dtype of its weights, whatever mixed_precision_param says.

    Source: torchtitan, distributed/utils.py, maybe_enable_amp: fully_shard mixes precisions, autocast does without model
    parallelism, and with tensor or pipeline parallelism alone nothing does, with a warning.
    """
    parallel = question.parallel
    if draft.framework != "torchtitan" or parallel.shards > 1 or parallel.tp == parallel.pp == 1 or is_narrow(question):
        return
    held = draft.get("weights")
    reason = "maybe_enable_amp mixes no precisions under model parallelism alone"
    yield Translation(reason, "compute", {"bfloat16": held, "float16": held})
    yield because(reason, Precision, compute=held, backward_gradients=held, norm_weight=held, residual=held)
    yield because(reason, Adapters, adapter_dtype=held)


def _autocast(draft: Draft, question: Training) -> Overrides:
    """Whole weights are cast by autocast: layers hand the stream and its gradients on in the dtype of the weights.

    Source: torchtitan 0.2.2, distributed/utils.py, maybe_enable_amp: torch.autocast where neither FSDP nor model parallelism is.
    """
    parallel = question.parallel
    if draft.framework != "torchtitan" or draft.get("sharding") not in ("none", "ddp") or parallel.tp * parallel.pp > 1:
        return
    held, reason = draft.get("weights"), "maybe_enable_amp opens autocast without FSDP"
    if width(held) > width(draft.get("compute") or "bfloat16"):
        yield because(reason, Precision, autocast=True, backward_gradients=held, norm_weight=held, residual=held)
        yield because(reason, Adapters, adapter_dtype=held)


def _pipeline(draft: Draft, question: Training) -> Overrides:
    """Under a pipeline weights are gathered once, and gradients are reduced once, for all micro-batches of a step.

    Sources: torchtitan, models/llama3/infra/parallelize.py (reshard_after_forward "default" is off); torch 2.13,
    distributed/pipelining/stage.py, backward_maybe_with_nosync (neither resharded nor reduced before the last backward).
    """
    piped = question.parallel.pp > 1
    keeps = piped and draft.framework == "torchtitan" and month_of(question, "torchtitan") < FREES_OUTPUTS
    yield because("schedule.step returned every micro-batch's output" if keeps else "", Loss, keeps_outputs=keeps)
    yield because(
        "gathered once for a pipeline's micro-batches" if piped else "resharded after forward", Sharding, reshard=not piped
    )
    yield because("stage.py: a receive buffer for each micro-batch" if piped else "", ModelParallel, receives_ahead=piped)
    if piped and draft.framework == "torchtitan" and month_of(question, "torchtitan") >= COUNTS_ENDS:
        yield because("embedding and output count as a layer each", ModelParallel, stage_cut="even_ends")
    if piped and draft.get("sharding") == "fsdp2":
        yield because("a pipeline's gradients are reduced after its last micro-batch", Sharding, whole_accumulation="trained")
