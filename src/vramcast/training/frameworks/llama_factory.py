"""LLaMA-Factory: the HF Trainer, checkpointing on, trained parameters upcast to fp32.

Sources, opened at llamafactory 0.8.3, 0.9.3 and 0.9.5: model/adapter.py, init_adapter (no upcast under pure_bf16, BAdam or an
unquantised ZeRO-3; 0.8.3 also none under FSDP); model/model_utils/checkpointing.py, prepare_model_for_training (norms are
upcast only by upcast_layernorm, reentrant checkpointing but under FSDP2; PEFT's k-bit preparation is not called);
model/patcher.py (the frozen rest loads in the compute dtype); hparams/model_args.py (double_quantization True);
hparams/finetuning_args.py (freeze_vision_tower and freeze_multi_modal_projector True, for full training and adapters).
"""

from vramcast.errors import QuestionError
from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.frameworks.releases import month_of
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import Policy, Precision, Quantization, Recomputation, Task
from vramcast.workload import Training

FSDP_UPCASTS = (2024, 9)  # 0.9


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """What is trained is upcast to fp32 unless pure_bf16 (weights in bf16), BAdam or ZeRO-3."""
    compute = draft.get("compute", "bfloat16")
    pure = draft.get("weights") == "bfloat16" and question.method == "full"
    if pure and question.zero == 3:
        raise QuestionError("LLaMA-Factory refuses pure_bf16 with ZeRO-3: leave the weights in float32 or use ZeRO-2")
    spared = question.zero == 3 or (question.fsdp and month_of(question, "llama_factory") < FSDP_UPCASTS)
    upcast = question.method in ("full", "freeze", "llama_pro") and not spared
    yield because(
        "trained parameters are upcast", Precision, weights="float32" if upcast else compute, compute=compute, autocast=True
    )
    yield because("loaded in the compute dtype", Precision, frozen=compute)
    if draft.get("quant"):
        yield because("upcast_layernorm=False, and no k-bit preparation", Quantization, unquantized=compute)
    yield because(
        "freeze_vision_tower and freeze_multi_modal_projector" if model.towers else "", Task, freezes_towers=bool(model.towers)
    )
    yield because("disable_gradient_checkpointing=False", Recomputation, policy=Policy("full"))
    yield because("disable_gradient_checkpointing=False", Quantization, double_quant=True)
    yield because("use_reentrant_gc, which FSDP2 turns off", Recomputation, reentrant=question.fsdp != 2)
    yield from hf_trainer.resolve(draft, question, model)
