"""llm-foundry (Composer): MPT-style blocks, FSDP with fp32 shards and bf16 compute, checkpointing as the YAML says.

Sources: llm-foundry 0.22.0, utils/config_utils.py (precision amp_bf16), models/utils/config_defaults.py (attn_impl flash,
packed qkv), models/mpt/configuration_mpt.py (low_precision_layernorm), modeling_mpt.py (fused_crossentropy);
composer/utils/parallelism.py at 008dac709 (FULL_SHARD, mixed_precision DEFAULT, activation_checkpointing False, reentrant when
on).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks.common import sharding
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import Kernels, Loss, Policy, Precision, Recomputation, Sharding, Update
from vramcast.workload import Training


def resolve(_draft: Draft, question: Training, _model: Model) -> Overrides:
    """Mixed precision DEFAULT: fp32 shards, 16-bit compute and gradients; low-precision norms; fused loss."""
    yield because(
        "Composer: precision amp_bf16", Precision, weights="float32", compute="bfloat16", autocast=True, residual="bfloat16"
    )
    yield from sharding(question, fallback="fsdp1")
    yield because(
        "Composer FSDP", Precision, gradients="float32", backward_gradients="bfloat16", reduce="bfloat16", frozen="float32"
    )
    yield because("low_precision_layernorm", Kernels, norm="native", rope="fused", glu="eager", experts="grouped")
    yield because("low_precision_layernorm", Precision, norm_weight="bfloat16")
    yield because("attn_impl: flash", Kernels, attention="flash")
    yield because("fused_crossentropy", Loss, kind="fused")
    yield because("fused_crossentropy", Sharding, live_gathers=2)
    yield because("FSDPConfig: activation_checkpointing False", Recomputation, policy=Policy("none"), reentrant=True)
    yield because("decoupled_adamw runs per tensor", Update, optimizer="adamw", implementation="loop")
