"""A question in a person's words: ``llama 3.1 8b on a 4090``, ``can I fine-tune qwen3 8b on 2x 3090``, 用4090能跑Qwen3-8B吗.

One short line that names a model, and mostly a card, becomes the words of ``fit``, ``serve`` or ``train``. Who names neither an
engine nor a type nor a method asks which of them do: the page of every way. Who asks how many users, how long a context or how
fast gets that answer. What is neither the model's name nor a word that asks is told as not read: nothing that was said is
dropped in silence. With an engine on a card, where the line names no context, the longest that fits is asked for.
"""
# ruff: noqa: RUF001 (Chinese punctuation and the sign of multiplication are what people type)

import re

import msgspec

from vramcast.asking.plain_cards import cards_of
from vramcast.asking.plain_flags import SETTINGS_FLAGS, bits_of, serving_flags, training_flags, trains_in
from vramcast.asking.plain_model import NamedModel, foreign_words, is_model, model_in, outgrows
from vramcast.asking.plain_words import (
    A_MAC,
    ASKING,
    CARD_BEHIND,
    CLUSTER,
    GLUED,
    HOST,
    MIXED,
    ON,
    RUNS,
    SAID,
    SHARED,
    SIZE_OF_A_CARD,
    SPEED_CONTEXT,
    SUFFIX,
    TOTAL,
    TRAINS,
    TWO_WAYS,
    USUAL_CONTEXT,
    WANTED,
    WHICH_MODELS,
)

_LONGEST = 400
_MOST_UNREAD = 12  # words: a line of more is a text about something else


class PlainQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked: the command, the model's name, and flags as they are typed; ``unread``: words that none of them holds.

    ``model`` is empty where the line asks which models a card runs.
    """

    command: str  # fit, serve, train or plan
    model: str
    flags: tuple[str, ...]
    unread: str = ""

    @property
    def words(self) -> list[str]:
        """The words behind ``vramcast``."""
        return [*self.command.split(), *([self.model] if self.model else []), *self.flags]


class _PlainLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line taken apart: ``cards`` as --gpu takes them, ``settings`` by name, ``wanted`` beside the verdict."""

    line: str
    cards: tuple[str, ...]
    count: int
    settings: dict[str, str]
    wanted: str
    trains: bool

    @property
    def card(self) -> str:
        return self.cards[0] if len(self.cards) == 1 else ""


def plain_question(text: str) -> PlainQuestion | None:
    """The question in one line of a person's words, or None where it is none."""
    plain = re.sub(r"[()（）\[\]，]|['’]s\b", " ", text)
    line = " ".join(MIXED.sub(" ", GLUED.sub(r"\1 x ", TOTAL.sub(" ", plain))).split())
    if not line or len(line) > _LONGEST or line.startswith("-") or " --" in line:
        return None
    wanted, left = _wanted(line)
    left, settings = _settings(_host(left))
    compares = settings.pop("open", "")
    cards, count, left = cards_of(left, line)
    trains = bool(re.search(TRAINS, line, re.I)) or bool(
        settings.keys() & {"method", "task", "rank", "framework", "samples", "epochs", "tokens", "zero", "fsdp"}
    )
    asks = bool(cards or wanted or settings or compares or trains or ASKING.match(line) or _stands_on_something(left))
    found = model_in(left, surely=asks)
    if len(cards) == 1 and WHICH_MODELS.search(line) and (found is None or not is_model(found.name)):
        unread = f"{found.name} {found.unread}".strip() if found else " ".join(foreign_words(left))
        return _which_models(cards[0], count, settings, trains=trains, unread=unread)
    behind = CARD_BEHIND.search(left)  # of a card that nobody knows: --gpu refuses it and names the nearest
    card = behind[1].strip() if behind else ""
    none = found is None or (found.name == card and not found.unread and not is_model(card))
    if none and not cards and WHICH_MODELS.search(line) and not foreign_words(left.partition(" on ")[0]):
        return _which_models(card, 1, settings, trains=trains, unread="")
    if found is None or len(found.unread.split()) > _MOST_UNREAD:
        return None
    found, cards = _with_its_card(found, cards, line)
    if trains and settings.get("concurrency"):
        found = NamedModel(found.name, f"{found.unread} {settings['concurrency']} users".strip())
    if "deadline" in settings and not settings.keys() & {"tokens", "samples"}:  # of a run whose length nobody said
        found = NamedModel(found.name, f"{found.unread} {settings.pop('deadline')}".strip())
    if wanted == "nodes" and count > 1:
        found = NamedModel(found.name, f"{found.unread} nodes of {count}".strip())
    if trains and (quant := settings.get("quant")) and not trains_in(settings):
        found = NamedModel(found.name, f"{found.unread} {quant}".strip())
    found = NamedModel(found.name, f"{found.unread} {_told_host(settings)}".strip())
    said = _PlainLine(line=line, cards=cards, count=count, settings=settings, wanted=wanted, trains=trains)
    question = _asked(found.name, said)
    return msgspec.structs.replace(question, unread=f"{found.unread} {_not_taken(settings, question.flags)}".strip())


