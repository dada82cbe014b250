"""The cards of a line that a person typed: ``2x 3090``, ``a 5090 or a 4090``, ``MacBook Pro 64GB``, ``4090 24GB``."""
# ruff: noqa: RUF001 (Chinese punctuation and the sign of multiplication are what people type)

import re
from collections.abc import Iterator, Sequence

import msgspec

from vramcast.asking.plain_model import is_model, is_release
from vramcast.asking.plain_words import (
    AFTER,
    ASKING,
    BEFORE,
    BOTH,
    CARDS,
    COUNTED,
    EITHER,
    MACHINES,
    MAKERS,
    NUMBERS,
    PLURAL,
    PLUS,
    SIZE_OF_A_CARD,
    WHICH_CARD,
)

_MARKS = "\ue000\ue001\ue002\ue003\ue004"  # stand in a line for the cards that were found in it
_SEVERAL = re.compile(rf",|(?:^|\s)\+(?:\s|$)|[{_MARKS}]")  # in a run of words: it is more than one card


class _Said(msgspec.Struct, frozen=True):
    """A card as it was said and how many of it; ``mark`` stands for it in the line."""

    name: str
    count: int
    mark: str

    @property
    def is_size(self) -> bool:
        return SIZE_OF_A_CARD.fullmatch(self.name) is not None


def cards_of(left: str, line: str) -> tuple[tuple[str, ...], int, str]:
    """The cards as --gpu takes them, how many of one kind, and what is left of the line.

    Several kinds are offers where the line says ``or``, and one machine where it says ``and``; else only the first is read and
    the others are left as they are.
    """
    found, left = _all_cards(_all_machines(PLUS.sub(" + ", left)))
    if len(found) == 2 and found[0].is_size != found[1].is_size:
        return _with_its_size(found, left)
    named = [one for one in found if not one.is_size] or found
    if len(named) < 2:
        return tuple(one.name for one in named), named[0].count if named else 1, _less(left, found, named)
    between = re.split(f"[{_MARKS}]", left)[1:-1]
    chosen = WHICH_CARD.search(line) is not None and not any(word.strip(" ,、") for word in between)
    if len(named) == len(found) and (chosen or any(EITHER.search(word) for word in between)):
        if all(EITHER.search(word) or not word.strip(" ,、") for word in between):
            return tuple(f"{one.name}x{one.count}" for one in named), 1, EITHER.sub(" ", _less(left, found, named))
    elif len(named) == len(found) and all(BOTH.fullmatch(word) for word in between):
        left = f"{left[: left.find(named[0].mark)]} {left[left.find(named[-1].mark) + 1 :]}"
        return (", ".join(one.name for one in named for _ in range(one.count)),), 1, " ".join(left.split())
    return (named[0].name,), named[0].count, _less(left, found, named[:1])  # the others are told as not read


def _with_its_size(found: Sequence[_Said], left: str) -> tuple[tuple[str, ...], int, str]:
    """A card and an amount of memory: its own where it stands beside its name, else the machine's, which is told."""
    own, size = sorted(found, key=lambda one: one.is_size)
    between = left[left.find(found[0].mark) + 1 : left.find(found[1].mark)]
    sized = own.name if re.search(r"\d\s?gb?\b", own.name, re.I) else f"{own.name} {size.name}"
    apart = re.search(r"\b(?:or|vs\.?|versus|and|plus)\b|还是|或|和|\+", between) is not None
    if apart or (re.search(r"\bwith\b", between) and not _is_sold(sized)):
        return (own.name,), own.count, _less(left, [own, size], [own])
    return (sized if _is_card(sized) else own.name,), max(own.count, size.count), _less(left, [own, size], [own, size])


def _all_cards(line: str) -> tuple[list[_Said], str]:
    """The cards in their order in the line, and the line with a mark in the place of each."""
    found: list[_Said] = []
    for mark in _MARKS:
        card, count, marked = _card(line, mark)
        if not card:
            break
        found.append(_Said(card, count, mark))
        line = marked
    return sorted(found, key=lambda one: line.find(one.mark)), line


def _less(line: str, found: Sequence[_Said], taken: Sequence[_Said]) -> str:
    """The line without the cards that are taken, and with the names of the others."""
    for one in found:
        line = line.replace(one.mark, "" if one in taken else one.name)
    return " ".join(line.split())


def _is_sold(name: str) -> bool:
    from vramcast.hardware.cards import fitting

    return bool(fitting(name))


def _all_machines(line: str) -> str:
    """The line with several machines of so many cards as all their cards: 两台8卡A800 is 16 of them."""
    for pattern in MACHINES:
        if found := pattern.search(line):
            boxes, cards = (NUMBERS.get(word.lower()) or int(word) for word in found.groups()[:2])
            whole = " ".join(f"{line[: found.start()]} {boxes * cards} x {found[3]} {line[found.end() :]}".split())
            card, count, _ = _card(whole, _MARKS[0])
            return whole if count == boxes * cards or card.startswith(f"{boxes * cards} x ") else line
    return line


def _card(line: str, mark: str) -> tuple[str, int, str]:
    """The longest run of words that names a card, how many of it, and the line with a mark for them; "" where none does."""
    for start, end in _runs(line):
        name = line[start:end].strip()
        if _SEVERAL.search(name) or not _is_card(name) or _is_half_a_model(name, line[:start]):
            continue
        before, after = BEFORE.search(line[:start]), AFTER.match(line[end:])
        before = None if before and _is_a_release(line[: before.start()], before[0]) and not PLURAL.search(name) else before
        count = (before[1] if before else (after[1] or after[2]) if after else "1").lower()
        rest = f"{line[: before.start() if before else start]} {mark} {line[end + (after.end() if after else 0) :]}"
        number = NUMBERS.get(count) or int(count)
        if (counted := COUNTED.match(name)) and number == 1 and _is_card(counted[2]):
            number, name = int(counted[1]), counted[2]
        elif (counted := re.fullmatch(r"(.+?)\s*[x×*]\s*(\d{1,4})", name)) and number == 1 and _is_card(counted[1]):
            number, name = int(counted[2]), counted[1]
        return _singular(name), number, " ".join(rest.split())
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
        return named_cards(_singular(name)).gpu is not None
    except VramcastError:
        return False


def _is_half_a_model(name: str, before: str) -> bool:
    """Whether a short name of a card is the last word of a model's: the M2 of ``MiniMax M2`` is no chip of Apple."""
    word = re.search(r"([A-Za-z][\w.-]*)\s$", before)
    if word is None or re.search(r"\d", word[1]) or re.fullmatch(r"[a-z]\d{1,2}", name, re.I) is None:
        return False  # beside a Qwen3-8B an A10 is a card
    return is_model(f"{word[1]} {name}")


def _is_a_release(before: str, number: str) -> bool:
    """Whether a bare number in front of a card is the release of the family before it: ``gemma 3 L4`` names no three cards."""
    family = re.search(r"(?:^|\s)([A-Za-z]+)\s*$", before)
    return family is not None and number.strip().isdecimal() and is_release(family[1], number.strip())


def _singular(name: str) -> str:
    """One card of the name: ``H100s`` are several of one kind, an ``L40S`` is a card of its own."""
    from vramcast.hardware.cards import fitting

    name = CARDS.sub("", name)
    return name if fitting(name) else PLURAL.sub("", name)
