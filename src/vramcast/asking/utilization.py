"""How well GPUs were used, from whatever a person holds: TFLOP/s, throughput, step time, or a training log.

One figure is turned into tokens per second of one card (or FLOP/s as somebody else counted them), and that into MFU and HFU.
"""

from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.reading.training_logs import LogFigures, read_training_log
from vramcast.speed.utilization import Peak, Utilization, Work, from_flops, from_tokens, peak_of, training_work
from vramcast.units import parse_count

LARGEST_LOG_BYTES = 256 * 2**20
_LOG_ENDINGS = (".log", ".txt", ".out", "trainer_state.json", "_results.json")
# What dense bf16 training reaches, counted causally: the middle of 330 published runs on A100 and H100.
_USUAL = (0.35, 0.55)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The question: one figure among ``tflops`` to ``log``, and what turns it into FLOPs. ``log`` is the text of a log."""

    gpu: str
    model: str | None = None
    seq: str | int | None = None
    dtype: str = "bf16"
    tflops: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    step_time: float | None = None
    batch: int | None = None
    log: str | None = None
    method: str = "full"
    checkpointing: str = "none"
    reference: float | None = None
    framework: str | None = None
    micro_batch: int | None = None
    accumulate: int | None = None
    zero: int | None = None
    fsdp: int | None = None
    tp: int | None = None
    pp: int | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, of one card; ``steps`` says how it follows from what was told.

    ``flops_per_s`` and ``mfu`` are a log's own, by its ``convention``.
    """

    steps: str
    tokens_per_s: float | None = None
    flops_per_s: float | None = None
    mfu: float | None = None
    convention: str = ""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A paper's tokens per second of one card: the MFU that they are, and the share of them that was reached."""

    tokens_per_s: float
    mfu: dict[str, float]
    share: float


