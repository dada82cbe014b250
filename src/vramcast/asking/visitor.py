"""What a visitor may ask: words from a URL, a body or an assistant, with nothing of this machine's own disk or cards in reach.

The command line opens files, standard input and the local card where it is told to. A visitor's words must not: names that are
paths, words that name a file and ``--gpu local`` are refused here, before the question is read by ``asking``.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import msgspec

from vramcast.asking.asked import Asked
from vramcast.asking.plan import PlanServeWords
from vramcast.asking.plan_training import PlanTrainWords
from vramcast.asking.serving import ServingWords, serving_question
from vramcast.asking.training import TrainingWords, training_question
from vramcast.errors import QuestionError, unknown_name
from vramcast.untrusted import shown, whole_number
from vramcast.workload import Serving, Training

LONGEST_VALUE = 400
MOST_WORDS = 64
_OF_THE_SERVER = frozenset({"workload", "profile", "settings"})  # words that name a file or open a recipe's every part
_LISTS = frozenset({"gpu", "engine", "framework"})  # words of a plan that may hold several texts
_EXTRA = frozenset({"model", "flags"})
SERVING_WORDS = frozenset(ServingWords.__annotations__) - _OF_THE_SERVER
TRAINING_WORDS = frozenset(TrainingWords.__annotations__) - _OF_THE_SERVER
PLAN_WORDS = {
    "serve": frozenset(PlanServeWords.__annotations__) - _OF_THE_SERVER,
    "train": frozenset(PlanTrainWords.__annotations__) - _OF_THE_SERVER,
}
MOST_OFFERS, MOST_PLANNED = 8, 256  # kinds of cards, and cards of one kind, that a visitor's plan may choose from
_NAME = re.compile(r"[\w.@:+~ ()-]+(?:/[\w.@:+-]+){0,2}")
_PATHLIKE = re.compile(r"^[./~\\-]|\.\.|\\|\.(?:json|safetensors|gguf|ya?ml|sh|txt|toml|bin|pt|pth|pickle|pkl)$", re.IGNORECASE)


def kind_of(name: str, kind: str) -> type:
    """What a word's text becomes: a whole number, a number, a switch, or the text itself where the question reads more."""
    taken = get_args((TrainingWords.__annotations__ if kind == "train" else ServingWords.__annotations__).get(name, str))
    if str in taken or not taken:
        return str
    return next((plain for plain in (bool, int, float) if plain in taken), str)


def asked_by_visitor(kind: str, given: Mapping[str, Any]) -> Asked[Serving] | Asked[Training]:
    """The question of a visitor's words; ``kind`` is ``serve`` or ``train``.

    ``flags`` holds the engine's own flags as one text. Raises QuestionError for a word, value or name that cannot be, or
    that would read something of the server.
    """
    known = (SERVING_WORDS if kind == "serve" else TRAINING_WORDS) | _EXTRA
    words = _words(given, known, kind)
    model, flags = str(words.pop("model", "")), _flags(words.pop("flags", ""))
    if not model and not words.get("layers"):
        raise QuestionError("no model: write for example Qwen/Qwen2.5-7B-Instruct, or llama3.1:8b")
    _refuse_own_card(str(words.get("gpu", "")))
    name = _public_name(model) if model else None
    if kind == "serve":
        return serving_question(name or "", flags=_known_flags(words, flags), **words)
    if flags:
        raise QuestionError(f"flags {shown(' '.join(flags))}: training has no flags of an engine; use the fields")
    return training_question(name, **words)


def asked_of_config(config: bytes, given: Mapping[str, Any], *, kind: str = "serve") -> Asked[Serving] | Asked[Training]:
    """The question about a config.json that the visitor sent along; it is read in memory and forgotten."""
    from vramcast.models.sources.described import from_config
    from vramcast.models.sources.strict import LARGEST_CONFIG_BYTES, parse_json

    if len(config) > LARGEST_CONFIG_BYTES:
        raise QuestionError(f"the config is larger than {LARGEST_CONFIG_BYTES:,} bytes: a model's config.json is not")
    where = "the config.json that was sent"
    return asked_of_model(from_config(parse_json(config, where), name="your config.json", where=where), given, kind=kind)


def asked_of_model(model: Any, given: Mapping[str, Any], *, kind: str = "serve") -> Asked[Serving] | Asked[Training]:
    """The question about a model that the visitor described; its own name stands in the answer."""
    asked = asked_by_visitor(kind, {**given, "model": "Qwen/Qwen2.5-0.5B"})
    question = msgspec.structs.replace(asked.question, model=model.id)
    return msgspec.structs.replace(asked, question=question, model=model)


