"""Answer.AI's fsdp_qlora: FSDP1 in bf16 parameters, nf4 stored in a float type, reentrant checkpointing, HF loss.

Source: AnswerDotAI/fsdp_qlora at 02586ac7d, train.py (targets "all": every projection but the attention's output).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.recipe.recipe import Draft
from vramcast.workload import Training

TRANSFORMERS = "4.37"


def resolve(draft: Draft, question: Training, model: Model) -> None:
    """Its own LoRA wraps each layer; everything is bf16 (--precision bf16)."""
    draft.default("--precision bf16", weights="bfloat16", compute="bfloat16", autocast=False, adapter_dtype="bfloat16")
    draft.default("--use_gradient_checkpointing true", checkpointing="full", reentrant=True)
    draft.default("--low_memory true: loaded on the host, moved when sharded", loads_whole=False)
    draft.default("no k-bit upcasts", unquantized="bfloat16", live_gathers=2)
    draft.default("the optimizer is made outside the Trainer", wide_ends=False)
    hf_trainer.resolve(draft, hf_trainer.under(question, TRANSFORMERS), model)
