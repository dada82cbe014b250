"""torchtune: pure bf16, its own transformer, fp32 RMSNorm and rope, chunked cross entropy.

Sources, opened at torchtune 0.6.1: recipes/configs (dtype bf16 in all 156, fused AdamW in 123 of 139, checkpointing in 105,
CEWithChunkedOutputLoss; LinearCrossEntropyLoss after that release), modules/rms_norm.py and position_embeddings.py (float
copies), torchao 0.7, dtypes/nf4tensor.py (quantized_scalers, quantization_factor, scaler_mean; NF4_OPS split, new_zeros,
view: what FSDP2 calls to shard them), modules/attention.py (keys and values are expanded to all heads before sdpa).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks.common import everything_in, sharding
from vramcast.training.frameworks.releases import month_of
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import Kernels, Loss, Policy, Quantization, Recomputation, Sharding, Update
from vramcast.workload import Training

LINEAR_LOSS = (2025, 5)  # after 0.6.1
CHUNKED_LOSS = (2024, 9)  # torchtune 1390, merged on 28 August
DELETES_LOGITS = (2024, 7)  # torchtune 1235


def resolve(draft: Draft, question: Training, _model: Model) -> Overrides:
    """A dtype of bf16 means bf16 states as well; FSDP2 when distributed."""
    compute = draft.get("compute", "bfloat16")
    yield from everything_in(compute, "dtype: bf16 is pure bf16")
    yield from sharding(question, fallback="fsdp2")
    compiled = bool(draft.get("compiled"))
    yield because(
        "compiled layers" if compiled else "torchtune/modules",
        Kernels,
        norm="native" if compiled else "eager",
        rope="fused" if compiled else "eager",
        glu="recomputed" if compiled else "torch",
        repeats_kv=True,
    )
    why = "torchao's NF4Tensor: scales in 8 bits for blocks of 256, all parts of one tensor that fully_shard divides"
    yield because(why, Quantization, double_quant=True, shards_scales=True)
    yield because("sdpa", Kernels, attention="flash", experts="grouped")
    yield because("sdpa", Sharding, live_gathers=2, separate_ends=True)
    yield from _loss(month_of(question, "torchtune"))
    yield because("recipe default", Recomputation, policy=Policy("full"))
    yield because("recipe default", Update, optimizer="adamw", implementation="fused")


def _loss(month: tuple[int, ...]) -> Overrides:
    """Chunks since 0.3; before, torch's cross entropy on a shifted copy of float logits, named by the recipe until July 2024."""
    if month < CHUNKED_LOSS:
        yield because("torch.nn.CrossEntropyLoss", Loss, kind="eager", logits_kept=False)
    if month < DELETES_LOGITS:
        yield because("the recipe names its logits", Loss, holds_logits="float32")
    linear = month >= LINEAR_LOSS
    yield because(
        "LinearCrossEntropyLoss since mid-2025" if linear else "CEWithChunkedOutputLoss",
        Loss,
        kind="linear_chunks" if linear else "chunked",
    )