class Forecasted(msgspec.Struct, frozen=True, kw_only=True):
    """What this program forecasts for the run as described, and the share of it that was reached; ``bound``: what binds it."""

    tokens_per_s: float
    step_s: float
    mfu: float
    bound: str
    share: float


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer; ``work`` is None where the FLOPs were told rather than counted from a model."""

    model: str | None
    gpus: int
    seq: int | None
    method: str
    checkpointing: str
    peak: Peak
    measured: Measured
    work: Work | None
    found: Utilization
    limits: tuple[str, ...]
    log: LogFigures | None
    reference: Reference | None
    forecast: Forecasted | None


def utilization(asked: Asked) -> Answer:
    """Utilisation of the cards named.

    Raises QuestionError for a figure that is missing, given twice or no amount, for an unknown model, card or type, and for a log
    without a known line.
    """
    from vramcast.hardware.cards import parse_gpus

    _check(asked)
    cards = parse_gpus(asked.gpu).cards
    peak = peak_of(min(cards, key=lambda card: card.flops.get(asked.dtype, 0.0)), asked.dtype)
    log = read_training_log(asked.log) if asked.log is not None else None
    seq = parse_count(asked.seq, what="--seq") if asked.seq else int(log.seq or 0) if log else 0
    measured = _of_log(asked, log, seq=seq, gpus=len(cards)) if log else _of_figures(asked, seq=seq, gpus=len(cards))
    work = _work(asked, measured, seq)
    found = _found(work, measured, peak)
    return Answer(
        model=asked.model,
        gpus=len(cards),
        seq=seq or None,
        method=asked.method,
        checkpointing=asked.checkpointing,
        peak=peak,
        measured=measured,
        work=work,
        found=found,
        limits=_limits(found, measured, seq, gpus=len(cards)),
        log=log,
        reference=_reference(asked, work, measured, peak),
        forecast=_forecast(asked, measured, seq),
    )


def is_log(what: str) -> bool:
    """Whether a word names a log rather than a model."""
    return what == "-" or what.lower().endswith(_LOG_ENDINGS)


def read_log(file: str) -> str:
    """The text of a log; ``-`` is standard input. Raises QuestionError for one that cannot be read or is above 256 MiB."""
    import sys

    try:
        if file == "-":
            data = sys.stdin.buffer.read(LARGEST_LOG_BYTES + 1)
        else:
            with Path(file).expanduser().open("rb") as source:
                data = source.read(LARGEST_LOG_BYTES + 1)
    except OSError as error:
        raise QuestionError(f"cannot read {file}: {error.strerror}") from None
    if len(data) > LARGEST_LOG_BYTES:
        raise QuestionError(f"{file} is larger than 256 MiB: give its end, as in `tail -n 2000 {file} | vramcast utilization -`")
    return data.decode("utf-8", "replace")


_FIGURES = ("tflops", "tokens_per_second", "samples_per_second", "step_time", "log")


def _check(asked: Asked) -> None:
    told = [f"--{name.replace('_', '-')}" for name in _FIGURES if getattr(asked, name) is not None]
    if len(told) != 1:
        flags = "--tflops, --tokens-per-second, --samples-per-second, --step-time with --batch, or --log"
        raise QuestionError(f"give one of {flags}: {' and '.join(told) or 'none'} was given")
    for name in (*_FIGURES[:-1], "batch", "reference"):
        value = getattr(asked, name)
        if value is not None and not 0 < value < 1e15:
            raise QuestionError(f"--{name.replace('_', '-')} {value} is no amount: give a number above 0")


def _of_figures(asked: Asked, *, seq: int, gpus: int) -> Measured:
    """The one figure of the question, of one card."""
    if asked.tflops:
        return Measured(flops_per_s=asked.tflops * 1e12, steps="as told")
    if asked.tokens_per_second:
        return Measured(tokens_per_s=asked.tokens_per_second, steps="as told")
    if not seq:
        raise QuestionError("how long are the sequences? give --seq, padding included")
    if asked.samples_per_second:
        each = asked.samples_per_second
        return Measured(tokens_per_s=each * seq / gpus, steps=f"{each:g} sequences/s x {seq:,} tokens / {gpus} cards")
    if not asked.batch:
        raise QuestionError("a step time needs --batch: how many sequences one step trains over all cards")
    step = asked.step_time or 0.0
    tokens = asked.batch * seq / step / gpus
    return Measured(tokens_per_s=tokens, steps=f"{asked.batch} x {seq:,} tokens / {step:g} s / {gpus} cards")


def _of_log(asked: Asked, log: LogFigures, *, seq: int, gpus: int) -> Measured:
    """A log's figures of one card, the most direct first."""
    about = f"{log.program}, {log.lines} lines"
    own: dict[str, Any] = {"flops_per_s": log.flops_per_s, "mfu": log.mfu, "convention": log.convention}
    if log.tokens_per_s:
        return Measured(tokens_per_s=log.tokens_per_s, steps=f"tokens/s of a card ({about})", **own)
    if log.tokens_per_s_all:
        every = log.tokens_per_s_all
        return Measured(tokens_per_s=every / gpus, steps=f"{every:,.0f} tokens/s / {gpus} cards ({about})", **own)
    batch = asked.batch or log.batch_all
    samples = log.samples_per_s_all or (batch / log.step_s if batch and log.step_s else None)
    if samples and seq:
        steps = f"{samples:,.2f} sequences/s x {seq:,} / {gpus} cards ({about})"
        return Measured(tokens_per_s=samples * seq / gpus, steps=steps, **own)
    if log.total_flops and log.runtime_s:
        own["flops_per_s"] = log.total_flops / log.runtime_s / gpus
        return Measured(steps=f"total_flos / train_runtime / {gpus} cards ({about})", **own)
    if log.flops_per_s or log.mfu:
        return Measured(steps=about, **own)
    lacks = "--seq" if samples else "--batch (sequences of a step over all cards) and --seq"
    raise QuestionError(f"{about}: the log gives {'sequences' if samples else 'steps'} per second; add {lacks}")


