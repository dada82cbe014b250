"""ms-swift: the HF Trainer over a model loaded in the training dtype, checkpointing on.

Sources, opened at ms-swift 1.5.4, 2.6.1, 3.9.3 and 4.6.0: trainers/arguments.py and llm/utils/argument.py
(gradient_checkpointing True, adamw_torch), llm/train/tuner.py, prepare_adapter (PEFT's adapters in fp32; no k-bit preparation),
base_args/quant_args.py (bnb_4bit_use_double_quant True in all four).

Until 2.x the published benchmark shows bitsandbytes runs larger than GPTQ's by what embeddings, head and norms in float32 take,
on three sizes of model, though its source casts nothing: the float32 of the k-bit preparation is kept for those releases.
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.frameworks.releases import month_of
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import Policy, Precision, Quantization, Recomputation, Task
from vramcast.workload import Training

NO_KBIT = (2024, 12)  # 3.0
FREEZES_TOWERS = (2024, 12)  # llm/argument/tuner_args.py: freeze_vit, freeze_aligner


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """Loaded in 16 bits, adapters in fp32, autocast on."""
    compute = draft.get("compute", "bfloat16")
    yield because("ms-swift loads in the training dtype", Precision, weights=compute, compute=compute, autocast=True)
    yield because("ms-swift: gradient_checkpointing=True", Recomputation, policy=Policy("full"))
    yield because("bnb_4bit_use_double_quant=True", Quantization, double_quant=True)
    if draft.get("quant") and month_of(question, "ms_swift") >= NO_KBIT:
        yield because("ms-swift calls no prepare_model_for_kbit_training", Quantization, unquantized=compute)
    frozen = bool(model.towers) and month_of(question, "ms_swift") >= FREEZES_TOWERS
    yield because("freeze_vit and freeze_aligner" if frozen else "", Task, freezes_towers=frozen)
    yield because(
        "AutoGPTQ trains through its unpacking kernel", Quantization, unpacks=str(draft.get("quant", "")).startswith("gptq")
    )
    yield from hf_trainer.resolve(draft, question, model)
