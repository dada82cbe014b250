"""Megatron-LM, NeMo, Megatron-Bridge: 16-bit weights, fp32 main gradients; master and moments cut over data-parallel ranks.

Sources: Megatron-LM core 0.16.1, optimizer/distrib_optimizer.py (6 + 12/dp bytes per parameter), transformer_config.py,
Transformer Engine's LayerNormLinear (saves its input and the normed rows), core/fusions (bias + SwiGLU over the packed matmul).
Megatron-Bridge at 0d5f5558c, recipes/llama/llama3.py (cross_entropy_fusion_impl "te", grad_reduce_in_fp32, distributed optimizer,
no recomputation); Transformer Engine, pytorch/triton/cross_entropy.py (up to #3193 of July 2026 the gradient is written over the
logits, since then into a float32 tensor beside them); pytorch/module/base.py, get_dummy_wgrad, since #1651 of April 2025 one
tensor per distinct weight shape (before, one for every matmul), which Megatron-LM's tensor_parallel/layers.py takes for the
output layer too.
"""

from collections.abc import Iterable
from typing import cast

from vramcast.models.inventory import Model
from vramcast.models.layers import Experts
from vramcast.training.frameworks.common import FIRST_YEAR, is_month, version_of
from vramcast.training.recipe.draft import Draft, Overrides, Translation, because
from vramcast.training.recipe.parts import (
    Adapters,
    Dtype,
    Kernels,
    Loss,
    LossKind,
    ModelParallel,
    Policy,
    Precision,
    Process,
    Recomputation,
    Sharding,
    Update,
)
from vramcast.workload import Training

# Changes of Transformer Engine: the month after, and the release of Megatron-LM's core that followed (none yet for the second)
REUSES_PLACEHOLDERS, KEEPS_LOGITS = ((2025, 5), (0, 12)), ((2026, 8), (FIRST_YEAR,))
BRIDGED = (0, 14)  # the core beside Megatron-Bridge's first release (NeMo's container 25.09)


def _since(question: Training, change: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    month, release = change
    asked = version_of(question, "9999.1")
    if question.framework == "megatron_bridge" and not is_month(asked):
        asked = BRIDGED
    return asked >= (month if is_month(asked) else release)


def _state(question: Training, compute: Dtype) -> Overrides:
    """Weights, gradients and moments: their types, and who holds them."""
    yield because("--bf16", Precision, weights=compute, compute=compute, frozen=compute, norm_weight=compute, residual=compute)
    yield because(
        "accumulate_allreduce_grads_in_fp32", Precision, gradients="float32", backward_gradients=compute, reduce="float32"
    )
    yield because(
        "fp32 main parameters and moments", Update, master="float32", states="float32", optimizer="adamw", implementation="fused"
    )
    shared = not question.fsdp and question.method == "full" and _since(question, REUSES_PLACEHOLDERS)
    yield because("gradient_accumulation_fusion: Transformer Engine's get_dummy_wgrad", Precision, placeholders=shared)
    if question.fsdp:
        yield because("Megatron FSDP", Sharding, kind="fsdp2")
    yield because("distributed optimizer", Sharding, kind="distributed_optimizer")
    yield because("main gradients are a buffer that is never freed", Update, frees_gradients=False)
    yield because("main gradients are a buffer that is never freed", Precision, autocast=False)


# An estimate, for which no source tells a figure: what share of a layer's launches, forward and backward, a captured part
# replays: attention or a Mamba mixer with its norms and projections, the router, the sorting up to the exchange, a dense MLP;
# experts and their exchange where "moe" is captured.
_CAPTURED = {"attn": 0.3, "mamba": 0.3, "moe_router": 0.1, "moe_preprocess": 0.1, "mlp": 0.4, "moe": 0.7}
_WHOLE = frozenset({"full", "full_iteration"})
GRAPHED_PARTS = _WHOLE | _CAPTURED.keys()
"""The words of cuda_graph_modules that have a share here."""


def graphed_share(modules: Iterable[str]) -> float:
    """About what share of the launches CUDA graphs of these parts replay (cuda_graph_modules); of none named, whole layers.

    Parts without a share (``GRAPHED_PARTS``) count for nothing: who reads a person's words tells them.
    """
    parts = frozenset(modules)
    return 1.0 if not parts or parts & _WHOLE else min(1.0, sum(_CAPTURED.get(part, 0.0) for part in parts))


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """bf16 training with the distributed optimizer when data parallel."""
    compute = draft.get("compute", "bfloat16")
    yield from _state(question, compute)
    yield because(
        "Transformer Engine",
        Kernels,
        norm="native",
        rope="fused",
        glu="packed",
        qkv="copies",
        attention="flash",
        experts="grouped",
    )
    grouped = any(isinstance(b.feedforward, Experts) for b in model.blocks)
    yield because(
        "Transformer Engine's matmul workspace, and four streams of grouped ones", Process, workspaces=5 if grouped else 1
    )
    by_engine = "float_gradient" if _since(question, KEEPS_LOGITS) else "overwritten"
    yield Translation("--cross-entropy-fusion-impl te", "loss", {"fused": by_engine})
    if draft.framework == "megatron_bridge" and question.parallel.tp == 1:
        yield because("recipes: cross_entropy_fusion_impl te", Loss, kind=cast(LossKind, by_engine))
    yield because("vocab_parallel_cross_entropy", Loss, kind="vocab_parallel")
    yield because("vocab_parallel_cross_entropy", ModelParallel, vocab_parallel=True)
    yield because("LinearWithGradAccumulationAndAsyncCommunication", ModelParallel, gathers_again=True)
    yield because("--make-vocab-size-divisible-by 128", ModelParallel, pad_vocab_to=128)
    yield Translation("core attention is recomputed", "checkpointing", {Policy("selective"): Policy("core_attention")})
    parallel = question.parallel
    room = parallel.tp * parallel.cp * parallel.dp >= parallel.tp * parallel.ep
    yield because(
        "expert tensor parallelism follows tp where the ranks allow it", ModelParallel, expert_tp=parallel.tp if room else 1
    )
    yield because("no recomputation by default", Recomputation, policy=Policy("none"))
    yield because("no recomputation by default", Adapters, adapter_dtype=compute)
    yield because("no recomputation by default", Sharding, live_gathers=2)
    yield because(
        "recipes set no dropout, though Megatron-LM's flags default to 0.1", Kernels, hidden_dropout=0.0, attention_dropout=0.0
    )
