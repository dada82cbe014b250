"""llm-foundry (Composer): MPT's blocks or transformers', FSDP with fp32 shards and bf16 compute, checkpointing as the YAML says.

Sources: llm-foundry 0.22.0, utils/config_utils.py (precision amp_bf16), models/utils/config_defaults.py (attn_impl flash,
packed qkv), models/mpt/configuration_mpt.py (low_precision_layernorm), modeling_mpt.py (fused_crossentropy), models/hf
(hf_causal_lm.py, model_wrapper.py: any other model has transformers' layers and loss); composer/utils/parallelism.py at
008dac709 (FULL_SHARD, mixed_precision DEFAULT, activation_checkpointing False, reentrant when on).
"""

from vramcast.models.classes import model_class
from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.frameworks.common import sharding
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import Kernels, Loss, Policy, Precision, Recomputation, Sharding, Update
from vramcast.workload import Training


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """Mixed precision DEFAULT: fp32 shards, 16-bit compute and gradients; MPT's own layers, or those of transformers."""
    yield because("Composer: precision amp_bf16", Precision, weights="float32", compute="bfloat16", autocast=True)
    yield from sharding(question, fallback="fsdp1")
    if draft.get("sharding") in ("fsdp1", "fsdp2"):
        yield because(
            "Composer FSDP", Precision, gradients="float32", backward_gradients="bfloat16", reduce="bfloat16", frozen="float32"
        )
    yield because("FSDPConfig: activation_checkpointing False", Recomputation, policy=Policy("none"), reentrant=True)
    yield because("decoupled_adamw runs per tensor", Update, optimizer="adamw", implementation="loop")
    if model.family == "shape" or model_class(model.family).whole.own_trainer == "llm_foundry":  # numbers alone are MPT's keys
        yield from _own_model()
    else:
        yield from hf_trainer.resolve(draft, question, model)


def _own_model() -> Overrides:
    yield because(
        "Composer FSDP", Precision, gradients="float32", backward_gradients="bfloat16", reduce="bfloat16", frozen="float32"
    )
    yield because("low_precision_layernorm", Kernels, norm="native", rope="fused", glu="eager", experts="grouped")
    yield because("low_precision_layernorm", Precision, norm_weight="bfloat16", residual="bfloat16")
    yield because("attn_impl: flash", Kernels, attention="flash")
    yield because("fused_crossentropy", Loss, kind="fused")
    yield because("fused_crossentropy", Sharding, live_gathers=2)
