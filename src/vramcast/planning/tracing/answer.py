"""From a training question to a trace of the same recipe, and from the trace back to the answer's one form."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.cards import find_accelerator
from vramcast.hardware.runtime import context_bytes
from vramcast.ledger import Assumption, Fit, Forecast, Limits, ModelFacts, RankMemory, Unmodelled
from vramcast.models.inventory import Model, facts_of
from vramcast.models.reading import read_model
from vramcast.planning.tracing.layout import LayoutOptions, equal_parts, stages_of
from vramcast.planning.tracing.request import device_model, training_request
from vramcast.planning.tracing.trained import by_known_rules
from vramcast.planning.training import ledger_of
from vramcast.planning.verdict import traced_fit
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.tracing.configs import check_built, config_of
from vramcast.tracing.extrapolation.depth import BASE_PERIODS, shallow_depths
from vramcast.tracing.reports.report import TraceReport, report
from vramcast.tracing.request import SEVERAL_CARDS, ScriptRequest, TraceRequest, TraceResult
from vramcast.tracing.run import Tracer, trace, trace_script
from vramcast.training.activations.choice import scans_of
from vramcast.training.resolve import resolve
from vramcast.workload import Training


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """A trace: the answer in the form all levels of evidence share, the raw result, its reading, and the forecast beside it.

    ``request``: what was traced, None for a script.
    """

    answer: Forecast
    result: TraceResult
    reading: TraceReport
    forecast: Forecast | None = None
    request: TraceRequest | None = None

    @property
    def expected(self) -> RankMemory:
        """The forecast's memory of the rank that the trace found to need most."""
        ranks = self.forecast.ranks if self.forecast else self.answer.ranks
        return next((r for r in ranks if r.rank == self.answer.worst.rank), ranks[0])

    @property
    def beside(self) -> tuple[tuple[str, int, int], ...]:
        """Each term of the ledger of the peak: name, traced bytes, forecast bytes."""
        if self.forecast is None:
            return ()
        traced = {t.name: t.bytes for t in self.reading.memory.terms}
        expected = {t.name: t.bytes for t in self.expected.terms}
        names = dict.fromkeys([*traced, *expected])
        return tuple((name, traced.get(name, 0), expected.get(name, 0)) for name in names)


_CUDNN = "workspace of cuDNN's attention backward, whose size its library keeps to itself"
_PLAIN = LayoutOptions()


def trace_training(
    question: Training,
    *,
    model: Model | None = None,
    backend: str = "auto",
    layers: int | None = None,
    whole: bool = False,
    layout: LayoutOptions = _PLAIN,
    settings: AllocatorSettings | None = None,
    tracer: Tracer | None = None,
) -> Traced:
    """Trace the step of a training question: an answer as ``forecast_training`` gives, from the real code on fake tensors.

    A deep stack is traced at three small depths and its log written from theirs, unless ``whole`` or ``layers`` is given.
    Without ``settings`` the allocator is set as the framework's launcher sets it.

    Raises MissingError without the [torch] extra, UnmodelledError for a recipe that the tracer cannot run, QuestionError when
    the model's own code fails.
    """
    model = model or read_model(question.model)
    card = find_accelerator(question.gpu) if question.gpu else None
    config, source = config_of(model, question.model)
    method, question = question.method, by_known_rules(question)
    request, assumed = training_request(question, model, config, card=card, backend=backend, layers=layers, layout=layout)
    if not whole and layers is None:
        request = shallow(request, model)
    if settings is None:
        settings = AllocatorSettings(expandable_segments=resolve(question, model)[0].process.expandable)
    forecast = ledger_of(as_run_here(question, model), model=model, card=card)
    beside = forecast if method == question.method else None
    workload = {**forecast.workload, "method": method, "config": source}
    found: list[tuple[str, Traced]] = []
    for rank, stage, result in _traced_stages(request, tracer):
        if layers is None and request.adapter is None and not request.quant:
            check_built(model, result.parameters, source)
        traced = finish(workload, result, settings, model=model, card=card, assumed=assumed, forecast=beside)
        if stage.compiled:
            traced = _less_certain(traced)
        found.append((rank, msgspec.structs.replace(traced, request=stage)))
    return _together(found)


