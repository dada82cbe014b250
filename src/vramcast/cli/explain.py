"""``vramcast explain``: why the memory is where it is, from what a person holds: a snapshot, or a log with what ended it."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.errors import QuestionError
from vramcast.untrusted import existing_path, printable

if TYPE_CHECKING:
    from vramcast.asking.looking import Explained
    from vramcast.cli.pages.page import Page

_EPILOG = """\b
Examples:
  vramcast explain snapshot.pickle          from torch.cuda.memory._dump_snapshot("snapshot.pickle")
  vramcast explain snapshot.pickle --json
  vramcast explain train.log                the last out-of-memory message in a log
  vllm serve MODEL 2>&1 | vramcast explain -   why its cache holds less than was promised
  vramcast explain vllm.log --gpu H100 --cases runs.jsonl    what it printed beside the forecast, kept for evaluate
  pbpaste | vramcast explain -              a pasted traceback
  vramcast explain "ValueError: No available memory for the cache blocks."   one line of it
"""
_LARGEST = 2 * 2**30
_HEAD = 2**20
_PICKLE = b"\x80"  # every pickle of protocol 2 and above begins so


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.argument("what", metavar="FILE|TEXT|-")
@click.argument("line", nargs=-1, metavar="[-- COMMAND]")
@click.option("--gpu", metavar="NAME", help="The card of a log that does not tell it: the run is then asked again.")
@click.option("--device", type=int, help="The device of a snapshot (default: the one with most memory).")
@click.option("--cases", metavar="FILE", help="Append what a server's log printed to FILE as a case for vramcast evaluate.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(what: str, line: tuple[str, ...], gpu: str | None, device: int | None, cases: str | None, *, as_json: bool) -> int:
    """Explain what ran out of memory: a snapshot (peak, fragmentation, leaks, stacks), PyTorch's message, or a serving engine's.

    Engines: vLLM, SGLang, llama.cpp, Ollama, TensorRT-LLM, TGI; also MPS, NPU, TensorFlow, JAX and Linux' own killer. Of a
    log the last 4 MiB are read. Where it tells the model and the card, the run is asked again, up to one corrected line; what
    was run may stand behind `--` where the log does not hold it.
    """
    data = _read(what)
    if line and data[:1] != _PICKLE:  # what was run, as it stands above the message in a log
        data = f"{shlex.join(line)}\n".encode() + data
    explain = _explain_snapshot if data[:1] == _PICKLE else _explain_log
    return explain(data, what, {"gpu": gpu, "device": device, "cases": cases, "as_json": as_json})


def _read(what: str) -> bytes:
    if what == "-":
        return sys.stdin.buffer.read(_LARGEST + 1)
    if re.search(r"\s", what.strip()) and existing_path(what) is None:
        return what.encode("utf-8", "replace")
    path = Path(what).expanduser()
    try:
        if path.stat().st_size > _LARGEST:
            raise QuestionError(f"{what} is larger than 2 GiB")
        return path.read_bytes()
    except OSError as error:
        hint = "give a log or a snapshot, - for standard input, or the whole message in quotes"
        raise QuestionError(f"cannot read {printable(what)[:200]}: {error.strerror}; {hint}") from None


def _explain_snapshot(data: bytes, what: str, options: dict[str, Any]) -> int:
    from vramcast.tracing.snapshots.file import parse_snapshot
    from vramcast.tracing.snapshots.report import explain_snapshot

    snapshot = parse_snapshot(data, what=what)
    if options["device"] is not None and options["device"] not in snapshot.devices:
        raise QuestionError(f"{what} holds devices {snapshot.devices}, not {options['device']}")
    reading = explain_snapshot(snapshot, options["device"])
    if options["as_json"]:
        import msgspec

        found = {"schema": "vramcast/1", "kind": "memory snapshot", "file": what, **msgspec.to_builtins(reading)}
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    else:
        from vramcast.cli.pages.snapshot import snapshot_page

        snapshot_page(what, reading).show()
    return 0


def _explain_log(data: bytes, what: str, options: dict[str, Any]) -> int:
    from vramcast.asking.looking import explain_text

    text = _end_of(data)
    try:
        found = explain_text(text, gpu=options["gpu"])
    except QuestionError:
        raise _nothing(what, _other_command(data, text)) from None
    if options["cases"]:
        _keep(found, options["cases"])
    if options["as_json"]:
        _print_log(what, found.findings, found.memory, found.again)
        return 0
    for page in pages_of(found):
        page.show()
    return 0


def _keep(found: "Explained", file: str) -> None:
    """Append the log's case. Raises QuestionError where the log does not tell its run, or the file cannot be written."""
    from vramcast.truth.case import encode_case

    if found.again is None:
        raise QuestionError("--cases: the log does not tell the model and the card of its run; add --gpu NAME, or the whole log")
    line = encode_case(found.again.case())
    try:
        with Path(file).expanduser().open("ab") as kept:
            kept.write(line)
    except OSError as error:
        raise QuestionError(f"cannot write {file}: {error.strerror}") from None


