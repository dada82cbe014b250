"""axolotl: the HF Trainer; bf16 models load in bf16, and what the k-bit preparation casts up is cast back.

Sources, opened at axolotl 0.7.0 and 0.12.2: loaders/model.py (utils/models.py before), _configure_embedding_dtypes (with an
adapter norms, embeddings and head return to the training dtype), _set_quantization_config (nested nf4), utils/config,
normalize_config (checkpointing is reentrant unless said otherwise), utils/schemas/training.py (adamw_torch_fused),
schemas/config.py (checkpointing off).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import Policy, Precision, Quantization, Recomputation, Update
from vramcast.workload import Training


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """Checkpointing is off unless asked for; weights in the training dtype."""
    compute = draft.get("compute", "bfloat16")
    yield because("axolotl: torch_dtype follows bf16", Precision, weights=compute, compute=compute, autocast=True)
    if draft.get("quant"):
        yield because("axolotl casts norms, embeddings and head back to the training dtype", Quantization, unquantized=compute)
    yield because("axolotl default", Recomputation, policy=Policy("none"))
    yield because("axolotl default", Quantization, double_quant=True)
    yield because("axolotl default", Update, implementation="fused")
    yield because("gradient_checkpointing_kwargs: use_reentrant true", Recomputation, reentrant=True)
    yield from hf_trainer.resolve(draft, question, model)