def _stands_on_something(left: str) -> bool:
    """Whether it is ``MODEL on WORDS``: the words are meant as a card, also where nobody knows one of that name."""
    behind = ON.fullmatch(left)
    return behind is not None and is_model(behind[1])


def _not_taken(settings: dict[str, str], flags: tuple[str, ...]) -> str:
    """What was said and has no flag in the command that answers, as it is told."""
    taken = {flag.lstrip("-").partition("=")[0] for flag in flags}
    left = [name for name, own in SETTINGS_FLAGS.items() if name in settings and not taken & set(own)]
    return " ".join(settings[name] if name in ("task", "framework", "fsdp") else f"{name} {settings[name]}" for name in left)


def _which_models(card: str, count: int, settings: dict[str, str], *, trains: bool, unread: str) -> PlainQuestion:
    """The page of a card, for a line that asks which models it runs or trains."""
    flags = [f"--gpu={card}x{count}" if count > 1 else f"--gpu={card}"] if card else []
    flags += [f"--{'seq' if trains else 'context'}={settings['context']}"] if "context" in settings else []
    users = settings.get("concurrency", "")
    flags += [f"--users={users}"] if users and not trains else []
    unread = f"{unread} {users} users".strip() if users and trains else unread
    unread = f"{unread} {_told_host(settings)}".strip()
    return PlainQuestion(command="fit", model="", flags=(*flags, *(["--only=train"] if trains else [])), unread=unread)


def _with_its_card(found: NamedModel, cards: tuple[str, ...], line: str) -> tuple[NamedModel, tuple[str, ...]]:
    """Words that are plainly a card's though nobody knows it stay with --gpu, which refuses them and names the nearest."""
    behind = SUFFIX.fullmatch(found.unread)
    if len(cards) == 1 and behind and re.search(rf"{re.escape(cards[0])} {found.unread}\b", line):  # a 4070 tii
        return NamedModel(found.name), (f"{cards[0]} {found.unread}",)
    mac = A_MAC.search(found.unread)
    if mac and all(SIZE_OF_A_CARD.fullmatch(card) for card in cards):  # --gpu says what to add, or that none has that memory
        return NamedModel(found.name, f"{found.unread[: mac.start()]} {found.unread[mac.end() :]}".strip()), (
            " ".join((mac[0], *cards)),
        )
    if cards:
        return found, cards
    if (beside := ON.fullmatch(found.name)) and is_model(beside[1]):
        return NamedModel(beside[1]), (beside[2],)
    if found.unread and re.search(rf"\bon\s+(?:(?:an?|the|my)\s+)?{re.escape(found.unread)}[?.!]*$", line, re.I):
        return NamedModel(found.name), (found.unread,)
    return found, cards


def _asked(model: str, said: _PlainLine) -> PlainQuestion:
    """The words of the command that answers."""
    card, settings, trains, wanted = said.card, said.settings, said.trains, said.wanted
    if settings.get("context", "").isalpha():  # the entire context
        settings["context"] = str(_positions(model))
    if len(said.cards) > 1 or wanted == "cost" or (trains and "deadline" in settings):
        return _planned(model, said)
    if card and (wanted == "nodes" or (said.count == 1 and wanted == "cards")):
        return _planned(model, said)
    if settings.pop("host", "") and not trains:
        settings.setdefault("engine", "ollama")  # of the engines here the one that shares a model between card and host by itself
        settings.setdefault("quant", "Q4")
    flags = [f"--gpu={card}x{said.count}" if said.count > 1 else f"--gpu={card}"] if card else []
    if card and not trains and wanted == "speed" and "engine" not in settings and _shares_the_hosts_memory(card):
        settings["engine"] = "llama.cpp"
    if _is_open(model, said):
        return PlainQuestion(command="fit", model=model, flags=(*flags, *_flags_of_fit(said)))
    if card and not trains and wanted not in ("users", "longest") and settings.get("engine", "").lower() != "ollama":
        settings.setdefault(
            "context", SPEED_CONTEXT if wanted == "speed" else "auto"
        )  # Ollama takes its own by the card's memory
    if trains and re.search(r"bnb-4bit|4bit", model, re.I):
        settings.setdefault("method", "qlora")  # the weights that are trained beside are stored in four bits
    flags += training_flags(settings) if trains else serving_flags(settings, card)
    return PlainQuestion(command="train" if trains else "serve", model=model, flags=(*flags, *_flags_wanted(said)))


def _positions(model: str) -> int:
    """The longest sequence of a model, the usual context where it is not known."""
    from vramcast.errors import VramcastError
    from vramcast.models.reading import read_model

    try:
        return read_model(model).positions or int(USUAL_CONTEXT)
    except VramcastError:
        return int(USUAL_CONTEXT)


