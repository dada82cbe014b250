"""A plain PyTorch loop around a Hugging Face model: everything in the dtype it was loaded in, no autocast, foreach AdamW.

Also what the PEFT method comparison, llama-recipes and NeMo AutoModel do unless told otherwise.
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.recipe.recipe import Draft
from vramcast.workload import Training

_KEEP_OUTPUT = ("pytorch", "peft_bench")  # outputs = model(...); outputs.loss.backward(), as PEFT's method comparison has it


def resolve(draft: Draft, question: Training, model: Model) -> None:
    """The model's own dtype, foreach AdamW; layers and loss as transformers runs them."""
    draft.default("loaded in the model's dtype", weights=draft.get("compute", model.dtype), autocast=False)
    draft.default("torch.optim picks foreach", update="foreach")
    draft.default("the optimizer is made outside the Trainer", wide_ends=False)
    piped = question.parallel.pp > 1
    draft.default("torch.distributed.pipelining, stage.py" if piped else "", receives_ahead=piped)
    if draft.get("framework") in _KEEP_OUTPUT:
        gathered = draft.get("compute") if question.fsdp or question.zero == 3 else None  # units come in the compute dtype
        draft.default("the loop's variable names the model's output", holds_logits=gathered or draft.get("weights"))
    hf_trainer.resolve(draft, question, model)
