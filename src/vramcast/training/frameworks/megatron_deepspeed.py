"""Megatron-DeepSpeed of BLOOM's time: fp16 with ZeRO-1, GPT blocks with a fused softmax, every layer recomputed.

Sources: bigscience-workshop/Megatron-DeepSpeed (megatron/model; megatron/arguments.py for dropout, which BLOOM's
tr11-176B-ml.slurm leaves alone), DeepSpeed 0.6.0: runtime/pipe (see training/pipeline_engine.py), runtime/zero/stage_1_and_2.py
(fp32 partitions; the 16-bit gradients stay whole, those of the partition are flattened and copied to fp32 at the step), and its
later runtime/bf16_optimizer.py (update_hp_grads).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks.common import DEEPSPEED_BUCKET
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import (
    Adapters,
    Dtype,
    Kernels,
    Loss,
    ModelParallel,
    Policy,
    Precision,
    Process,
    Recomputation,
    Sharding,
    Update,
)
from vramcast.workload import Training


def resolve(draft: Draft, question: Training, _model: Model) -> Overrides:
    """Megatron's blocks under DeepSpeed's engine, in fp16 unless the question says otherwise."""
    compute = draft.get("compute", "float16")
    yield because("--fp16", Precision, weights=compute, compute=compute, frozen=compute, norm_weight=compute, residual=compute)
    yield because("--fp16", Adapters, adapter_dtype=compute)
    yield from _engine(draft, question.zero, compute)
    yield from _blocks()
    yield because("--checkpoint-activations", Recomputation, policy=Policy("full"))
    yield because("CUDA 11.3 loads kernels eagerly", Process, lazy_modules=False)


def _engine(draft: Draft, zero: int | None, compute: Dtype) -> Overrides:
    """DeepSpeed with ZeRO stage 1: fp32 partitions of the states, whole 16-bit gradients, and a pipeline of its own."""
    if draft.get("gradients") == "float32":
        yield because("BF16_Optimizer adds the 16-bit gradients to fp32 ones after backward", Precision, low_gradients=compute)
    yield because("ZeRO-1", Sharding, kind="zero2" if zero == 2 else "zero1", live_gathers=1)
    yield because("ZeRO-1", Precision, gradients=compute, backward_gradients=compute, reduce=compute)
    yield because("fp32 partitions", Update, master="float32", states="float32", optimizer="adamw", implementation="fused")
    yield because("stage_1_and_2.py, step: gradients flattened, then copied to fp32", Update, flattens=True)
    yield because("stage_1_and_2.py: whole 16-bit gradients stay in their buffers", Update, frees_gradients=False)
    yield because("stage_1_and_2.py, _has_inf_or_nan: x.float().sum() of every gradient", Update, checks_overflow=True)
    casts = compute == "bfloat16" and not draft.get("low_gradients")
    yield because(
        "allgather and reduce buckets of 5e8 elements" + (", cast to fp16 by allreduce_bucket" if casts else ""),
        Sharding,
        bucket_elements=(3 if casts else 2) * DEEPSPEED_BUCKET,
        reduce_bucket=DEEPSPEED_BUCKET,
    )
    yield because(
        "DeepSpeed's process groups beside Megatron's, a communicator per pipeline neighbour", ModelParallel, pipeline_engine=True
    )
    yield because("megatron/model/gpt_model.py: partition_method type:transformer", ModelParallel, stage_cut="balanced")


def _blocks() -> Overrides:
    """Megatron's GPT blocks and its loss over a divided vocabulary."""
    yield because(
        "Megatron kernels",
        Kernels,
        norm="native",
        rope="fused",
        glu="packed",
        qkv="copies",
        attention="unfused",
        experts="grouped",
    )
    yield because(
        "megatron/arguments.py: --hidden-dropout, --attention-dropout", Kernels, hidden_dropout=0.1, attention_dropout=0.1
    )
    yield because("vocab_parallel_cross_entropy", Loss, kind="vocab_parallel")
    yield because("vocab_parallel_cross_entropy", ModelParallel, vocab_parallel=True, gathers_again=True, pad_vocab_to=128)
