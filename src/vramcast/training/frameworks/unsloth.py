"""Unsloth: fused kernels, checkpoints offloaded to host memory, chunked loss over the head (unsloth/models, unsloth_zoo).

By release: the model's own 16-bit logits with a loss written over them until cut cross entropy came in November 2024; checkpoints
on the card until the offloaded ones of April 2024. The notebooks of before turned checkpointing on, but for TinyLlama, which fits
a 16 GB card without (unslothai/notebooks, TinyLlama_(1.1B)-Alpaca: use_gradient_checkpointing = False).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.frameworks.common import version_of
from vramcast.training.recipe.draft import Draft, Overrides, Translation, because
from vramcast.training.recipe.parts import Adapters, Kernels, Loss, Policy, Precision, Quantization, Recomputation, Update
from vramcast.workload import Training

NEWEST = "2025.11"
OFFLOADS = (2024, 4)  # the release that offloads checkpoints to the host
LINEAR_LOSS = (2024, 11)  # the release that runs head and loss together
SMALL = 2_000_000_000  # parameters, below which the notebooks before 2024.4 turned checkpointing off


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """4-bit base in bf16 compute, fused adapters, 8-bit AdamW in the notebooks."""
    compute = draft.get("compute", "bfloat16")
    yield because("Unsloth loads in the compute dtype", Precision, weights=compute, compute=compute, autocast=False)
    yield because("Unsloth kernels", Kernels, norm="fused", rope="fused", glu="fused")
    yield because("Unsloth kernels", Adapters, fused_adapter=True)
    yield because("Unsloth kernels", Quantization, double_quant=True)
    yield because("Unsloth keeps norms in 16 bits", Quantization, unquantized=compute)
    version = version_of(question, NEWEST)
    if version < OFFLOADS:
        usual = Policy("none" if model.parameters < SMALL else "full")
        yield Translation("before 2024.4 checkpoints stayed on the card", "checkpointing", {Policy("offloaded"): usual})
        yield because("notebooks before 2024.4", Recomputation, policy=usual)
    if version < LINEAR_LOSS:
        yield Translation("before 2024.11 the head ran apart from the loss", "loss", {"linear": "in_place"})
        yield because(
            "cross_entropy_loss.py; use_cache is left on without checkpointing", Loss, kind="in_place", returns_cache=True
        )
    yield because("use_gradient_checkpointing='unsloth'", Recomputation, policy=Policy("offloaded"))
    yield because("experts packed in one tensor are split into linear layers", Kernels, splits_experts=True)
    yield because("unsloth_zoo fused_losses", Loss, kind="linear")
    yield because("Unsloth's notebooks", Update, optimizer="adamw_8bit")
    yield from hf_trainer.resolve(draft, question, model)