def plan_of_visitor(task: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The model and the words of a visitor's plan; ``task`` is ``serve`` or ``train``. A word may be a list of texts.

    Raises QuestionError for a word, value or name that cannot be, for more cards than a visitor may ask about, and as
    ``asked_by_visitor``.
    """
    if task not in PLAN_WORDS:
        raise unknown_name("task", shown(task, 20), PLAN_WORDS)
    words = _checked({name: value for name, value in given.items() if name != "model"}, PLAN_WORDS[task], _of_a_plan)
    model = given.get("model")
    if not isinstance(model, str) or not model.strip():
        raise QuestionError("no model: write for example Qwen/Qwen2.5-7B-Instruct")
    cards = words.get("gpu", [])
    offers = (cards,) if isinstance(cards, str) else cards
    if len(offers) > MOST_OFFERS:
        raise QuestionError(f"{len(offers)} kinds of cards: a plan chooses from at most {MOST_OFFERS}")
    for offer in offers:
        _refuse_own_card(offer)
    _refuse_too_many(offers, words.get("most_gpus"))
    return _public_name(model), words


def _refuse_own_card(gpu: str) -> None:
    if gpu.strip().lower() == "local":
        raise QuestionError("gpu 'local' is the server's own card: name the card, for example RTX 4090")


def _refuse_too_many(offers: Iterable[str], most: object) -> None:
    """Raises QuestionError for more cards of a kind than a visitor's plan may take."""
    from vramcast.asking.plan import offers_of

    counted = [offer.most for text in offers for offer in offers_of(text, most=1)]
    counted += [number for number in [whole_number(str(most))] if number]
    if max(counted, default=0) > MOST_PLANNED:
        raise QuestionError(f"{max(counted):,} cards: a plan asked from outside has at most {MOST_PLANNED} of a kind")


def _of_a_plan(name: str, value: Any) -> Any:
    """A plan's word as it reads it: text, a number, a switch, or a list of texts."""
    if isinstance(value, list | tuple) and name in _LISTS:
        return [_bounded(name, part) for part in value]
    return value if isinstance(value, bool) else _bounded(name, value)


def _words(given: Mapping[str, Any], known: Iterable[str], kind: str) -> dict[str, Any]:
    """The words with values, each bounded and of the kind that its question takes; a list is a text with commas."""

    def typed(name: str, value: Any) -> Any:
        text = ",".join(_bounded(name, part) for part in value) if isinstance(value, list | tuple) else _bounded(name, value)
        return _typed(name, text, kind)

    return _checked(given, known, typed)


def _checked(given: Mapping[str, Any], known: Iterable[str], typed: Callable[[str, Any], Any]) -> dict[str, Any]:
    """The words that are known and have a value, each as ``typed`` reads it."""
    if len(given) > MOST_WORDS:
        raise QuestionError(f"{len(given)} words: a question has at most {MOST_WORDS}")
    words: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise unknown_name("word", str(name), known)
        if value is None or value == "" or value is False:
            continue
        words[name] = typed(name, value)
    return words


def _bounded(name: str, value: Any) -> str:
    """The value as text. Raises QuestionError for one that is too long or no text, number or switch."""
    text = value if isinstance(value, str) else str(value)
    if isinstance(value, dict | list | tuple):
        raise QuestionError(f"--{name.replace('_', '-')} {shown(text, 20)}: expected a text or a number")
    if text.encode(errors="ignore").decode() != text:
        raise QuestionError(f"--{name.replace('_', '-')} {shown(text, 20)} is no text in UTF-8")
    if len(text) > LONGEST_VALUE or "\0" in text:
        raise QuestionError(f"--{name.replace('_', '-')} {shown(text, 20)} is longer than any value is")
    return text


def _typed(name: str, text: str, kind: str) -> Any:
    plain = kind_of(name, kind)
    if plain is bool:
        return text.lower() in ("1", "true", "on", "yes")
    if plain is not str:
        try:
            return plain(text)
        except ValueError:
            raise QuestionError(f"--{name.replace('_', '-')} is {shown(text)}: expected a number") from None
    return tuple(text.split(",")) if name == "offload" else text


def _flags(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise QuestionError(f"flags {shown(text)}: {error}") from None


def _known_flags(words: dict[str, Any], flags: tuple[str, ...]) -> tuple[str, ...]:
    """The engine's flags; those that are words of the question (--quant fp8, as advice prints them) become words."""
    kept: list[str] = []
    waiting = list(flags)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        field = name.removeprefix("--").replace("-", "_")
        if not (name.startswith("--") and field in SERVING_WORDS):
            kept.append(word)
        elif equals:
            words[field] = value
        elif waiting:
            words[field] = waiting.pop(0)
        else:
            raise QuestionError(f"{name} needs a value")
    return tuple(kept)


def _public_name(text: str) -> str:
    """The name, where it is one: an id, an alias, an Ollama tag, an address on the hub; never a path."""
    from vramcast.asking.artefact import artefact_of
    from vramcast.untrusted import existing_path

    plain = text.strip().removeprefix("https://huggingface.co/").removeprefix("https://hf.co/").removesuffix("/")
    gguf = plain.lower().endswith(".gguf") and "/" not in plain and not plain.startswith((".", "~"))
    if gguf and existing_path(plain) is None and artefact_of(plain).quant:
        return plain
    if not _NAME.fullmatch(plain) or _PATHLIKE.search(plain) or existing_path(plain) is not None:
        raise QuestionError(
            f"model {shown(text)} is not a model's name: files of the server are not read; send a config.json instead"
        )
    return plain
