"""llm-foundry (Composer): MPT-style blocks, FSDP with fp32 shards and bf16 compute, checkpointing as the YAML says.

Sources: llm-foundry 0.22.0, utils/config_utils.py (precision amp_bf16), models/utils/config_defaults.py (attn_impl flash,
packed qkv), models/mpt/configuration_mpt.py (low_precision_layernorm), modeling_mpt.py (fused_crossentropy);
composer/utils/parallelism.py at 008dac709 (FULL_SHARD, mixed_precision DEFAULT, activation_checkpointing False, reentrant when
on).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks.common import sharding
from vramcast.training.recipe.recipe import Draft
from vramcast.workload import Training


def resolve(draft: Draft, question: Training, _model: Model) -> None:
    """Mixed precision DEFAULT: fp32 shards, 16-bit compute and gradients; low-precision norms; fused loss."""
    draft.default("Composer: precision amp_bf16", weights="float32", compute="bfloat16", autocast=True, residual="bfloat16")
    sharding(draft, question, fallback="fsdp1")
    draft.default("Composer FSDP", gradients="float32", backward_gradients="bfloat16", reduce="bfloat16", frozen="float32")
    draft.default("low_precision_layernorm", norm="native", norm_weight="bfloat16", rope="fused", glu="eager", experts="grouped")
    draft.default("attn_impl: flash", attention="flash")
    draft.default("fused_crossentropy", loss="fused", live_gathers=2)
    draft.default("FSDPConfig: activation_checkpointing False", checkpointing="none", reentrant=True)
    draft.default("decoupled_adamw runs per tensor", optimizer="adamw", update="loop")
