"""The forecast of a training step beside a trace of the same run: matmuls, attention, other kernels, optimizer, waiting."""

from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.ledger import Term
from vramcast.profiling.kernels import COMMUNICATION
from vramcast.profiling.report import Report

# The forecast's kinds of work, and the classes of kernels that do it.
_WORK = {"products": "matmuls", "experts": "matmuls", "scores": "attention", "streams": "other kernels"}
_CLASSES = {"GEMM": "matmuls", "MoE": "matmuls", "attention": "attention", "optimizer": "optimizer"}
_ALIKE = 1.5  # convention of attention, adapters, and kernels without shapes stay below that
_ORDER = ("matmuls", "attention", "other kernels", "optimizer", "exposed communication", "host", "pipeline bubble")


class StepPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a step: seconds in the trace and in the forecast; 0 where one has none."""

    name: str
    trace_s: float
    forecast_s: float


class TraceComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A traced step (means over the trace's steps) beside the forecast of the run. ``mfu``: of both, causal.

    ``doubt``: why the trace is probably of another run, "" when its matmuls hold the FLOPs that the forecast expects.
    """

    model: str
    steps: int
    trace_step_s: float
    forecast_step_s: float
    trace_mfu: float
    forecast_mfu: float
    parts: tuple[StepPart, ...]
    doubt: str = ""


def compare_with_trace(
    report: Report, *, model: str, gpu: str | None, seq: str | int | None, words: dict[str, Any]
) -> TraceComparison:
    """The forecast of the run that ``words`` describe (names of ``vramcast train``) beside the report's steps.

    Raises QuestionError for a trace without steps and for a question that is incomplete; as ``train`` for the rest.
    """
    if not report.steps:
        raise QuestionError(
            "the trace has no steps to hold a forecast against: call profiler.step(), or name NVTX ranges 'step N'"
        )
    if not seq or not gpu:
        raise QuestionError("--model forecasts the run beside the trace: give --seq and --gpu NAMExN too")
    from vramcast.asking.doors import train

    speed = train(model, gpu=gpu, seq=seq, **words).speed
    if not speed:
        raise QuestionError(f"no step time is forecast of {model} on {gpu}")
    step = sum(s.gpu_s for s in report.steps) / len(report.steps)
    traced, forecast = _traced(report), _forecast(speed["terms"])
    return TraceComparison(
        model=model,
        steps=len(report.steps),
        trace_step_s=step,
        forecast_step_s=speed["step_s"],
        trace_mfu=speed["mfu"] * speed["step_s"] / step,
        forecast_mfu=speed["mfu"],
        parts=tuple(
            StepPart(name=name, trace_s=traced.get(name, 0.0), forecast_s=forecast.get(name, 0.0))
            for name in _ORDER
            if traced.get(name) or forecast.get(name)
        ),
        doubt=_doubt(report, speed, gpu),
    )


def _doubt(report: Report, speed: dict[str, Any], gpu: str) -> str:
    """FLOPs of a step in the trace's shapes against the forecast's; a trace without shapes cannot tell."""
    from vramcast.hardware.cards import least_card

    if report.arithmetic is None:
        return ""
    traced = report.arithmetic.flops / len(report.steps)
    wanted = speed["hfu"] * speed["step_s"] * least_card(gpu).flops.get("bf16", 0.0)
    if not wanted or 1 / _ALIKE <= traced / wanted <= _ALIKE:
        return ""
    return (
        f"the trace's matmuls and attentions hold {traced / 1e12:,.1f} TFLOP a step, the forecast's {wanted / 1e12:,.1f}: "
        "another model, batch, length or number of cards?"
    )


def _traced(report: Report) -> dict[str, float]:
    """Seconds of a step by part: the whole trace's over its steps."""
    found: dict[str, float] = {}
    for row in report.classes:
        if row.name != COMMUNICATION:
            name = _CLASSES.get(row.name, "other kernels")
            found[name] = found.get(name, 0.0) + row.seconds
    found["exposed communication"] = report.where.exposed_communication_s
    found["host"] = report.where.idle_s
    return {name: seconds / len(report.steps) for name, seconds in found.items()}


def _forecast(terms: tuple[Term, ...]) -> dict[str, float]:
    """The leaves of the step's ledger by part."""
    found: dict[str, float] = {}
    for term in terms:
        inner = _forecast(term.terms) if term.terms else {_part(term.name): term.seconds}
        for name, seconds in inner.items():
            found[name] = found.get(name, 0.0) + seconds
    return found


def _part(term: str) -> str:
    if term in _WORK:
        return _WORK[term]
    return {"optimizer": "optimizer", "host": "host", "bubble": "pipeline bubble"}.get(term, "exposed communication")
