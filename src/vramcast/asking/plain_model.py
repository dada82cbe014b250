"""Which words of a line name the model, and which words say nothing that is known here.

The model is the longest run of words each of which its meaning needs: of ``on windows qwen3 8b chat`` it is ``qwen3 8b chat``. A
size alone (``a 70B``) means the best known model of that size. What is neither the model's name nor a word of asking is handed
back, so that it can be told.
"""
# ruff: noqa: RUF001 (Chinese punctuation is what people type)

import re
from functools import cache

import msgspec

from vramcast.asking.plain_words import ASKING, SAME_SIZE, SIZE_ALONE, SIZED

_WORDS_OF_A_NAME = 4
_LONGEST_RUN = 6
_OF_A_CARD = 0.85  # of which weights may fill: an engine takes nine tenths, its cache and buffers a part of that
_VARIANT = re.compile(r"instruct|chat|it|base|thinking|large|medium|small|v\d(?:\.\d)?|\d[\d.]*[bt]?", re.IGNORECASE)
_JOINS = re.compile(r"an?|the|my|on|in|at|to|of|for|with|from|by|and|or|is", re.IGNORECASE)  # words that end no name
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


class NamedModel(msgspec.Struct, frozen=True):
    """The model's name as it was typed, or the id that a size alone means; and the words that nobody reads."""

    name: str
    unread: str = ""


def outgrows(model: str, card: str, count: int) -> bool:
    """Whether the weights as published leave no room on so many cards; False where model or card is not known."""
    from vramcast.errors import VramcastError
    from vramcast.hardware.cards import least_card
    from vramcast.models.quantization import scheme_for, weight_bytes
    from vramcast.models.reading import read_model

    try:
        held, found = read_model(model), least_card(card)
        return weight_bytes(held, scheme_for(held)) > _OF_A_CARD * count * found.visible_bytes
    except VramcastError:
        return False


def model_in(left: str, *, surely: bool) -> NamedModel | None:
    """The model that the words name; ``surely``: something else in the line asks, so that an unknown name is one too."""
    line = _less_asking(left)
    if not line:
        return None
    if (own := SIZED.fullmatch(line)) and not is_model(line) and has_size(own[1], own[2], own[3]):
        return NamedModel(own[1])
    if (run := _run(line)) and (surely or not _unread(line, run)):
        name, unread = line[run[0] : run[1]].strip(" ,;:"), _unread(line, run)
        return _with_size(name, unread)
    if surely and (size := SIZE_ALONE.search(line)) and (known := _of_size(size[1])):
        return NamedModel(known, _unread(line, size.span()))
    if _CHINESE.search(line):
        one = _like_an_id(line) if surely else None
        return NamedModel(one, _unread(line, (line.find(one), line.find(one) + len(one)))) if one else None
    if surely and len(line.split()) > _WORDS_OF_A_NAME and (one := _like_an_id(line)):
        return NamedModel(one, _unread(line, (line.find(one), line.find(one) + len(one))))
    named = surely and len(line.split()) <= _WORDS_OF_A_NAME and re.search(r"[a-z]\S*\s?\d|^[a-z]+-\S+$", line, re.I)
    return NamedModel(line) if named or is_model(line) else None


def _with_size(name: str, unread: str) -> NamedModel:
    """The name with a size that stands apart from it, where it means a model of that size: 70b llama2."""
    for word in unread.split():
        if re.fullmatch(r"\d[\d.]*[bt]", word, re.IGNORECASE) and has_size(f"{name} {word}", word[:-1], word[-1]):
            return NamedModel(f"{name} {word}", " ".join(w for w in unread.split() if w != word))
    return NamedModel(name, unread)


def _like_an_id(line: str) -> str | None:
    """A word that is written as ids are, though nobody knows it: the command refuses it and names the nearest."""
    words = [word.strip(" ,;:，。？?!") for word in line.split()]
    return next((word for word in words if re.fullmatch(r"[A-Za-z][\w.]*(?:-[\w.]+)+|[\w.-]+/[\w.-]+", word)), None)


def is_model(name: str) -> bool:
    """Whether the name means a model, or one with a slip or of several shapes: the command says which ones there are."""
    try:
        return _meant(name) is not None
    except ValueError:
        return True


def is_release(family: str, number: str) -> bool:
    """Whether a family has a release of that number."""
    return _begins_a_name(family) and _one(f"{family} {number}") is not None


def has_size(name: str, number: str, unit: str) -> bool:
    """Whether a size that was said beside a name (DeepSeek-V3 671B, phi-3 mini 3.8b) is the size of the model it names."""
    try:
        shape = _meant(name)
    except ValueError:
        return False
    said = float(number) * (1e12 if unit in "tT" else 1e9)
    return shape is not None and abs(shape[0] / said - 1) < SAME_SIZE


_Shape = tuple[int, str]  # parameters, and how they are quantised


@cache
def _meant(name: str) -> _Shape | None:
    """The shape of the model that a name means, None for no name. Raises VramcastError for a slip or several shapes."""
    from vramcast.models.reading.by_name import by_name

    if exactly := _exactly(name):
        return exactly
    found = by_name(_english(name))
    return (found.parameters, repr(found.quantization)) if found else None


