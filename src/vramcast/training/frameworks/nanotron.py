"""nanotron: 16-bit weights, float32 gradients in a buffer of their own, ZeRO-1 where it is asked for.

Sources: nanotron at 069c21cf, optim/gradient_accumulator.py (FP32GradientAccumulator: a float32 copy of the weights that this
rank updates, and a contiguous float32 buffer of all gradients, to which 16-bit ones are added after backward), optim/zero.py
(stage 1 slices masters and moments); at 00708b80c, config/config.py (OptimizerArgs has no default stage; examples set
accumulate_grad_in_fp32 and torch_adam_is_fused), models/llama.py (packed projections, TritonRMSNorm, flash-attention, no
recomputation), parallel/tensor_parallel/functional.py (sharded_cross_entropy: a float copy of the logits, and another less their
maximum, which the softmax and then its gradient overwrite).
"""

from vramcast.models.inventory import Model
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import (
    Adapters,
    Kernels,
    Loss,
    ModelParallel,
    Policy,
    Precision,
    Recomputation,
    Sharding,
    Update,
)
from vramcast.workload import Training


def resolve(draft: Draft, question: Training, _model: Model) -> Overrides:
    """bf16 weights beside float32 masters, gradients and moments; tensor parallelism with sequence parallelism."""
    compute = draft.get("compute", "bfloat16")
    yield because("ModelArgs.dtype", Precision, weights=compute, compute=compute, frozen=compute, norm_weight=compute)
    yield because("ModelArgs.dtype", Precision, residual=compute, autocast=False)
    yield because("accumulate_grad_in_fp32", Precision, gradients="float32", backward_gradients=compute, reduce="float32")
    why = "FP32GradientAccumulator.backward: added to the buffer, and freed, when backward is over"
    yield because(why, Precision, low_gradients=compute, frees_low=True)
    yield because("FP32GradientAccumulator", Update, master="float32", states="float32", optimizer="adamw")
    yield because("torch_adam_is_fused", Update, implementation="fused", frees_gradients=False)
    cut = question.zero == 1
    yield because("zero_stage 1" if cut else "zero_stage 0", Sharding, kind="distributed_optimizer" if cut else "none")
    yield because(
        "models/llama.py", Kernels, norm="fused", rope="fused", glu="torch", qkv="views", attention="flash", experts="grouped"
    )
    yield because("sharded_cross_entropy", Loss, kind="vocab_parallel_copy")
    parallel = question.parallel.tp > 1
    yield because("TensorParallelLinearMode.REDUCE_SCATTER", ModelParallel, vocab_parallel=True, sequence_parallel=parallel)
    yield because("tp_recompute_allgather: true", ModelParallel, gathers_again=True)
    yield because("recompute_layer: false", Recomputation, policy=Policy("none"))
    yield because("no adapters of its own", Adapters, adapter_dtype=compute)
