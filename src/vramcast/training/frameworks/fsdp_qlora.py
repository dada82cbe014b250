"""Answer.AI's fsdp_qlora: FSDP1 in bf16 parameters, nf4 stored in a float type, reentrant checkpointing, HF loss.

Source: AnswerDotAI/fsdp_qlora at 02586ac7d, train.py (targets "all": every projection but the attention's output).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import Adapters, Policy, Precision, Quantization, Recomputation, Sharding, Update
from vramcast.workload import Training

TRANSFORMERS = "4.37"


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """Its own LoRA wraps each layer; everything is bf16 (--precision bf16)."""
    yield because("--precision bf16", Precision, weights="bfloat16", compute="bfloat16", autocast=False)
    yield because("--precision bf16", Adapters, adapter_dtype="bfloat16")
    yield because("--use_gradient_checkpointing true", Recomputation, policy=Policy("full"), reentrant=True)
    yield because("--low_memory true: loaded on the host, moved when sharded", Quantization, loads_whole=False)
    yield because("no k-bit upcasts", Quantization, unquantized="bfloat16")
    yield because("no k-bit upcasts", Sharding, live_gathers=2)
    yield because("the optimizer is made outside the Trainer", Update, wide_ends=False)
    yield from hf_trainer.resolve(draft, hf_trainer.under(question, TRANSFORMERS), model)
