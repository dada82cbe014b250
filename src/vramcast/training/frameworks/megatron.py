"""Megatron-LM, NeMo, Megatron-Bridge: 16-bit weights, fp32 main gradients; master and moments cut over data-parallel ranks.

Sources: Megatron-LM core 0.16.1, optimizer/distrib_optimizer.py (6 + 12/dp bytes per parameter), transformer_config.py,
Transformer Engine's LayerNormLinear (saves its input and the normed rows), core/fusions (bias + SwiGLU over the packed matmul).
"""

from vramcast.models.feedforward import Experts
from vramcast.models.inventory import Model
from vramcast.training.recipe.recipe import Draft
from vramcast.workload import Training


def resolve(draft: Draft, question: Training, model: Model) -> None:
    """bf16 training with the distributed optimizer when data parallel."""
    compute = draft.get("compute", "bfloat16")
    draft.default("--bf16", weights=compute, compute=compute, frozen=compute, norm_weight=compute, residual=compute)
    draft.default("accumulate_allreduce_grads_in_fp32", gradients="float32", backward_gradients=compute, reduce="float32")
    draft.default("fp32 main parameters and moments", master="float32", states="float32", optimizer="adamw", update="fused")
    if question.fsdp:
        draft.default("Megatron FSDP", sharding="fsdp2")
    draft.default("distributed optimizer", sharding="distributed_optimizer")
    draft.default("main gradients are a buffer that is never freed", frees_gradients=False, autocast=False)
    draft.default(
        "Transformer Engine", norm="native", rope="fused", glu="packed", qkv="copies", attention="flash", experts="grouped"
    )
    grouped = any(isinstance(b.feedforward, Experts) for b in model.blocks)
    draft.default("Transformer Engine's matmul workspace, and four streams of grouped ones", workspaces=5 if grouped else 1)
    draft.default("vocab_parallel_cross_entropy", loss="vocab_parallel", vocab_parallel=True)
    draft.default("--make-vocab-size-divisible-by 128", pad_vocab_to=128)
    draft.translate("core attention is recomputed", "checkpointing", {"selective": "core_attention"})
    parallel = question.parallel
    room = parallel.tp * parallel.cp * parallel.dp >= parallel.tp * parallel.ep
    draft.default("expert tensor parallelism follows tp where the ranks allow it", expert_tp=parallel.tp if room else 1)
    draft.default("no recomputation by default", checkpointing="none", adapter_dtype=compute, live_gathers=2)
    draft.default("recipes set no dropout, though Megatron-LM's flags default to 0.1", hidden_dropout=0.0, attention_dropout=0.0)
