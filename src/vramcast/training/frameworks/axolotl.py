"""axolotl: the HF Trainer; bf16 models load in bf16, and what the k-bit preparation casts up is cast back.

Sources, opened at axolotl 0.7.0 and 0.12.2: loaders/model.py (utils/models.py before), _configure_embedding_dtypes (with an
adapter norms, embeddings and head return to the training dtype), _set_quantization_config (nested nf4), utils/config,
normalize_config (checkpointing is reentrant unless said otherwise), utils/schemas/training.py (adamw_torch_fused),
schemas/config.py (checkpointing off).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.recipe.recipe import Draft
from vramcast.workload import Training


def resolve(draft: Draft, question: Training, model: Model) -> None:
    """Checkpointing is off unless asked for; weights in the training dtype."""
    compute = draft.get("compute", "bfloat16")
    draft.default("axolotl: torch_dtype follows bf16", weights=compute, compute=compute, autocast=True)
    if draft.get("quant"):
        draft.default("axolotl casts norms, embeddings and head back to the training dtype", unquantized=compute)
    draft.default("axolotl default", checkpointing="none", double_quant=True, update="fused")
    draft.default("gradient_checkpointing_kwargs: use_reentrant true", reentrant=True)
    hf_trainer.resolve(draft, question, model)