def _traced_stages(request: TraceRequest, tracer: Tracer | None) -> Iterator[tuple[str, TraceRequest, TraceResult]]:
    """Each pipeline stage as it was asked for, and what its trace found."""
    first: TraceResult | None = None
    for rank, stage in stages_of(request):
        repeats = first is not None and first.depths and stage.depths  # as the first stage's layers did: two depths tell them
        asked = msgspec.structs.replace(stage, depths=(stage.depths or ())[:2]) if repeats else stage
        result = traced_result(asked, tracer)
        first = first or result
        yield rank, asked, result


def as_run_here(question: Training, model: Model) -> Training:
    """The question with scans in plain torch where mamba-ssm is not installed: the tracer runs what transformers then runs."""
    if not scans_of(model) or find_spec("mamba_ssm") is not None:
        return question
    return msgspec.structs.replace(question, options={"scan": "torch"} | question.options)


def _less_certain(traced: Traced) -> Traced:
    """The answer with what of it compiled kernels may not make: its own interval below the traced peak."""
    fused = sum(term.bytes for term in traced.answer.worst.peak.terms if term.name == "temporaries")
    what = "torch.compile: saved tensors are AOTAutograd's, what is fused is a rule's: as much of the peak may not exist"
    unmodelled = (Unmodelled(what, fused), *traced.answer.unmodelled)
    return msgspec.structs.replace(traced, answer=msgspec.structs.replace(traced.answer, unmodelled=unmodelled))


def _together(found: list[tuple[str, Traced]]) -> Traced:
    """The rank that needs most, with the memory of every traced rank in its answer."""
    _, worst = max(found, key=lambda item: item[1].answer.worst.device_bytes)
    ranks = tuple(msgspec.structs.replace(traced.answer.worst, rank=name) for name, traced in found)
    return msgspec.structs.replace(worst, answer=msgspec.structs.replace(worst.answer, ranks=ranks))


def trace_program(
    argv: tuple[str, ...],
    *,
    gpu: str | None = None,
    gpus: int = 1,
    processes: int = 0,
    environment: dict[str, str] | None = None,
    settings: AllocatorSettings | None = None,
    steps: int = 2,
    write_through: bool = False,
    life: bool = False,
    timeout_s: float = 600,
) -> Traced:
    """Trace a user's own script for some optimizer steps, as if it ran on that card, as rank 0 of ``gpus``.

    ``processes``: how many its launcher starts where one card is named; 0 without a launcher. ``environment``: variables that
    stand before the command. ``write_through``: let it write its files for real. ``life``: mark the stages of the job, and go on
    after its steps until the next one begins.
    """
    card = find_accelerator(gpu) if gpu else None
    ranks = gpus if gpus > 1 else max(processes, 1)
    device = msgspec.structs.replace(device_model(card), count=ranks)
    request = ScriptRequest(
        argv=argv,
        environment=environment or {},
        device=device,
        ranks=ranks,
        launched=processes > 0,
        steps=steps,
        write_through=write_through,
        life=life,
    )
    result = trace_script(request, timeout_s=timeout_s)
    workload = {"script": list(argv), "gpu": card.name if card else None, "gpus": ranks}
    return finish(workload, result, settings, card=card)


def finish(
    workload: dict[str, Any],
    result: TraceResult,
    settings: AllocatorSettings | None,
    *,
    model: Model | None = None,
    card: Accelerator | None = None,
    assumed: tuple[Assumption, ...] = (),
    forecast: Forecast | None = None,
    serving: bool = False,
) -> Traced:
    """Read a result's log and put it into the answer's form."""
    reading = report(result.log, settings, context_bytes=context_bytes(card), serving=serving)
    answer = Forecast(
        workload=workload,
        model=facts_of(model) if model is not None else _facts(workload, result),
        ranks=(reading.memory,),
        fit=_untold(result, traced_fit(reading.memory, card)),
        limits=Limits(),
        assumed=(*assumed, *_extrapolated(result)),
        unmodelled=_unmodelled(result),
    )
    return Traced(answer=answer, result=result, reading=reading, forecast=forecast)


