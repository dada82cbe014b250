"""The cards of a line that a person typed: ``2x 3090``, ``a 5090 or a 4090``, ``MacBook Pro 64GB``, ``4090 24GB``."""
# ruff: noqa: RUF001 (Chinese punctuation and the sign of multiplication are what people type)

import re
from collections.abc import Iterator

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
    SIZE_OF_A_CARD,
)


def cards_of(left: str, line: str) -> tuple[tuple[str, ...], int, str]:
    """The cards as --gpu takes them, how many of one kind, and what is left of the line.

    Two kinds are two offers where the line says ``or``, and one machine where it says ``and``; else the second is left as it is.
    """
    card, count, left = _card(_all_machines(left))
    if not card:
        return (), 1, left
    other, more, rest = _card(left)
    if not other:
        return (card,), count, left
    sizes = [bool(SIZE_OF_A_CARD.fullmatch(one)) for one in (card, other)]
    if any(sizes) and not all(sizes) and not _are_apart(card, other, line):  # its memory, said beside its name
        name, size = (card, other) if SIZE_OF_A_CARD.fullmatch(other) else (other, card)
        sized = f"{name} {size}" if not re.search(r"\d\s?gb?\b", name, re.I) else name
        return (sized if _is_card(sized) else name,), max(count, more), rest
    (first, n), (second, m) = sorted(((card, count), (other, more)), key=lambda one: line.find(one[0]))
    between = line[line.find(first) + len(first) : line.find(second)].removesuffix(f"{m} ")
    if EITHER.search(between) and not any(sizes):
        return (f"{first}x{n}", f"{second}x{m}"), 1, EITHER.sub(" ", rest)
    if any(sizes) and not all(sizes):  # a size joined to a named card is the machine's own memory
        own, n, size = (second, m, first) if SIZE_OF_A_CARD.fullmatch(first) else (first, n, second)
        return (own,), n, f"{rest} {size}"
    if BOTH.fullmatch(between):
        return (", ".join([first] * n + [second] * m),), 1, rest
    return (first,), n, f"{rest} {second}"  # the second is told as not read


def _all_machines(line: str) -> str:
    """The line with several machines of so many cards as all their cards: 两台8卡A800 is 16 of them."""
    for pattern in MACHINES:
        if found := pattern.search(line):
            boxes, cards = (NUMBERS.get(word.lower()) or int(word) for word in found.groups()[:2])
            return f"{line[: found.start()]} {boxes * cards} x {found[3]} {line[found.end() :]}"
    return line


def _are_apart(one: str, other: str, line: str) -> bool:
    """Whether a word of choice or of joining stands between two cards: RTX 3090 or Mac Studio 128GB."""
    first, last = sorted((line.find(one), line.find(other)))
    return re.search(r"\b(?:or|vs\.?|versus|and|plus)\b|还是|或|和", line[first:last]) is not None


def _card(line: str) -> tuple[str, int, str]:
    """The longest run of words that names a card, how many of it, and the line without them; "" where none does."""
    for start, end in _runs(line):
        name = line[start:end].strip()
        if not _is_card(name) or _is_half_a_model(name, line[:start]):
            continue
        before, after = BEFORE.search(line[:start]), AFTER.match(line[end:])
        before = None if before and _is_a_release(line[: before.start()], before[0]) and not PLURAL.search(name) else before
        count = (before[1] if before else (after[1] or after[2]) if after else "1").lower()
        rest = f"{line[: before.start() if before else start]} {line[end + (after.end() if after else 0) :]}"
        number = NUMBERS.get(count) or int(count)
        if (counted := COUNTED.match(name)) and number == 1 and _is_card(counted[2]):
            number, name = int(counted[1]), counted[2]
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
