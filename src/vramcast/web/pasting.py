"""What was pasted or dropped, read as what it is and answered as ``vramcast FILE`` answers it. In memory, then forgotten."""

import contextlib
import importlib
import io
import shlex
import sys
from typing import Any

from vramcast.asking.asked import Asked, answer_serving, answer_training
from vramcast.asking.plain import PlainQuestion, plain_question
from vramcast.charts.palette import colour_of
from vramcast.charts.trace import lanes_of, parts_of, roofline_of
from vramcast.errors import ConfigError, QuestionError
from vramcast.language import Language
from vramcast.models.sources.ranges import beyond
from vramcast.reading.engine_messages import Finding
from vramcast.reading.kinds import Kind, kinds_of, taken_for
from vramcast.reading.out_of_memory import OutOfMemory
from vramcast.reading.unknown import told_of
from vramcast.units import MiB, gib, time_text
from vramcast.untrusted import printable
from vramcast.web.drawing import pictured
from vramcast.web.view import shown_of
from vramcast.workload import Serving

LARGEST_HELD_BYTES = 32 * MiB
_SHOWN = 20
_LONGEST_SAID = 2_000  # bytes of a question in a person's words
_NAMES = {"users": "concurrency"}  # words of the command line's pages that a question has otherwise
_LONGEST_TEXT = 60_000
_MOST_ROWS = 8


def read_held(data: bytes, *, name: str, gpu: str, size: int, say: Language) -> dict[str, Any]:
    """What ``held.html`` shows. ``size``: of the whole file where only its head was sent (a GGUF file's).

    Raises VramcastError where it holds nothing that can be answered.
    """
    if not data.strip():
        raise QuestionError("nothing was sent: paste a text or drop a file")
    words = {"gpu": gpu} if gpu else {}
    if data[:4] == b"GGUF":
        return _gguf(data, name, size, words, say)
    kinds = kinds_of(data, name)
    kind = taken_for(kinds)
    if kind is None and (spoken := plain_question(data[:_LONGEST_SAID].decode("utf-8", "replace"))):
        return _spoken(spoken, words, say)
    if kind is None:
        raise _unclear(kinds, told_of(_text(data), name))
    if kind.command == ("models",) and "config" in kind.what:
        return _config(data, words, say)
    if kind.command == ("serve", "--from"):
        return _launch(_text(data), words, say)
    if kind.command == ("train", "--from"):
        return _training(_text(data), kind, words, say)
    if kind.command == ("explain",) and data[:1] != b"\x80":
        return _log(_text(data[-4 * MiB :]), gpu, say)
    if kind.command == ("profile",):
        return _trace(data, name, gpu, say)
    return _printed(data, kind, gpu, say)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _unclear(kinds: tuple[Kind, ...], told: str) -> QuestionError:
    if kinds:
        return QuestionError(f"this is not plainly one thing: it may be {' or '.join(kind.what for kind in kinds[:2])}")
    if told:
        return QuestionError(f"this starts nothing known here: {told}")
    return QuestionError(
        "this is nothing known here: expected a command that serves or trains, its configuration, a log, an out-of-memory "
        "message, a memory snapshot, a profiler trace, a topology, a config.json or a GGUF file"
    )


