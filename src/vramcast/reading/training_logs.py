"""What training programs print about their speed, taken apart: which program it was, and its steady throughput.

A form is one row: a pattern that only this program prints, and the figures in it with their unit and scope. Of many lines the
median of the steady half is taken (the first steps compile, allocate and warm up). Also read: ``trainer_state.json`` and the
``*_results.json`` of Hugging Face's Trainer.
"""

import re
from statistics import median
from typing import Any

import msgspec

from vramcast.errors import ConfigError, QuestionError
from vramcast.untrusted import parse_json

_LARGEST = 1e30
_LONGEST_LINE = 2_000
_MOST_LINES = 200_000
_N = r"([0-9][0-9,]{0,20}(?:\.[0-9]{1,20})?(?:e[+-]?[0-9]{1,3})?|\.[0-9]{1,20})"


class Field(msgspec.Struct, frozen=True):
    """One figure of a line: what it is (the name of a field of LogFigures), where it stands, and its factor to our unit."""

    name: str
    pattern: re.Pattern[str]
    scale: float = 1.0


class Form(msgspec.Struct, frozen=True):
    """How one program prints a step; ``mfu``: the convention of the MFU or FLOPs it prints."""

    program: str
    line: re.Pattern[str]
    fields: tuple[Field, ...]
    convention: str = ""


class LogFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The steady figures of a log; None where the program prints none. Per card unless the name says otherwise.

    ``mfu`` is a fraction. ``convention``: how the program counts (a key of speed.utilization.CONVENTIONS), "" when unknown.
    ``data_share``: the part of a step that waits for data.
    """

    program: str
    lines: int
    convention: str = ""
    tokens_per_s: float | None = None
    tokens_per_s_all: float | None = None
    samples_per_s_all: float | None = None
    step_s: float | None = None
    flops_per_s: float | None = None
    mfu: float | None = None
    batch_all: float | None = None
    seq: float | None = None
    data_share: float | None = None
    total_flops: float | None = None
    runtime_s: float | None = None


def _field(name: str, pattern: str, scale: float = 1.0) -> Field:
    return Field(name, re.compile(pattern.replace("<N>", _N), re.IGNORECASE), scale)


FORMS = (
    Form(
        "torchtitan",
        re.compile(r"step:\s*\d+.*\btps:\s*[\d,]+"),
        (
            _field("tokens_per_s", r"\btps:\s*<N>"),
            _field("flops_per_s", r"\btflops:\s*<N>", 1e12),
            _field("mfu", r"\bmfu:\s*<N>%", 0.01),
        ),
        "full",
    ),
    Form(
        "Megatron-LM",
        re.compile(r"iteration\s+\d+/\s*\d+.*elapsed time per iteration"),
        (
            _field("step_s", r"elapsed time per iteration \(ms\):\s*<N>", 1e-3),
            _field("step_s", r"elapsed time per iteration \(s\):\s*<N>"),
            _field("flops_per_s", r"throughput per GPU \(TFLOP/s/GPU\):\s*<N>", 1e12),
            _field("flops_per_s", r"\|\s*TFLOPs:\s*<N>", 1e12),
            _field("samples_per_s_all", r"samples per second:\s*<N>"),
            _field("batch_all", r"global batch size:\s*<N>"),
            _field("seq", r"curriculum seqlen:\s*<N>"),
        ),
        "full",
    ),
    Form(
        "MaxText",
        re.compile(r"completed step:\s*\d+.*TFLOP/s/device"),
        (
            _field("step_s", r"seconds:\s*<N>"),
            _field("flops_per_s", r"TFLOP/s/device:\s*<N>", 1e12),
            _field("tokens_per_s", r"Tokens/s/device:\s*<N>"),
        ),
        "full",
    ),
    Form(
        "nanochat",
        re.compile(r"step\s+\d+(?:/\d+)?.*\|.*tok/sec:?\s*[\d,]+"),
        (
            _field("step_s", r"\bdt:\s*<N>\s*ms", 1e-3),
            _field("tokens_per_s_all", r"tok/sec:?\s*<N>"),
            _field("mfu", r"\bmfu:\s*<N>", 0.01),
        ),
        "full",
    ),
    Form(
        "llm.c",
        re.compile(r"step\s+\d+/\d+\s*\|.*\bms\b.*tok/s"),
        (
            _field("step_s", r"\|\s*<N>\s*ms", 1e-3),
            _field("mfu", r"<N>%\s*(?:bf16|fp32|tf32)?\s*MFU", 0.01),
            _field("tokens_per_s_all", r"<N>\s*tok/s"),
        ),
        "full",
    ),
    Form(
        "nanoGPT",
        re.compile(r"iter\s+\d+:\s*loss\s+\S+,\s*time\s+\S+ms"),
        (_field("step_s", r"time\s+<N>ms", 1e-3), _field("mfu", r"mfu\s+<N>%", 0.01)),
        "full",
    ),
    Form(
        "litgpt",
        re.compile(r"iter(?:ation)?\s+\d+.*iter time:\s*[\d.]+"),
        (_field("step_s", r"iter time:\s*<N>\s*ms", 1e-3), _field("tokens_per_s", r"tokens/sec:\s*<N>")),
    ),
    Form(
        "DeepSpeed",
        re.compile(r"RunningAvgSamplesPerSec=|CurrSamplesPerSec="),
        (_field("samples_per_s_all", r"CurrSamplesPerSec=<N>"),),
    ),
    Form(
        "DeepSpeed flops profiler",
        re.compile(r"FLOPS per GPU|samples/second|fwd\+bwd", re.IGNORECASE),
        (
            _field("flops_per_s", r"fwd\+bwd FLOPS per GPU.*?[:=]\s*<N>\s*TFLOPS", 1e12),
            _field("flops_per_s", r"^FLOPS per GPU.*?[:=]\s*<N>\s*TFLOPS", 1e12),
            _field("samples_per_s_all", r"samples/second:?\s*<N>"),
        ),
        "full",
    ),
    Form(
        "llm-foundry",
        re.compile(r"throughput/(?:device/)?(?:tokens|samples|batches|flops)_per_sec|throughput/device/mfu"),
        (
            _field("tokens_per_s", r"throughput/device/tokens_per_sec:\s*<N>"),
            _field("tokens_per_s_all", r"throughput/tokens_per_sec:\s*<N>"),
            _field("samples_per_s_all", r"throughput/samples_per_sec:\s*<N>"),
            _field("flops_per_s", r"throughput/device/flops_per_sec:\s*<N>"),
            _field("mfu", r"throughput/device/mfu:\s*<N>"),
        ),
        "full",
    ),
    Form(
        "Lightning",
        re.compile(r"device/(?:tokens|samples|items)_per_sec|device/mfu|TFLOPS_per_GPU|train_step_timing in s"),
        (
            _field("tokens_per_s", r"device/(?:tokens|items)_per_sec\S*?[:=]\s*<N>"),
            _field("flops_per_s", r"device/flops_per_sec\S*?[:=]\s*<N>"),
            _field("flops_per_s", r"TFLOPS_per_GPU\s*[:=]\s*<N>", 1e12),
            _field("step_s", r"train_step_timing in s\s*[:=]\s*<N>"),
            _field("mfu", r"device/mfu\S*?[:=]\s*<N>"),
        ),
    ),
    Form(
        "torchtune",
        re.compile(r"tokens_per_second_per_gpu[:=]"),
        (_field("tokens_per_s", r"tokens_per_second_per_gpu[:=]\s*<N>"),),
    ),
    Form(
        "fms-fsdp",
        re.compile(r"tokens? per gpu per sec", re.IGNORECASE),
        (_field("tokens_per_s", r"current tokens? per gpu per sec(?:ond)?\s*[:=]?\s*<N>"),),
        "full",
    ),
    Form(
        "XTuner",
        re.compile(r"tokens_per_sec:\s*[\d.]+.*data_time:"),
        (
            _field("tokens_per_s", r"tokens_per_sec:\s*<N>"),
            _field("flops_per_s", r"tflops:\s*<N>", 1e12),
            _field("step_s", r"(?<!data_)\btime:\s*<N>"),
        ),
    ),
    Form(
        "Hugging Face Trainer",
        re.compile(r"train_samples_per_second|train_tokens_per_second|train_steps_per_second"),
        (
            _field("samples_per_s_all", r"train_samples_per_second['\"]?\s*[:=]\s*['\"]?<N>"),
            _field("tokens_per_s_all", r"train_tokens_per_second['\"]?\s*[:=]\s*['\"]?<N>"),
            _field("runtime_s", r"train_runtime['\"]?\s*[:=]\s*['\"]?<N>"),
            _field("total_flops", r"total_flos['\"]?\s*[:=]\s*['\"]?<N>(?!\w)"),
        ),
        "6n",
    ),
    Form(
        "a progress bar",
        re.compile(r"\d+/\d+\s*\[[\d:]+<[\d:?]+,\s*[\d.]+(?:s/it|it/s)"),
        (_field("step_s", r",\s*<N>s/it"), _field("_steps_per_s", r",\s*<N>it/s")),
    ),
)


def read_training_log(text: str) -> LogFigures:
    """The steady figures of a log or of a Trainer's JSON file.

    Raises QuestionError when no line of a known form is in it.
    """
    if (told := _trainer_json(text)) is not None:
        return told
    found = [(form, lines) for form in FORMS if (lines := _lines(form, text))]
    if not found:
        programs = ", ".join(form.program for form in FORMS[:-1])
        raise QuestionError(f"no line with a throughput was found: known are those of {programs}, and progress bars")
    best, lines = max(found, key=lambda pair: (pair[0].program != "a progress bar", len(pair[1])))
    return _figures(best, lines)


def _lines(form: Form, text: str) -> list[dict[str, float]]:
    """The figures of every line of that form; a carriage return starts a line too (progress bars)."""
    found = []
    for line in re.split(r"[\r\n]+", text)[-_MOST_LINES:]:
        if len(line) < _LONGEST_LINE and form.line.search(line):
            values: dict[str, float] = {}
            for field in form.fields:
                if field.name not in values and (match := field.pattern.search(line)):
                    values[field.name] = float(match[1].replace(",", "")) * field.scale
            found += [values] if values else []
    return found


def _figures(form: Form, lines: list[dict[str, float]]) -> LogFigures:
    steady = lines[len(lines) // 2 :] if len(lines) > 3 else lines
    names = dict.fromkeys(name for line in lines for name in line)
    values = {
        name: median(told) for name in names if (told := [line[name] for line in steady if 0 < line.get(name, 0) < _LARGEST])
    }
    if rate := values.pop("_steps_per_s", 0.0):
        values.setdefault("step_s", 1 / rate)
    return LogFigures(program=form.program, lines=len(lines), convention=form.convention, **_checked(values))


def _checked(values: dict[str, float]) -> dict[str, Any]:
    """An MFU above 2 was a percentage (some programs print 45.6, some 0.456)."""
    if values.get("mfu", 0.0) > 2:
        values["mfu"] /= 100
    return values


def _trainer_json(text: str) -> LogFigures | None:
    """Figures of ``trainer_state.json`` or ``train_results.json``; None when the text is neither."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        told = parse_json(text, "the log")
    except ConfigError:
        return None
    history = told.get("log_history") if isinstance(told, dict) else None
    rows = [row for row in history if isinstance(row, dict)] if isinstance(history, list) else [told]
    last = next((row for row in reversed(rows) if "train_runtime" in row), None)
    if last is None:
        return None
    runtime, samples = _number(last.get("train_runtime")), _number(last.get("train_samples_per_second"))
    seen = _number(told.get("num_input_tokens_seen"))
    return LogFigures(
        program="Hugging Face Trainer",
        lines=len(rows),
        convention="6n",
        samples_per_s_all=samples,
        tokens_per_s_all=_number(last.get("train_tokens_per_second")) or (seen / runtime if seen and runtime else None),
        runtime_s=runtime,
        total_flops=_number(last.get("total_flos")) or _number(told.get("total_flos")),
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 < value < _LARGEST else None
