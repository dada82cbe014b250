"""litgpt: bf16-true through Fabric, its own GPT module, the head on 128-token chunks.

Sources, opened at litgpt 0.5.12: finetune/lora.py (lm_head_chunk_size=128, AdamW by name, checkpointing per block when the
model is sharded), finetune/full.py (FSDPStrategy with activation_checkpointing_policy={Block}; whole logits in chunks),
model.py.
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks.common import everything_in, sharding
from vramcast.training.frameworks.releases import month_of
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import (
    GATHERED,
    Adapters,
    Kernels,
    Loss,
    Policy,
    Quantization,
    Recomputation,
    Sharding,
    Update,
)
from vramcast.workload import Training


def resolve(draft: Draft, question: Training, _model: Model) -> Overrides:
    """Everything in the training dtype; keys and values are expanded to all heads before the kernel."""
    compute = draft.get("compute", "bfloat16")
    yield from everything_in(compute, "precision bf16-true")
    yield from sharding(question, fallback="fsdp1")
    yield because(
        "litgpt/model.py", Kernels, qkv="views", norm="eager", rope="eager", glu="torch", experts="loop", repeats_kv=True
    )
    yield because("F.scaled_dot_product_attention", Kernels, attention="flash")
    dated = month_of(question, "litgpt") < (2024,)
    yield because(
        "bitsandbytes up to 0.42 saves inputs in its compute dtype", Quantization, quant_saves=compute if dated else "float32"
    )
    yield because(
        "fabric.no_backward_sync keeps whole gradients while accumulating",
        Sharding,
        whole_accumulation="units" if question.fsdp else "none",
    )
    yield because("lora.py, LoRAQKVLinear.zero_pad", Adapters, pads_adapters=True)
    yield because("the head is a tensor of its own", Loss, tied=False)
    cut = draft.get("sharding") in GATHERED
    yield because(
        "the sharding strategy checkpoints each block" if cut else "no gradient checkpointing on one device",
        Recomputation,
        policy=Policy("full" if cut else "none"),
    )
    yield because(
        "the sharding strategy checkpoints each block" if cut else "no gradient checkpointing on one device",
        Sharding,
        live_gathers=2,
    )
    yield because("lm_head_chunk_size=128", Loss, kind="chunked_head" if question.method != "full" else "whole_chunked")
    yield because("torch.optim.AdamW", Update, optimizer="adamw", implementation="foreach")
    yield because("torch.optim.AdamW", Loss, logits_upcast=False)