class _HeldFile:
    """Bytes in memory as a file's ranges, of which only the head may be there."""

    def __init__(self, data: bytes, name: str, size: int) -> None:
        self._data, self.name, self.size = data, name, max(size, len(data))

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``. Raises UnsafeFileError beyond the file, ConfigError beyond what was sent."""
        if offset + length > self.size:
            raise beyond(self, offset + length)
        if offset + length > len(self._data):
            raise ConfigError(f"{self.name}: its header is longer than the {len(self._data) // MiB} MiB that were sent")
        return self._data[offset : offset + length]


def _gguf(data: bytes, name: str, size: int, words: dict[str, Any], say: Language) -> dict[str, Any]:
    from vramcast.asking.visitor import asked_of_model
    from vramcast.models.sources.described import from_gguf
    from vramcast.models.sources.gguf import read_header

    shown = printable(name)[:80] or "your.gguf"
    model = from_gguf(read_header(_HeldFile(data, shown, size)), name=shown, where=shown)
    asked: Any = asked_of_model(model, {**words, "engine": "llama.cpp"})
    return {"found": say("kind-gguf"), **shown_of(answer_serving(asked), {**words, "engine": "llama.cpp"}, "serve", say)}


def _config(data: bytes, words: dict[str, Any], say: Language) -> dict[str, Any]:
    from vramcast.web.api import forecast_of

    return {"found": say("kind-config"), **shown_of(forecast_of("serve", words, data), words, "serve", say)}


def _launch(text: str, words: dict[str, Any], say: Language) -> dict[str, Any]:
    """The answer to the first engine that the text starts, with the names of the others."""
    from vramcast.asking.launched import Launched, question_of_launch
    from vramcast.asking.serving import serving_question
    from vramcast.reading.serving.files import read_serving_text

    found = read_serving_text(text)
    first, *others = found.launches
    asked: Asked[Serving] = question_of_launch(Launched(launch=first, kind=found.kind), (), {}, words, serving_question)
    forecast = answer_serving(asked)
    shown = {"model": forecast.model.id, "engine": first.engine, **words, "flags": shlex.join(first.flags)}
    return {
        **shown_of(forecast, shown, "serve", say),
        "found": say("kind-command", engine=first.engine, kind=found.kind),
        "lines": [f"{other.engine}: {other.name or other.model}" for other in others[:_SHOWN]],
    }


def _spoken(asked: PlainQuestion, words: dict[str, Any], say: Language) -> dict[str, Any]:
    """A question in a person's words, answered by one way's ledger. Raises QuestionError for one that a plan answers."""
    from vramcast.web.api import forecast_of

    line = shlex.join(["vramcast", *asked.words])
    if asked.command.startswith("plan"):
        raise QuestionError(f"a plan answers this: the page Plan, or {line}")
    if not asked.model:
        raise QuestionError(f"name a model here; which models a card runs is the command line's: {line}")
    kind = "train" if asked.command == "train" or "--only=train" in asked.flags else "serve"
    said = {"model": asked.model, **words}
    for flag in asked.flags:
        name, _, value = flag.removeprefix("--").partition("=")
        if name != "only":
            said[_NAMES.get(name, name.replace("-", "_"))] = value or True
    if said.pop("best", "") == "context" or (kind == "serve" and asked.command == "fit" and said.get("gpu")):
        said.setdefault("context", "auto")
    shown = shown_of(forecast_of(kind, said), said, kind, say)
    told = [say("plain-unread", words=printable(asked.unread))] if asked.unread else []
    return {"found": say("kind-question"), "lines": [line, *told], **shown}


def _training(text: str, kind: Kind, words: dict[str, Any], say: Language) -> dict[str, Any]:
    from vramcast.asking.training import training_question

    forecast = answer_training(training_question(text=text, gpu=words.get("gpu")))
    w = forecast.workload
    told = {name: w[name] for name in ("framework", "method", "micro_batch", "seq", "checkpointing") if w.get(name)}
    shown = {"model": forecast.model.id, **words, **told}
    return {"found": say("kind-training", kind=kind.what), **shown_of(forecast, shown, "train", say)}


def _log(text: str, gpu: str, say: Language) -> dict[str, Any]:
    from vramcast.asking.looking import explain_text

    found = explain_text(text, gpu=gpu or None)
    lines = [line for finding in found.findings for line in _lines(finding)]
    lines += _memory(found.memory) if found.memory else []
    shown = {"found": say("kind-log"), "lines": lines[:_SHOWN], "corrected": found.again.corrected if found.again else ""}
    if found.again is None:
        return shown
    launch = found.again.launch
    asked = {"model": launch.model, "engine": launch.engine, **({"gpu": gpu} if gpu else {})}
    return {**shown_of(found.again.forecast, asked, "serve", say), **shown}


def _lines(finding: Finding) -> list[str]:
    figures = ", ".join(f"{f.name} {f.value}" for f in finding.figures)
    return [f"{finding.engine}, {finding.moment}: {finding.what}{f' ({figures})' if figures else ''}", *finding.advice]


def _memory(memory: OutOfMemory) -> list[str]:
    told = {
        "wanted": memory.wanted_bytes, "card": memory.capacity_bytes, "free": memory.free_bytes,
        "allocated by PyTorch": memory.allocated_bytes, "reserved but not allocated": memory.cached_bytes,
        "this process beyond PyTorch": memory.outside_bytes,
    }  # fmt: skip
    return [f"{memory.backend}: " + ", ".join(f"{name} {gib(size)}" for name, size in told.items() if size is not None)]


def trace_of(data: bytes) -> Any:
    """The columns of a trace that was sent. Raises QuestionError for what is none, or lies in a database."""
    from vramcast.profiling.files import read_stream

    if data.startswith(b"SQLite format 3"):
        raise QuestionError("a profile of Nsight Systems is a database: ask the command line, vramcast profile FILE.sqlite")
    return read_stream(io.BytesIO(data), data[:16])


def _trace(data: bytes, name: str, gpu: str, say: Language) -> dict[str, Any]:
    """Where the time of a trace went, as figures and pictures."""
    from vramcast.asking.profiling import report_on

    trace = trace_of(data)
    report, card = report_on(trace, file=printable(name)[:80] or "the trace", gpu=gpu or None)
    bar = parts_of(report, say)
    pictures = [lanes_of(trace, report, say), roofline_of(report, card, say) if card else None]
    return {
        "found": say("kind-trace"),
        "trace": {
            "where": say("trace-parts", gpu=report.gpu, span=time_text(report.where.span_s)),
            "parts": pictured(bar),
            "legend": [{"label": p.label, "colour": colour_of(p.name), "time": time_text(p.size)} for p in bar.parts],
            "pictures": [pictured(one) for one in pictures if one],
            "classes": [(row.name, time_text(row.seconds), f"{row.seconds / report.where.span_s:.1%}") for row in report.classes],
            "kernels": [(k.name, f"{k.calls:,}", time_text(k.seconds)) for k in report.kernels[:_MOST_ROWS]],
            "findings": [(f.limit, f.seen, f.remedy) for f in report.findings],
        },
    }


def _printed(data: bytes, kind: Kind, gpu: str, say: Language) -> dict[str, Any]:
    """What the command line itself prints of it: a snapshot, a topology, a training log, a report of a machine."""
    line = [*kind.command, "-", *(["--gpu", gpu] if gpu and kind.command != ("doctor",) else [])]
    out, complaints = io.StringIO(), io.StringIO()
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="replace")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaints):
            code = importlib.import_module("vramcast.cli").run([*line, "--lang", say.code])
    finally:
        sys.stdin = before
    if code > 1:
        raise QuestionError(complaints.getvalue().strip().removeprefix("vramcast: ") or "nothing was read")
    shown = shlex.join(["vramcast", *line])
    return {
        "found": say("kind-other", kind=kind.what), "printed": out.getvalue()[:_LONGEST_TEXT],
        "answered": say("answered-by", line=shown),
    }  # fmt: skip