def _work(asked: Asked, measured: Measured, seq: int) -> Work | None:
    """FLOPs of one token, None when the FLOPs were told and no model is named."""
    told = measured.flops_per_s is not None or measured.mfu is not None
    if measured.tokens_per_s is None or (asked.model is None and told):
        return None
    if asked.model is None:
        raise QuestionError("of which model? tokens per second say nothing of FLOPs without one: name it first")
    if not seq:
        raise QuestionError("how long are the sequences? attention's work depends on it: give --seq")
    from vramcast.models.reading import read_model

    model = read_model(asked.model)
    return training_work(model, seq=seq, frozen=asked.method != "full", recomputation=asked.checkpointing)


def _found(work: Work | None, measured: Measured, peak: Peak) -> Utilization:
    if work is not None and measured.tokens_per_s is not None:
        return from_tokens(work, measured.tokens_per_s, peak)
    if measured.flops_per_s is not None:
        return from_flops(measured.flops_per_s, peak)
    return from_flops((measured.mfu or 0.0) * peak.flops_per_s, peak)


def _reference(asked: Asked, work: Work | None, measured: Measured, peak: Peak) -> Reference | None:
    if asked.reference is None:
        return None
    if work is None or measured.tokens_per_s is None:
        raise QuestionError("--reference compares tokens per second: name the model, --seq and a throughput")
    theirs = from_tokens(work, asked.reference, peak)
    return Reference(tokens_per_s=asked.reference, mfu=theirs.mfu, share=measured.tokens_per_s / asked.reference)


_LAYOUT = ("framework", "micro_batch", "accumulate", "zero", "fsdp", "tp", "pp")


def _forecast(asked: Asked, measured: Measured, seq: int) -> Forecasted | None:
    """The forecast of the run, where the question describes it beyond model and length."""
    layout = {name: value for name in _LAYOUT if (value := getattr(asked, name)) is not None}
    if not layout:
        return None
    if asked.model is None or measured.tokens_per_s is None:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in layout)
        raise QuestionError(f"{flags}: to forecast the run, name the model and give a throughput, a step time or a log")
    from vramcast.asking.doors import train

    words: Any = {"method": asked.method, "checkpointing": asked.checkpointing, **layout}
    speed = train(asked.model, gpu=asked.gpu, seq=seq, **words).speed
    if not speed:
        return None
    each = float(speed["tokens_per_s_per_gpu"])
    return Forecasted(
        tokens_per_s=each,
        step_s=speed["step_s"],
        mfu=speed["mfu"],
        bound=str(speed["bound"]),
        share=measured.tokens_per_s / each,
    )


def _limits(found: Utilization, measured: Measured, seq: int, *, gpus: int) -> tuple[str, ...]:
    """What the figures themselves say; a profile says why."""
    beside = _beside_log(found, measured)
    if found.notes:
        highest = max(found.mfu.values()) / gpus
        whole = (f"if the figure is that of all {gpus} cards, it is {highest:.1%}",) if gpus > 1 and highest <= 1 else ()
        return (*whole, *found.notes, *beside)
    low, high = _USUAL
    usual = f"what dense bf16 training reaches ({low:.0%} to {high:.0%})"
    share = next(iter(found.mfu.values()))
    told = [f"{share:.0%} is {'above' if share > high else 'within' if share >= low else 'below'} {usual}"]
    if share < low:
        told.append("host, data or links? `vramcast profile TRACE` tells them apart")
    if measured.tokens_per_s and seq > measured.tokens_per_s:
        told.append(f"a card needs {seq / measured.tokens_per_s:,.1f} s for one sequence")
    return (*told, *beside)


def _beside_log(found: Utilization, measured: Measured) -> tuple[str, ...]:
    """The log's own MFU beside ours by its convention, and what is probably another where they part by more than a tenth."""
    own, ours = measured.mfu, found.mfu.get(measured.convention)
    if own is None or ours is None:
        return ()
    agrees = abs(own / ours - 1) <= 0.1
    doubt = "" if agrees else ": another model, length, peak or number of cards than in the question?"
    return (f"the log's own MFU is {own:.2%}, by the same convention ({measured.convention}) it is {ours:.2%} here{doubt}",)
