"""Megatron-DeepSpeed of BLOOM's time: fp16 with ZeRO-1, GPT blocks with a fused softmax, every layer recomputed.

Sources: bigscience-workshop/Megatron-DeepSpeed (megatron/model; megatron/arguments.py for dropout, which BLOOM's
tr11-176B-ml.slurm leaves alone), DeepSpeed 0.6.0: runtime/pipe (see training/pipeline_engine.py), runtime/zero/stage_1_and_2.py
(fp32 partitions; the 16-bit gradients stay whole, those of the partition are flattened and copied to fp32 at the step), and its
later runtime/bf16_optimizer.py (update_hp_grads).
"""

from vramcast.models.inventory import Model
from vramcast.training.recipe.recipe import Draft
from vramcast.workload import Training


def resolve(draft: Draft, _question: Training, _model: Model) -> None:
    """fp16, ZeRO stage 1."""
    compute = draft.get("compute", "float16")
    draft.default("--fp16", weights=compute, compute=compute, frozen=compute, norm_weight=compute, residual=compute)
    if draft.get("gradients") == "float32":
        draft.default("BF16_Optimizer adds the 16-bit gradients to fp32 ones after backward", low_gradients=compute)
    draft.default("DeepSpeed's process groups beside Megatron's, a communicator per pipeline neighbour", pipeline_engine=True)
    draft.default("stage_1_and_2.py, step: gradients flattened, then copied to fp32", flattens=True)
    draft.default("ZeRO-1", sharding="zero1", gradients=compute, backward_gradients=compute, reduce=compute)
    draft.default("fp32 partitions", master="float32", states="float32", optimizer="adamw", update="fused")
    draft.default(
        "Megatron kernels", norm="native", rope="fused", glu="packed", qkv="copies", attention="unfused", experts="grouped"
    )
    casts = compute == "bfloat16" and not draft.get("low_gradients")
    draft.default("allgather and reduce buckets of 5e8 elements" + (", cast to fp16 by allreduce_bucket" if casts else ""),
                  bucket_elements=1_500_000_000 if casts else 1_000_000_000)  # fmt: skip
    draft.default("CUDA 11.3 loads kernels eagerly", lazy_modules=False)
    draft.default("vocab_parallel_cross_entropy", loss="vocab_parallel", vocab_parallel=True, pad_vocab_to=128)
    draft.default("--checkpoint-activations", checkpointing="full", frees_gradients=False, adapter_dtype=compute, live_gathers=1)
    draft.default("megatron/arguments.py: --hidden-dropout, --attention-dropout", hidden_dropout=0.1, attention_dropout=0.1)
    draft.default("megatron/model/gpt_model.py: partition_method type:transformer", stage_cut="balanced")
    draft.default("stage_1_and_2.py, _has_inf_or_nan: x.float().sum() of every gradient", checks_overflow=True)
