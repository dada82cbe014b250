"""A question in a person's words: ``llama 3.1 8b on a 4090``, ``can I fine-tune qwen3 8b on 2x 3090``, 用4090能跑Qwen3-8B吗.

One short line that names a model, and mostly a card, becomes the words of ``fit``, ``serve`` or ``train``. Who names neither an
engine nor a type nor a method asks which of them do: the page of every way. Who asks how many users, how long a context or how
fast gets that answer. What is left over has to be words of this file, or the line is no such question: nothing that was said is
dropped. With an engine on a card, where the line names no context, the longest that fits is asked for.
"""
# ruff: noqa: RUF001 (Chinese punctuation and the sign of multiplication are what people type)

import re
from collections.abc import Iterator

import msgspec

from vramcast.asking.plain_words import (
    AFTER,
    ASKING,
    BEFORE,
    FILES,
    GLUED,
    MAKERS,
    METHODS,
    MIXED,
    NUMBERS,
    ON,
    PLURAL,
    RUNS,
    SAID,
    SAME_SIZE,
    SIZED,
    SPEED_CONTEXT,
    TRAINS,
    USUAL_CONTEXT,
    WANTED,
)

_LONGEST, _WORDS_OF_A_NAME = 200, 4


class Plain(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked: the command, the model's name, and flags as they are typed."""

    command: str  # fit, serve, train or plan
    model: str
    flags: tuple[str, ...]


def plain_question(text: str) -> Plain | None:
    """The question in one line of a person's words, or None where it is none."""
    line = " ".join(MIXED.sub(" ", GLUED.sub(r"\1 x ", text.replace("，", " "))).split())
    if not line or len(line) > _LONGEST or line.startswith("-") or " --" in line:
        return None
    wanted, left = _wanted(line)
    left, said = _settings(left)
    card, count, left = _card(left)
    if card and _card(left)[0]:  # a card or another: one at a time
        return None
    model = _model(left, surely=bool(card))
    if model is None:
        return None
    if (beside := ON.fullmatch(model)) and _is_model(beside[1]):
        model, card = beside[1], f"{card} {beside[2]}".strip()  # a card that nobody knows: --gpu refuses it, with the nearest
    trains = bool(re.search(TRAINS, line, re.I)) or bool(
        said.keys() & {"method", "framework", "samples", "epochs", "zero", "fsdp"}
    )
    flags = [f"--gpu={card}x{count}" if count > 1 else f"--gpu={card}"] if card else []
    if card and count == 1 and wanted == "cards" and not trains and not said.keys() - {"context", "concurrency"}:
        load = [f"--{flag}={said[name]}" for name, flag in (("context", "context"), ("concurrency", "users")) if name in said]
        return Plain(command="plan", model=model, flags=(*flags, *load, "--by=cards"))
    if card and not trains and wanted == "speed" and "engine" not in said and _shares_the_hosts_memory(card):
        said["engine"] = "llama.cpp"
    if _is_open(model, said, wanted, card):
        return Plain(command="fit", model=model, flags=(*flags, *_flags_of_fit(line, said, trains=trains)))
    if card and not trains and wanted not in ("users", "longest") and said.get("engine", "").lower() != "ollama":
        said.setdefault("context", SPEED_CONTEXT if wanted == "speed" else "auto")  # Ollama takes its own by the card's memory
    flags += _training_flags(said) if trains else _serving_flags(said, card)
    return Plain(
        command="train" if trains else "serve", model=model, flags=(*flags, *_flags_wanted(wanted, said, card, trains=trains))
    )


def _shares_the_hosts_memory(card: str) -> bool:
    """Whether it is a processor's own graphics (not Apple's, whose engine is known): what people run there is llama.cpp."""
    from vramcast.errors import VramcastError
    from vramcast.hardware.cards import least_card

    try:
        found = least_card(card)
    except VramcastError:
        return False
    return found.unified and found.vendor in ("AMD", "Intel")


def _wanted(line: str) -> tuple[str, str]:
    """What is asked for beside the verdict, "" for nothing, and the line without the words that ask for it."""
    for name, pattern in WANTED:
        if found := pattern.search(line):
            return name, f"{line[: found.start()]} {line[found.end() :]}"
    return "", line


def _is_open(model: str, said: dict[str, str], wanted: str, card: str) -> bool:
    """Whether the line leaves open how the model is run or trained, and asks for nothing that one way alone has."""
    from vramcast.asking.artefact import artefact_of
    from vramcast.models.names import take_apart

    known = {"context", "concurrency"} | ({"batch"} if said.get("batch") == "1" else set())
    if said.keys() - known or (card and wanted in ("users", "longest", "speed", "batch")) or wanted == "time":
        return False
    return not artefact_of(model).engine and not take_apart(model).ending


def _flags_of_fit(line: str, said: dict[str, str], *, trains: bool) -> list[str]:
    runs = re.search(rf"\b(?:{RUNS})\b|运行|部署|推理|跑", line, re.I)
    only = [] if trains == bool(runs) else ["--only=train"] if trains else ["--only=run"]
    context = [f"--context={said['context']}"] if "context" in said and not (only and trains) else []
    return [*context, *([f"--users={said['concurrency']}"] if "concurrency" in said else []), *only]


def _flags_wanted(wanted: str, said: dict[str, str], card: str, *, trains: bool) -> list[str]:
    """The flags of serve that answer how many, how long or how fast."""
    if trains or not card:
        return []
    if wanted == "users":
        return ["--best=users", *([] if "context" in said else [f"--context={USUAL_CONTEXT}"])]
    return {"longest": ["--best=context"], "speed": ["--prompt=1024", "--output=256"]}.get(wanted, [])


def _settings(line: str) -> tuple[str, dict[str, str]]:
    """The line without what it says of context, users, engine and types, and what that was."""
    said: dict[str, str] = {}
    for name, pattern in SAID:
        found = pattern.search(line) if name not in said else None
        if found and not (name == "quant" and line[found.end() : found.end() + 1] == ":"):
            said[name] = re.sub(r"\s", "", found[1])
            line = f"{line[: found.start()]} {line[found.end() :]}"
    return " ".join(line.split()), said


def _card(line: str) -> tuple[str, int, str]:
    """The longest run of words that names a card, how many of it, and the line without them; "" where none does."""
    for start, end in _runs(line):
        name = line[start:end].strip()
        if not _is_card(name):
            continue
        before, after = BEFORE.search(line[:start]), AFTER.match(line[end:])
        count = (before[1] if before else (after[1] or after[2]) if after else "1").lower()
        rest = f"{line[: before.start() if before else start]} {line[end + (after.end() if after else 0) :]}"
        return PLURAL.sub("", name), NUMBERS.get(count) or int(count), " ".join(rest.split())
    return "", 1, line


def _runs(line: str) -> Iterator[tuple[int, int]]:
    """Runs of up to five words, the longest first, from the end of the line to its beginning."""
    words = [(m.start(), m.end()) for m in re.finditer(rf"[A-Za-z0-9.+_-]+|{'|'.join(MAKERS)}", line)]
    words = [(start, end - 1 if line[end - 1] in ".?" else end) for start, end in words]
    for size in range(min(5, len(words)), 0, -1):
        for first in range(len(words) - size, -1, -1):
            yield words[first][0], words[first + size - 1][1]


def _is_card(name: str) -> bool:
    from vramcast.asking.asked import named_cards
    from vramcast.errors import VramcastError

    if re.fullmatch(r"[\d.]{1,3}[bkm]?|\d{1,3}|local|any|[x×*]|.*\d[x×*]", name, re.I) or ASKING.fullmatch(name):
        return False
    try:
        return named_cards(PLURAL.sub("", name)).gpu is not None
    except VramcastError:
        return False


def _model(left: str, *, surely: bool) -> str | None:
    """What is left between the words of asking, where it names a model; ``surely``: with a card beside it a name is enough."""
    line = left
    while (found := ASKING.match(line)) and found.end():
        line = line[found.end() :].lstrip()
    while line and (tail := _last_word(line)):
        line = line[: -len(tail)].rstrip()
    named = surely and len(line.split()) <= _WORDS_OF_A_NAME and re.search(r"[a-z]\S*\s?\d|^[a-z]+-\S+$", line, re.I)
    if line and (own := SIZED.fullmatch(line)) and not _is_model(line) and _has_size(own[1], own[2], own[3]):
        return own[1]
    return line if line and (named or _is_model(line)) else None


def _has_size(name: str, number: str, unit: str) -> bool:
    """Whether a size that was said beside a name (DeepSeek-V3 671B, phi-3 mini 3.8b) is the size of the model it names."""
    from vramcast.errors import VramcastError
    from vramcast.models.reading import read_model

    try:
        parameters = read_model(name).parameters if _is_model(name) else 0
    except VramcastError:
        return False
    said = float(number) * (1e12 if unit in "tT" else 1e9)
    return bool(parameters) and abs(parameters / said - 1) < SAME_SIZE


def _last_word(line: str) -> str:
    """The last word where it is one of asking."""
    for size in range(1, min(14, len(line)) + 1):
        tail, before = line[-size:], line[: len(line) - size][-1:]
        whole = not (re.match(r"[A-Za-z0-9]", tail) and re.match(r"[A-Za-z0-9.-]", before))
        found = ASKING.match(tail)
        if whole and found and found.end() == len(tail):
            return tail
    return ""


def _is_model(name: str) -> bool:
    from vramcast.asking.artefact import artefact_of
    from vramcast.models.reading import load
    from vramcast.models.reading.by_name import by_name
    from vramcast.models.reading.known import in_english, short_name
    from vramcast.models.reading.typed import current

    plain = artefact_of(name).model
    english = in_english(plain)
    try:
        return bool(load(plain) or short_name(english) or by_name(english) or current(english))
    except ValueError:
        return True  # a name with a slip or of several shapes: the command says which ones there are


def _serving_flags(said: dict[str, str], card: str) -> list[str]:
    kind = _type_of(said["quant"].lower(), said.get("engine", ""), card) if "quant" in said else ""
    if re.match(r"I?Q\d", kind) and "engine" not in said and not re.match(r"m\d|apple|mac", card, re.I):
        said["engine"] = "llama.cpp"  # a type of GGUF files
    flags = [f"--{name}={said[name]}" for name in ("context", "concurrency", "engine") if name in said]
    return [*flags, *([f"--quant={kind}"] if kind else [])]


def _type_of(quant: str, engine: str, card: str) -> str:
    """The scheme that a word means under an engine: four bits are a GGUF file's under llama.cpp, AWQ's elsewhere."""
    files = engine.lower().startswith(("llama", "ollama")) or re.match(r"m\d|apple|mac", card, re.I)
    if re.match(r"4|int4", quant):
        return "Q4_K_M" if files else "awq"
    if re.match(r"8", quant):
        return "Q8_0" if files else "fp8"
    return FILES.get(quant.upper(), quant.upper()) if re.match(r"i?q\d", quant) else quant


def _training_flags(said: dict[str, str]) -> list[str]:
    method = METHODS.get(said.get("method", ""), said.get("method", "")).lower()
    if said.get("quant", "").lower() in ("4bit", "4-bit", "4bits", "4-bits", "nf4", "int4") and method in ("", "lora"):
        method = "qlora"
    if said.get("framework", "").lower() == "unsloth" and not method:
        method = "qlora"  # FastLanguageModel.from_pretrained: load_in_4bit is True by default
    flags = [f"--method={method}"] if method else []
    flags += [f"--seq={said['context']}"] if "context" in said else []
    flags += [f"--micro-batch={said['batch']}"] if "batch" in said else []
    flags += [f"--{name}={said[name]}" for name in ("samples", "epochs", "zero") if name in said]
    flags += ["--fsdp"] if "fsdp" in said else []
    return flags + (
        [f"--framework={said['framework'].lower().replace(' ', '_').replace('-', '_')}"] if "framework" in said else []
    )
