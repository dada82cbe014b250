"""A plain PyTorch loop around a Hugging Face model: everything in the dtype it was loaded in, no autocast, foreach AdamW.

Also what the PEFT method comparison, llama-recipes and NeMo AutoModel do unless told otherwise.
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.frameworks.common import DEEPSPEED_BUCKET, deepspeed_fetches
from vramcast.training.recipe.draft import Draft, Overrides, because, dtype_of
from vramcast.training.recipe.parts import Loss, ModelParallel, Precision, Sharding, Update
from vramcast.workload import Training

_KEEP_OUTPUT = ("pytorch", "peft_bench")  # outputs = model(...); outputs.loss.backward(), as PEFT's method comparison has it


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """The model's own dtype, foreach AdamW; layers and loss as transformers runs them."""
    held = dtype_of(model.dtype if draft.get("autocast") else draft.get("compute", model.dtype))
    yield because("loaded in the model's dtype", Precision, weights=held, autocast=False)
    yield because("torch.optim picks foreach", Update, implementation="foreach")
    yield because("the optimizer is made outside the Trainer", Update, wide_ends=False)
    yield from _pipeline(question)
    if question.zero and draft.framework == "pytorch":
        yield from _own_engine(question.zero)
    if draft.framework in _KEEP_OUTPUT:
        gathered = draft.get("compute") if question.fsdp or question.zero == 3 else None  # units come in the compute dtype
        yield because("the loop's variable names the model's output", Loss, holds_logits=gathered or draft.get("weights"))
    yield from hf_trainer.resolve(draft, question, model)


def _pipeline(question: Training) -> Overrides:
    """torch.distributed.pipelining's stages, or DeepSpeed's PipelineEngine where a stage of ZeRO (0 too) says whose engine runs.

    Source: DeepSpeed 0.19.8, runtime/pipe/engine.py (_exec_forward_pass puts the last stage's logits into pipe_buffers,
    _exec_backward_pass returns before it would free them there), schedule.py (num_pipe_buffers: two on the last stage).
    """
    if question.parallel.pp == 1:
        return
    if question.zero is None:
        yield because("torch.distributed.pipelining, stage.py", ModelParallel, receives_ahead=True)
        yield because("schedule.step returns outputs unless told otherwise", Loss, keeps_outputs=True)
    else:
        yield because("the last stage's two pipe_buffers are not freed", Loss, keeps_outputs=True, output_buffers=2)


def _own_engine(stage: int) -> Overrides:
    """deepspeed.initialize in the loop itself: the engine's own defaults, and the whole model moved to every card first.

    Source: DeepSpeed 0.19.8, runtime/zero/config.py (overlap_comm: stage 3 alone), runtime/engine.py
    (_configure_distributed_model: module.to(device), without zero.Init).
    """
    third = stage == 3
    reason = "the engine's own reduce_bucket_size; \"auto\" is the Trainer's"
    yield because(reason, Sharding, reduce_bucket=DEEPSPEED_BUCKET)
    yield because("overlap_comm of stage 3 alone", Sharding, overlaps=third)
    yield because("engine.py: module.to(device)" if third else "", Sharding, moves_whole=third)
    yield from deepspeed_fetches()