def _untold(result: TraceResult, fit: Fit) -> Fit:
    """The verdict; none where the program failed or made no step (a lower bound), or only its eager form does not fit."""
    if fit.verdict in ("no", "tight") and any(note.startswith("torch.compile was asked") for note in result.notes):
        return Fit(
            verdict="unknown",
            error="torch.compile was asked for: the step as traced is an upper bound, and it does not surely fit",
        )
    if fit.verdict in ("no", "tight") and any(note.startswith(SEVERAL_CARDS) for note in result.notes):
        return Fit(
            verdict="unknown", error="the script uses several cards: together they need more than one has, each needs less"
        )
    if result.error:
        return Fit(verdict="unknown", error=f"the program failed before its steps were done: {result.error}"[:500])
    if not result.steps and any(note.startswith("the script made no") for note in result.notes):
        return Fit(verdict="unknown", error="the program made no optimizer step: nothing tells what its training needs")
    if result.steps and not result.log.allocations:
        return Fit(verdict="unknown", error="the program put nothing on the card: its steps ran on the CPU")
    return fit


# ZeRO-3 looks so many elements ahead, and keeps what is used again so soon: a shallower stack is handled otherwise (DeepSpeed
# 0.19.8, runtime/zero/config.py, stage3_max_reuse_distance and stage3_max_live_parameters).
_ZERO3_REACH = 10**9
# What ZeRO 1 and 2 reduce at once is cut where a rank's part of all gradients ends, at another place in each layer.
_IRREGULAR = frozenset({"zero1", "zero2"})


def shallow(request: TraceRequest, model: Model) -> TraceRequest:
    """The same request at three small depths, where those tell the whole stack."""
    how = request.distribution
    chunks = how.parallel.pp * how.parallel.vpp
    part = equal_parts(model, chunks)
    if not part or request.trained_layers is not None or how.sharding in _IRREGULAR:
        return request
    reach = 2 * _ZERO3_REACH * model.layers // model.parameters if how.sharding == "zero3" else 0
    ahead = how.sharding not in {"none", "ddp"}  # gathers run one layer ahead of the one that computes
    depths = shallow_depths(part, base=BASE_PERIODS + ahead + reach)
    if depths is None:
        return request
    first, second, third = (chunks * depth for depth in depths)
    if reach:
        third = min(second + 3 * (second - first), model.layers)  # a far check: what is looked ahead at may begin late
    return msgspec.structs.replace(request, layers=model.layers, depths=(first, second, third))


def traced_result(request: TraceRequest, tracer: Tracer | None) -> TraceResult:
    """What a tracer finds, or a process of its own. Raises QuestionError when the model's own code fails."""
    result = tracer.trace(request) if tracer else trace(request)
    if result.error:
        raise QuestionError(f"the model's own code failed under the tracer: {result.error}")
    return result


def _unmodelled(result: TraceResult) -> tuple[Unmodelled, ...]:
    made_up = [Unmodelled(f"value made up {count} times: {where}") for where, count in result.guessed.items()]
    managed = [Unmodelled("managed memory outside the allocator", result.outside_bytes)] if result.outside_bytes else []
    kernels = [Unmodelled(_CUDNN)] if result.attention.get("cudnn") else []
    return (*managed, *kernels, *made_up, *(Unmodelled(note) for note in result.notes))


def _extrapolated(result: TraceResult) -> tuple[Assumption, ...]:
    if not result.depths:
        return ()
    traced = ", ".join(map(str, result.depths))
    checked = " and checked event by event against the third" if len(result.depths) > 2 else ", as the first stage has shown"
    why = f"the log of all layers was written from the first two{checked}; --whole traces all"
    return (Assumption("layers traced", traced, why),)


def _facts(workload: dict[str, Any], result: TraceResult) -> ModelFacts:
    name = str(workload.get("model") or "the script's model")
    return ModelFacts(id=name, parameters=result.parameters, active_parameters=result.parameters, layers=0, source="traced")
