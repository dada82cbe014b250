"""``vramcast FILE``, ``vramcast -`` and ``vramcast "pasted text"``: what it is, said first, and the command that answers it."""

import io
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from vramcast.asking.plain import PlainQuestion, plain_question
from vramcast.errors import QuestionError, nearest
from vramcast.language import spoken
from vramcast.reading.kinds import CERTAIN, Kind, kinds_of, taken_for
from vramcast.reading.unknown import told_of
from vramcast.units import MiB
from vramcast.untrusted import existing_path, printable, read_input

_MOST = 256 * MiB
_FILE = re.compile(r"/|\.[A-Za-z]\w{0,11}$")
_HEAD = 8 * MiB
_OF_A_PAGE = frozenset({"--gpu", "--context", "--users", "--seq", "--only", "--json", "--help", "-h"})


def is_pasted(word: str) -> bool:
    """Whether the first word of a command line is a file, standard input or a pasted text rather than a command.

    Raises QuestionError for the name of a file that is not there.
    """
    if existing_path(word) is None and word != "-" and plain_question(word) is not None:
        return True
    if _FILE.search(word) and not re.search(r"\s", word) and existing_path(word) is None:
        raise QuestionError(f"there is no file {printable(word)[:200]}, and no command of that name")
    return word == "-" or re.search(r"\s", word.strip()) is not None or existing_path(word) is not None


def joined(arguments: Sequence[str], commands: Iterable[str]) -> list[str]:
    """The words of a question that was typed without quotes as one: ``llama 3.1 8b on a 4090 --json``; others as they are."""
    if nearest(arguments[0], commands, most=1, cutoff=0.75):
        return list(arguments)  # a slip of a command
    first_flag = next((i for i, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    text = " ".join(arguments[:first_flag])
    spoken = first_flag > 1 and existing_path(arguments[0]) is None and plain_question(text) is not None
    return [text, *arguments[first_flag:]] if spoken else list(arguments)


def command_of(arguments: Sequence[str]) -> list[str]:
    """The command line that answers a pasted text or a file, after what it was taken for has been said.

    Raises QuestionError where the kind is not plain, with the two nearest.
    """
    what, rest = arguments[0], list(arguments[1:])
    path = existing_path(what) if what != "-" and "\n" not in what else None
    if path is not None and path.is_dir():
        return _said(_folder(path), what, rest)
    data = _data(what, path)
    name = path.name if path is not None else ""
    kinds = kinds_of(data, name, folder=path.parent if path is not None else None)
    kind = taken_for(kinds)
    typed = path is None and what != "-" and (kind is None or _is_in_words(what, kind))
    asked = plain_question(what) if typed else None
    if asked is not None and kind is not None and not any(flag.startswith("--gpu") for flag in asked.flags):
        asked = None
    if asked is not None:
        command = [*_with(asked, rest), *rest]
        click.echo(spoken()("plain-asked-as", line=printable(shlex.join(["vramcast", *command]))), err=True)
        if asked.unread:
            click.echo(spoken()("plain-unread", words=printable(asked.unread)), err=True)
        return command
    if kind is None:
        raise _unclear(what, kinds, told_of(data.decode("utf-8", "replace"), name))
    if path is None:
        sys.stdin = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
    return _said(kind, what if path is not None else "-", rest)


def _is_in_words(what: str, kind: Kind) -> bool:
    """Whether a command goes on in a person's words: ``ollama run qwen3:30b on a mac mini m4 16gb``."""
    return kind.what == "a command line" and re.search(r"\s(?:on|auf|with|在)\s", what) is not None and " -" not in what


def _with(asked: PlainQuestion, rest: Sequence[str]) -> list[str]:
    """The command of a question in words: one way's ledger where a flag is typed that the page of every way has not."""
    typed = {word.partition("=")[0] for word in rest if word.startswith("-")}
    if asked.command != "fit" or typed <= _OF_A_PAGE or not asked.model:
        return asked.words
    kept = [flag.replace("--users", "--concurrency") for flag in asked.flags if not flag.startswith("--only")]
    return ["train" if "--only=train" in asked.flags else "serve", asked.model, *kept]


def _folder(path: Path) -> Kind:
    """A model's folder. Raises QuestionError for any other."""
    own = next((found.name for pattern in ("config.json", "*.safetensors*", "*.gguf") for found in path.glob(pattern)), "")
    if own:
        return Kind(what="a model's folder", command=("models",), strength=CERTAIN, because=own)
    raise QuestionError(f"{printable(str(path))[:80]} is a folder without a model: give the file that is meant")


def _data(what: str, path: Path | None) -> bytes:
    if path is not None:
        with path.open("rb") as stream:
            return stream.read(_HEAD)
    return read_input("-", most=_MOST) if what == "-" else what.encode("utf-8", "replace")


def _said(kind: Kind, shown: str, rest: list[str]) -> list[str]:
    """The words of the command, and the sentence: to standard error, so that what the command prints stays whole."""
    command = _words(kind, shown, rest)
    line = " ".join(["vramcast", *command])
    click.echo(printable(f"taken for {kind.what} ({kind.because}): {line}"), err=True)
    return command


def _words(kind: Kind, shown: str, rest: list[str]) -> list[str]:
    """A model's own files are described, or asked about where a card is named beside them."""
    if kind.command == ("models",) and any(word.startswith(("--gpu", "--engine", "--context")) for word in rest):
        return ["serve", shown, *rest]
    if kind.command == ("utilization",) and rest and not rest[0].startswith("-"):
        return ["utilization", rest[0], "--log", shown, *rest[1:]]
    return [*kind.command, shown, *rest]


def _unclear(what: str, kinds: Sequence[Kind], told: str) -> QuestionError:
    shown = "standard input" if what == "-" else printable(what.strip().splitlines()[0] if what.strip() else what)[:60]
    file = what if existing_path(what) is not None or what == "-" else "-"
    if not kinds and told:
        return QuestionError(f"{shown!r} starts nothing known here: {told}")
    if not kinds:
        return QuestionError(
            f"{shown!r} is nothing known here, nor a command: expected a command line that serves or trains, its "
            "configuration, a log, an out-of-memory message, a snapshot, a profiler trace, a topology or a model's files "
            "(vramcast --help lists the commands)"
        )
    nearest = " or ".join(f"{kind.what}: vramcast {' '.join(kind.command)} {file}" for kind in kinds[:2])
    return QuestionError(f"{shown!r} is not plainly one thing: it may be {nearest}")