def _planned(model: str, said: _PlainLine) -> PlainQuestion:
    """How many cards: the ranking by fewest. Which of several cards: the ranking by time, whatever their number."""
    settings, open_count = said.settings, said.wanted in ("cards", "nodes")
    most = said.count if not open_count else CLUSTER if said.trains else 1
    by = "cost" if said.wanted == "cost" else "cards" if open_count else "time" if said.trains else "speed"
    offers = (
        [f"--gpu={said.card}x{most}" if most > 1 else f"--gpu={said.card}"] if said.card else [f"--gpu={c}" for c in said.cards]
    )
    if said.trains:
        return PlainQuestion(
            command="plan train",
            model=model,
            flags=(*(offers or ["--gpu=any"]), *training_flags(settings, plan=True), f"--by={by}"),
        )
    load = [f"--{flag}={settings[name]}" for name, flag in (("context", "context"), ("concurrency", "users")) if name in settings]
    fewest = "16" if "dtype" in settings else bits_of(settings.get("quant", ""))
    bits = [f"--bits={fewest}"] if fewest in ("16", "8") else []
    return PlainQuestion(command="plan serve", model=model, flags=(*offers, *load, *bits, f"--by={by}"))


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


def _is_open(model: str, said: _PlainLine) -> bool:
    """Whether the line leaves open how the model is run or trained, and asks for nothing that one way alone has."""
    from vramcast.asking.artefact import artefact_of
    from vramcast.models.names import take_apart

    known = {"context", "concurrency"} | ({"batch"} if said.settings.get("batch") == "1" else set())
    one_way = (bool(said.card) and said.wanted in ("users", "longest", "speed", "batch")) or said.wanted == "kv"
    if said.wanted in ("speed", "longest") and said.card and outgrows(model, said.card, said.count):
        one_way = False  # nobody runs it as published there: the page shows the speed and the longest context in each format
    if said.settings.keys() - known or one_way or said.wanted == "time":
        return False
    return not artefact_of(model).engine and not take_apart(model).ending


def _flags_of_fit(said: _PlainLine) -> list[str]:
    settings = said.settings
    runs = re.search(rf"\b(?:{RUNS})\b|运行|部署|推理|跑(?!得?起)", said.line, re.I)
    only = [] if said.trains == bool(runs) else ["--only=train"] if said.trains else ["--only=run"]
    only = ["--only=run"] if said.wanted == "speed" and not said.trains else only
    length = "seq" if "--only=train" in only else "context"
    context = [f"--{length}={settings['context']}"] if "context" in settings else []
    users = [f"--users={settings['concurrency']}"] if "concurrency" in settings and length == "context" else []
    if said.wanted == "speed" and not said.trains and said.card:
        context = context or [f"--context={SPEED_CONTEXT}"]
    return [*context, *users, *only]


def _flags_wanted(said: _PlainLine) -> list[str]:
    """The flags of serve that answer how many, how long or how fast."""
    if said.trains or not said.card:
        return []
    if said.wanted == "users":
        return ["--best=users", *([] if "context" in said.settings else [f"--context={USUAL_CONTEXT}"])]
    return {"longest": ["--best=context"], "speed": ["--prompt=1024", "--output=256"]}.get(said.wanted, [])


def _host(line: str) -> str:
    """The line with the host's memory marked as such; of a machine whose card has no other memory it is the card's."""
    for found in HOST.finditer(line):
        before, size = line[: found.start()], found["size"]
        if SHARED.search(before):
            return f"{before}{size}gb {line[found.end() :]}"
        return f"{before} host-memory-{size} {line[found.end() :]}"
    return line


def _told_host(settings: dict[str, str]) -> str:
    """The host's memory as it is told to be not counted; "" where none was said."""
    return f"{settings['host']}GB of the machine's own memory" if "host" in settings else ""


def _is_a_format(word: str) -> bool:
    """Whether a word alone is a type of weights, a scheme of quantisation or a method of training."""
    known = any(pattern.fullmatch(word) for name, pattern in SAID if name in ("dtype", "quant", "method"))
    return known or word.lower() == "full"


def _settings(line: str) -> tuple[str, dict[str, str]]:
    """The line without what it says of context, users, engine and types, and what that was."""
    said: dict[str, str] = {}
    if (both := TWO_WAYS.search(line)) and all(_is_a_format(word) for word in both.groups()):
        line, said["open"] = f"{line[: both.start()]} {line[both.end() :]}", "format"
    for name, pattern in SAID:
        if name == "quant" and len({bits_of(found[0]) for found in pattern.finditer(line)}) > 1:  # q4 or q8: each is shown
            line, said["open"] = pattern.sub(" ", line), "quant"
        found = pattern.search(line) if name not in said else None
        if found and not (name == "quant" and line[found.end() : found.end() + 1] == ":"):
            said[name] = re.sub(r"\s", "", next(group for group in found.groups() if group))
            line = f"{line[: found.start()]} {line[found.end() :]}"
    return " ".join(line.split()), said
