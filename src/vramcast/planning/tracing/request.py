"""The trace that runs a training question: its recipe in the tracer's own words, or the refusal of what it cannot run."""

from typing import Any

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import assumed_class, resident_threads
from vramcast.ledger import Assumption
from vramcast.models.inventory import Model
from vramcast.planning.tracing.layout import TRAINERS, LayoutOptions, distribution_of
from vramcast.planning.tracing.trained import trained
from vramcast.tracing.policies import DeviceModel
from vramcast.tracing.request import TraceRequest
from vramcast.training.recipe.parts import Recipe
from vramcast.training.resolve import resolve
from vramcast.workload import Parallel, Training

_OPTIMIZERS = {
    ("adamw", "foreach"): "adamw", ("adamw", "fused"): "adamw_fused", ("adamw", "loop"): "adamw_loop",
    "adamw_8bit": "adamw_8bit", "paged_adamw_8bit": "paged_adamw_8bit", "paged_adamw": "paged_adamw_32bit",
    "adafactor": "adafactor", "sgd": "sgd", "sgd_momentum": "sgd_momentum", "lion_8bit": "lion_8bit",
}  # fmt: skip
_PLAIN = LayoutOptions()


def training_request(
    question: Training,
    model: Model,
    config: dict[str, Any],
    *,
    card: Accelerator | None,
    backend: str,
    layers: int | None,
    layout: LayoutOptions = _PLAIN,
) -> tuple[TraceRequest, tuple[Assumption, ...]]:
    """The trace that runs a question's recipe, and what was assumed for it.

    Raises UnmodelledError, with what would answer it, for a part of the recipe that the tracer cannot run.
    """
    recipe, assumed = resolve(question, model)
    _refuse(recipe)
    request = TraceRequest(
        config=config,
        micro_batch=question.micro_batch,
        seq=question.seq,
        images=recipe.task.images,
        image_patches=recipe.task.image_patches,
        accumulate=_micro_batches(question),
        param_dtype=_parameter_dtype(recipe),
        autocast=_autocast(recipe, question.parallel),
        checkpointing=_checkpointing(recipe),
        optimizer=_optimizer(recipe),
        clip_norm=1.0 if recipe.framework in TRAINERS else None,
        keep_outputs=bool(recipe.loss.holds_logits),
        quant=recipe.quantization.scheme or None,
        double_quant=recipe.quantization.double_quant,
        **trained(question, recipe, model),
        attention="eager" if recipe.kernels.attention == "eager" else "sdpa",
        compiled=recipe.kernels.compiled,
        distribution=distribution_of(question, recipe, layout),
        backend=backend,
        layers=layers,
        device=device_model(card),
    )
    return request, (*model.assumed, *assumed_class(card), *assumed)


def _micro_batches(question: Training) -> int:
    """Micro-batches to trace: without a pipeline the second tells all later ones."""
    return question.accumulate if question.parallel.pp > 1 else min(question.accumulate, 2)


def _parameter_dtype(recipe: Recipe) -> str:
    """The type that the model is loaded in: of frozen weights beside adapters, of trained ones else."""
    adapters = recipe.task.method != "full" and not recipe.quantization.scheme
    return recipe.precision.frozen if adapters else recipe.precision.weights


def _autocast(recipe: Recipe, parallel: Parallel) -> str | None:
    """The compute type of torch.autocast; transformers' Trainer opens it whenever bf16 or fp16 is on, whatever the weights.

    torchtitan opens it where FSDP does not mix the types, and nothing does under tensor or pipeline parallelism alone
    (distributed/utils.py, maybe_enable_amp).
    """
    trainer = (
        recipe.framework in TRAINERS
        and recipe.precision.compute in {"bfloat16", "float16"}
        and not recipe.sharding.kind.startswith("zero")
    )
    alone = recipe.sharding.kind in {"none", "ddp"} and parallel.tp * parallel.pp == 1
    titan = recipe.framework == "torchtitan" and alone and recipe.precision.compute != recipe.precision.weights
    return recipe.precision.compute if recipe.precision.autocast or trainer or titan else None


def _checkpointing(recipe: Recipe) -> str:
    """Recomputation in the tracer's words; activations on the host are what recomputation starts from."""
    if "activations" in recipe.sharding.offload and recipe.recomputation.policy.kind == "full":
        return "offloaded"
    return (
        "reentrant"
        if recipe.recomputation.policy.kind == "full" and recipe.recomputation.reentrant
        else str(recipe.recomputation.policy)
    )


def device_model(card: Accelerator | None) -> DeviceModel:
    """The card as the traced program will see it; an A100 when none was named."""
    if card is None:
        return DeviceModel()
    return DeviceModel(
        name=card.name,
        capability=card.capability or (8, 0),
        memory_bytes=card.visible_bytes,
        multiprocessors=card.sms or DeviceModel().multiprocessors,
        threads_per_multiprocessor=resident_threads(card.capability or DeviceModel().capability),
    )


def _optimizer(recipe: Recipe) -> str:
    name = _OPTIMIZERS.get(recipe.update.optimizer) or _OPTIMIZERS.get((recipe.update.optimizer, recipe.update.implementation))
    if name is None:
        raise UnmodelledError(
            f"the tracer does not run optimizer {recipe.update.optimizer!r} ({recipe.update.implementation}): use vramcast train"
        )
    return name


def _refuse(recipe: Recipe) -> None:
    done = {
        "parameters": recipe.sharding.kind == "fsdp2",
        "activations": recipe.recomputation.policy.kind in {"full", "offloaded"},
    }
    offloaded = tuple(part for part in recipe.sharding.offload if not done.get(part))
    refused = {
        f"checkpointing {recipe.recomputation.policy}": recipe.recomputation.policy.kind
        not in {"none", "full", "offloaded", "op", "layer"},
        f"loss {recipe.loss.kind}": recipe.loss.kind in {"fused", "chunked", "linear"},
        "torch.compile with recomputation, adapters, 4-bit weights or divided weights": recipe.kernels.compiled
        and (
            recipe.recomputation.policy.kind != "none"
            or recipe.task.method != "full"
            or recipe.sharding.kind not in {"none", "ddp"}
        ),
        f"offload of {', '.join(offloaded)}": bool(offloaded),
        f"quantisation {recipe.quantization.scheme}": recipe.quantization.scheme not in {"", "nf4", "fp4"},
        f"task {recipe.task.kind}, whose loss needs more than one sequence and model": recipe.task.kind
        not in {"sft", "pretrain"},
    }
    found = [name for name, yes in refused.items() if yes]
    if found:
        raise UnmodelledError(
            f"the tracer does not run {'; '.join(found)} of this recipe: use vramcast train, or trace your script"
        )
