"""litgpt: bf16-true through Fabric, its own GPT module, the head on 128-token chunks.

Sources, opened at litgpt 0.5.12: finetune/lora.py (lm_head_chunk_size=128, AdamW by name, checkpointing per block when the
model is sharded), finetune/full.py (FSDPStrategy with activation_checkpointing_policy={Block}; whole logits in chunks),
model.py.
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks.common import everything_in, sharding
from vramcast.training.frameworks.releases import month_of
from vramcast.training.recipe.recipe import GATHERED, Draft
from vramcast.workload import Training


def resolve(draft: Draft, question: Training, _model: Model) -> None:
    """Everything in the training dtype; keys and values are expanded to all heads before the kernel."""
    compute = draft.get("compute", "bfloat16")
    everything_in(draft, compute, "precision bf16-true")
    sharding(draft, question, fallback="fsdp1")
    draft.default("litgpt/model.py", qkv="views", norm="eager", rope="eager", glu="torch", experts="loop", repeats_kv=True)
    draft.default("F.scaled_dot_product_attention", attention="flash")
    dated = month_of(question, "litgpt") < (2024,)
    draft.default("bitsandbytes up to 0.42 saves inputs in its compute dtype", quant_saves=compute if dated else "float32")
    whole = "units" if question.fsdp else "none"
    draft.default("fabric.no_backward_sync keeps whole gradients while accumulating", whole_accumulation=whole)
    draft.default("lora.py, LoRAQKVLinear.zero_pad", pads_adapters=True)
    draft.default("the head is a tensor of its own", tied=False)
    cut = draft.get("sharding") in GATHERED
    draft.default("the sharding strategy checkpoints each block" if cut else "no gradient checkpointing on one device",
                  checkpointing="full" if cut else "none", live_gathers=2)  # fmt: skip
    draft.default("lm_head_chunk_size=128", loss="chunked_head" if question.method != "full" else "whole_chunked")
    draft.default("torch.optim.AdamW", optimizer="adamw", update="foreach", logits_upcast=False)
