"""From a question to the run that measures it, and its forecast to stand beside."""

from typing import TYPE_CHECKING, Any

import msgspec

from vramcast.errors import QuestionError, UnmodelledError, VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import RankMemory
from vramcast.measuring.campaign import Point
from vramcast.measuring.request import MeasureRequest
from vramcast.models.inventory import Model
from vramcast.planning.tracing.layout import LayoutOptions, distribution_of
from vramcast.planning.tracing.request import device_model, training_request
from vramcast.tracing.configs import config_of
from vramcast.tracing.request import TraceRequest
from vramcast.training.forecast import forecast_training
from vramcast.training.resolve import resolve
from vramcast.workload import Parallel, Serving, Training

if TYPE_CHECKING:
    from vramcast.tracing.run import Tracer

_METHODS = frozenset({"full", "lora", "qlora"})
_SPREADS = ("none", "ddp", "fsdp2")


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a question, as for ``MeasureRequest``; ``kernels``: SDPA's, in the order they are tried."""

    device: str = "cuda"
    warmup: int = 2
    repeats: int = 3
    snapshot: str = ""
    kernels: tuple[str, ...] = ()


def point_of(
    question: Training | Serving, model: Model, *, card: Accelerator | None = None, how: RunSettings | None = None
) -> Point:
    """The case that measures a question. Raises UnmodelledError for a part of the recipe that the runner cannot run."""
    how = how or RunSettings()
    if isinstance(question, Serving):
        return Point(name=_serving_name(question), question=question, request=_generation(question, model, card, how))
    return Point(name=_training_name(question), question=question, request=_training(question, model, card, how))


def on_cards(question: Training, card: Accelerator | None, cards: int) -> Training:
    """The question on that many of this machine's cards, each a copy or a shard of the model."""
    layout = msgspec.structs.replace(question.parallel, dp=cards)
    known = card.id if card is not None and card.sold_bytes else None
    return msgspec.structs.replace(question, gpu=known, gpus=cards, parallel=layout)


def serving_of(question: Training, new_tokens: int) -> Serving:
    """The generation that the flags of a training question describe: ``micro_batch`` prompts of ``seq`` tokens."""
    if question.gpus > 1:
        raise QuestionError("generation is measured on one card: leave out --gpus")
    return Serving(
        model=question.model,
        gpu=question.gpu,
        engine="transformers",
        context=question.seq + new_tokens,
        concurrency=question.micro_batch,
        prompt=question.seq,
        output=new_tokens,
    )


def forecast_beside(question: Training | Serving, model: Model, card: Accelerator | None) -> dict[str, Any]:
    """The forecast's counters of the same question, in bytes."""
    worst = _worst(question, model, card)
    return {
        "allocated_bytes": worst.allocated_bytes,
        "reserved_bytes": worst.reserved_bytes,
        "device_bytes": worst.device_bytes,
        "instant": worst.peak.name,
    }


def trace_beside(request: MeasureRequest, card: Accelerator | None, tracer: "Tracer | None" = None) -> dict[str, int]:
    """Allocated and reserved peaks of the same step on fake tensors, in bytes; empty where the tracer cannot run it.

    ``tracer``: one that stays for further requests.
    """
    from vramcast.hardware.runtime import context_bytes
    from vramcast.tracing.reports.report import report
    from vramcast.tracing.run import trace

    if request.compiled:
        return {}
    try:
        result = tracer.trace(request.step) if tracer else trace(request.step)
    except VramcastError:
        return {}
    if result.error:
        return {}
    memory = report(result.log, None, context_bytes=context_bytes(card), serving=request.step.task == "generate").memory
    return {"allocated": memory.allocated_bytes, "reserved": memory.reserved_bytes, "device": memory.device_bytes}


def _worst(question: Training | Serving, model: Model, card: Accelerator | None) -> RankMemory:
    if isinstance(question, Training):
        return forecast_training(question, model=model, card=card).worst
    from vramcast.serving.engines.base import answer_of

    return max(answer_of(question, model=model, card=card).ranks, key=lambda rank: rank.device_bytes)


def _training(question: Training, model: Model, card: Accelerator | None, how: RunSettings) -> MeasureRequest:
    recipe, _ = resolve(question, model)
    if question.method not in _METHODS:
        raise UnmodelledError(f"the runner does not train by {question.method!r}: measure your own script after --")
    if recipe.sharding.kind not in _SPREADS:
        raise UnmodelledError(
            f"the runner does not shard as {recipe.sharding.kind}: give it --fsdp, or measure your script after --"
        )
    # One rank of it is what a trace would run; the ranks, and compilation, are the runner's own.
    alone = msgspec.structs.replace(question, gpus=1, parallel=_without_ranks(question.parallel), fsdp=None, compile=False)
    config, _ = config_of(model, question.model)
    step, _ = training_request(alone, model, config, card=card, backend="auto", layers=None)
    if question.gpus > 1:
        step = msgspec.structs.replace(step, distribution=distribution_of(question, recipe, LayoutOptions()))
    return msgspec.structs.replace(_request(step, how), compiled=recipe.kernels.compiled, ranks=question.gpus)


def _generation(question: Serving, model: Model, card: Accelerator | None, how: RunSettings) -> MeasureRequest:
    config, _ = config_of(model, question.model)
    step = TraceRequest(
        config=config,
        task="generate",
        micro_batch=question.concurrency or 1,
        seq=question.prompt or 2048,
        new_tokens=question.output or 2,
        param_dtype=question.dtype or model.dtype,
        device=device_model(card),
    )
    return _request(step, how)


def _request(step: TraceRequest, how: RunSettings) -> MeasureRequest:
    run = msgspec.structs.asdict(how)
    step = msgspec.structs.replace(step, attention_kernels=run.pop("kernels"))
    return MeasureRequest(step=step, **run)


def _without_ranks(layout: Parallel) -> Parallel:
    return msgspec.structs.replace(layout, dp=1)


def _training_name(question: Training) -> str:
    adapter = f"-r{question.adapter.rank}" if question.adapter else ""
    world = f"-x{question.gpus}" if question.gpus > 1 else ""
    return f"{question.model}-{question.method}{adapter}-{question.micro_batch}x{question.seq}{world}"


def _serving_name(question: Serving) -> str:
    return f"{question.model}-generate-{question.concurrency}x{question.prompt}+{question.output}"