@cache
def _exactly(name: str) -> _Shape | None:
    """The same for a name each word of which is one of the model's own."""
    from vramcast.models.reading import load
    from vramcast.models.reading.known import short_name
    from vramcast.models.reading.typed import current

    english = _english(name)
    found = load(english) or load(short_name(english) or "")
    if found is None and (typed := current(english)):
        found = load(typed[0])
    return (found.parameters, repr(found.quantization)) if found else None


def _english(name: str) -> str:
    from vramcast.asking.artefact import artefact_of
    from vramcast.models.reading.known import in_english

    return in_english(artefact_of(name).model)


def _run(line: str) -> tuple[int, int] | None:
    """Where the name stands: the longest run each end of which its meaning needs, and the words of size and tuning behind it."""
    words = [(m.start(), m.end()) for m in re.finditer(r"[^\s,;，。？?!]+", line)]
    for size in range(min(_LONGEST_RUN, len(words)), 0, -1):
        for first in range(len(words) - size + 1):
            last = first + size - 1
            if _begins_a_name(line[slice(*words[first])]) and _needs_both_ends(line, words[first : last + 1]):
                start, end = words[first][0], words[last][1]
                return start, _with_variants(line, start, end, words[last + 1 :])
    return None


def _needs_both_ends(line: str, words: list[tuple[int, int]]) -> bool:
    start, end = words[0][0], words[-1][1]
    if _JOINS.fullmatch(line[slice(*words[-1])]):
        return False
    meant = None if _CHINESE.search(line[words[0][1] : end]) else _one(line[start:end])
    if meant is None or len(words) == 1:
        return meant is not None
    return meant not in (_one(line[words[1][0] : end]), _one(line[start : words[-2][1]]))


def _with_variants(line: str, start: int, end: int, after: list[tuple[int, int]]) -> int:
    """The end of the name with the words behind it that belong to it: its tuning, its release, the size it has anyway."""
    meant = _one(line[start:end])
    for first, last in after:
        word = line[first:last]
        sized = re.fullmatch(r"(\d[\d.]*)([bt])", word, re.IGNORECASE)
        longer = line[start:last]
        same = _one(longer) == meant if _VARIANT.fullmatch(word) else _exactly(longer) == meant
        own_size = sized and has_size(line[start:end], sized[1], sized[2])
        if _CHINESE.search(word) or not (same or own_size):
            break
        end = last
    return end


def _one(name: str) -> _Shape | None:
    """As ``_meant``; None for what is no single model."""
    try:
        return _meant(name)
    except ValueError:
        return None


def _begins_a_name(word: str) -> bool:
    from vramcast.models.reading.known import in_english

    if "/" in word:
        return True
    first = re.match(r"[a-z]+", in_english(word).lower())
    return first is not None and first[0] in _families()


@cache
def _families() -> frozenset[str]:
    """The words that names of models begin with."""
    from vramcast.models import reading
    from vramcast.models.reading.known import SHORT

    begun = (re.match(r"[a-z]+", name.lower().rpartition("/")[2]) for name in (*reading.known_ids(), *SHORT))
    return frozenset(found[0] for found in begun if found)


def _of_size(size: str) -> str | None:
    """The best known model of that size, or of the nearest that is known."""
    from vramcast.models.reading.known import OF_SIZE

    asked = float(size[:-1])
    near = min(OF_SIZE, key=lambda known: abs(float(known[:-1]) / asked - 1) if asked else asked)
    return OF_SIZE[near] if asked and abs(float(near[:-1]) / asked - 1) < SAME_SIZE else None


def _less_asking(text: str) -> str:
    """The text without the words of asking at its beginning and end."""
    line = text.strip()
    while (found := ASKING.match(line)) and found.end():
        line = line[found.end() :].lstrip()
    while line and (tail := _last_word(line)):
        line = line[: -len(tail)].rstrip()
    return line


def foreign_words(text: str) -> list[str]:
    """The words of a text that are none of asking."""
    return list(_foreign(_less_asking(text)))


def _unread(line: str, run: tuple[int, int]) -> str:
    """The words on both sides of the name that are none of asking, in their order."""
    told = [word for part in (line[: run[0]], line[run[1] :]) for word in _foreign(part)]
    return " ".join(told)


def _foreign(text: str) -> list[str]:
    found: list[str] = []
    line = text.strip()
    while line:
        asking = ASKING.match(line)
        if asking and asking.end():
            line = line[asking.end() :].lstrip()
            continue
        word = re.match(r"[^\s\u4e00-\u9fff]+|[\u4e00-\u9fff]", line)
        end = word.end() if word else 1
        glued = found and _CHINESE.match(line) and _CHINESE.match(found[-1]) and text.find(found[-1] + line[:end]) >= 0
        if glued:
            found[-1] += line[:end]
        elif line[:end].strip(".,;:!?()\"'-/+，。？（）、"):
            found.append(line[:end].strip(",;:!?()\"'，。？（）"))
        line = line[end:].lstrip()
    return found


def _last_word(line: str) -> str:
    """The last word where it is one of asking."""
    for size in range(1, min(14, len(line)) + 1):
        tail, before = line[-size:], line[: len(line) - size][-1:]
        whole = not (re.match(r"[A-Za-z0-9]", tail) and re.match(r"[A-Za-z0-9.-]", before))
        found = ASKING.match(tail)
        if whole and found and found.end() == len(tail):
            return tail
    return ""
