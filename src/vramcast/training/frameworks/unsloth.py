"""Unsloth: fused kernels, checkpoints offloaded to host memory, chunked loss over the head (unsloth/models, unsloth_zoo).

By release: the model's own 16-bit logits with a loss written over them until cut cross entropy came in November 2024; checkpoints
on the card until the offloaded ones of April 2024. The notebooks of before turned checkpointing on, but for TinyLlama, which fits
a 16 GB card without (unslothai/notebooks, TinyLlama_(1.1B)-Alpaca: use_gradient_checkpointing = False).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.frameworks.common import version_of
from vramcast.training.recipe.recipe import Draft
from vramcast.workload import Training

NEWEST = "2025.11"
OFFLOADS = (2024, 4)  # the release that offloads checkpoints to the host
LINEAR_LOSS = (2024, 11)  # the release that runs head and loss together
SMALL = 2_000_000_000  # parameters, below which the notebooks before 2024.4 turned checkpointing off


def resolve(draft: Draft, question: Training, model: Model) -> None:
    """4-bit base in bf16 compute, fused adapters, 8-bit AdamW in the notebooks."""
    compute = draft.get("compute", "bfloat16")
    draft.default("Unsloth loads in the compute dtype", weights=compute, compute=compute, autocast=False)
    draft.default("Unsloth kernels", norm="fused", rope="fused", glu="fused", fused_adapter=True, double_quant=True)
    draft.default("Unsloth keeps norms in 16 bits", unquantized=compute)
    version = version_of(question, NEWEST)
    if version < OFFLOADS:
        usual = "none" if model.parameters < SMALL else "full"
        draft.translate("before 2024.4 checkpoints stayed on the card", "checkpointing", {"offloaded": usual})
        draft.default("notebooks before 2024.4", checkpointing=usual)
    if version < LINEAR_LOSS:
        draft.translate("before 2024.11 the head ran apart from the loss", "loss", {"linear": "in_place"})
        draft.default("cross_entropy_loss.py; use_cache is left on without checkpointing", loss="in_place", returns_cache=True)
    draft.default("use_gradient_checkpointing='unsloth'", checkpointing="offloaded")
    draft.default("experts packed in one tensor are split into linear layers", splits_experts=True)
    draft.default("unsloth_zoo fused_losses", loss="linear")
    draft.default("Unsloth's notebooks", optimizer="adamw_8bit")
    hf_trainer.resolve(draft, question, model)
