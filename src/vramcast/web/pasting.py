"""What was pasted, read as what it is: a config.json, a command that starts an engine, or a log. In memory, then forgotten."""

import shlex
from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.engine_messages import Finding
from vramcast.reading.out_of_memory import OutOfMemory
from vramcast.units import gib
from vramcast.untrusted import disk_closed
from vramcast.web.language import Language
from vramcast.web.view import shown_of

_MOST = 1_000_000
_SHOWN = 20


def read_pasted(text: str, gpu: str, say: Language) -> dict[str, Any]:
    """What the paste page shows of a text. Raises VramcastError where it holds nothing that can be answered."""
    if len(text) > _MOST:
        raise QuestionError(f"the text has {len(text):,} letters: the last {_MOST:,} of a log are enough")
    words = {"gpu": gpu} if gpu else {}
    with disk_closed():
        if text.lstrip("\ufeff \n\t").startswith("{"):
            return _config(text, words, say)
        return _launch(text, words, say) or _log(text, gpu, say)


def _config(text: str, words: dict[str, Any], say: Language) -> dict[str, Any]:
    from vramcast.web.api import forecast_of

    forecast = forecast_of("serve", words, text.encode("utf-8", "replace"))
    return {"found": say("kind-config"), **shown_of(forecast, words, "serve", say)}


def _launch(text: str, words: dict[str, Any], say: Language) -> dict[str, Any] | None:
    """The answer to the first engine that the text starts, with the names of the others; None where it starts none."""
    from vramcast.asking.asked import answer_serving
    from vramcast.asking.launched import Launched, question_of_launch
    from vramcast.asking.serving import serving_question
    from vramcast.reading.serving.files import read_serving_text

    try:
        found = read_serving_text(text)
    except QuestionError:
        return None
    first, *others = found.launches
    asked = question_of_launch(Launched(launch=first, kind=found.kind), (), {}, words, serving_question)
    forecast = answer_serving(asked)
    shown = {"model": forecast.model.id, "engine": first.engine, **words, "flags": shlex.join(first.flags)}
    return {
        **shown_of(forecast, shown, "serve", say),
        "found": say("kind-command", engine=first.engine, kind=found.kind),
        "lines": [f"{other.engine}: {other.name or other.model}" for other in others[:_SHOWN]],
    }


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