def pages_of(found: "Explained") -> "Iterator[Page]":
    """A log explained as people read it: engines' messages, the allocator's last one, the run asked again."""
    from vramcast.cli.pages.engine_message import again_page, engine_message_page
    from vramcast.cli.pages.out_of_memory import out_of_memory_page
    from vramcast.cli.pages.page import Line

    if found.findings:
        yield engine_message_page(found.findings)
    if found.memory is not None:
        page = out_of_memory_page(found.memory)
        if found.findings:
            page.lines.insert(0, Line(()))
        yield page
    if found.again is not None:
        yield again_page(found.again)


def _print_log(what: str, findings: tuple[Any, ...], memory: Any, again: Any) -> None:
    import msgspec

    body: dict[str, Any] = {"schema": "vramcast/1", "kind": "out of memory" if memory else "engine messages", "file": what}
    if memory is not None:
        derived = {name: getattr(memory, name) for name in ("reserved_bytes", "outside_bytes", "others_bytes", "short_bytes")}
        body |= {**msgspec.to_builtins(memory), **derived, "advice": memory.advice()}
    if findings:
        body["engine_messages"] = findings
    if again is not None:
        body["asked_again"] = {"fit": again.forecast.fit, "advice": again.forecast.advice, "corrected": again.corrected}
        body["asked_again"]["beside"] = [{"measure": m, "measured": own, "forecast": said} for m, own, said in again.beside]
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(body), indent=1) + b"\n")


def _other_command(data: bytes, text: str) -> str:
    """The command that reads this instead, "" for none."""
    from vramcast.hardware.topology import parse_topology
    from vramcast.reading.environment_reports import read_environment
    from vramcast.reading.training_logs import read_training_log

    if data.startswith((b"\x1f\x8b", b"SQLite format 3")) or b'"traceEvents"' in data[:_HEAD] or b'"ph"' in data[:_HEAD]:
        return "profile"
    for command, reader in (("topology", parse_topology), ("doctor", read_environment), ("utilization", read_training_log)):
        try:
            reader(text[:_HEAD])
        except QuestionError:
            continue
        return command
    return ""


def _nothing(what: str, other: str) -> QuestionError:
    held = "standard input" if what == "-" else what if existing_path(what) is not None else f"{printable(what)[:60]!r}"
    if other:
        return QuestionError(f"{held} holds nothing that ran out of memory, but `vramcast {other} {what}` reads it")
    return QuestionError(
        f"{held} holds nothing that can be explained: expected a torch.cuda.memory snapshot (.pickle), or a log with CUDA's "
        "out-of-memory message or one of vLLM's, SGLang's, llama.cpp's, TensorRT-LLM's or TGI's"
    )


def _end_of(data: bytes) -> str:
    """The last 4 MiB as text: the message that ended a run is at its end."""
    return data[-4 * 2**20 :].decode("utf-8", "replace")
