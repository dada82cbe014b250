"""Formulas and reasons in another language: cut at their operators, each part by the file of phrases, numbers as they stand.

``4,096 tokens x 32 layers x 8,192 B of each layer's input`` is ``4,096 token x 32 层 x 8,192 B（每层输入）``. A part that the
file does not have stands as it is: names of kernels, flags and files belong to no language.
"""

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
NUMBER = re.compile(r"(?<![\w.\-'/])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
CUT = re.compile(r"( x | \+ | = |; |, (?:and )?|: | \(|\(|\)| / | - | \* )")
_WIDE = {"; ": "；", ", ": "，", ", and ": "，", ": ": "：", " (": "（", "(": "（", ")": "）"}
_FIRST = re.compile(r"[\u3400-\u9fff]")


def phrase_file(code: str) -> Path:
    """Where the phrases of a language lie; English needs none."""
    return FOLDER / f"{code}.phrases"


@cache
def phrases(code: str) -> tuple[dict[str, str], tuple[tuple[re.Pattern[str], str], ...]]:
    """The phrases by their English, and those with ``*`` in them as patterns; both empty for English."""
    if not phrase_file(code).is_file():
        return {}, ()
    lines = phrase_file(code).read_text("utf-8").splitlines()
    pairs = [line.split(" => ", 1) for line in lines if " => " in line]
    plain = {english: said for english, said in pairs if "*" not in english}
    return plain, tuple((_pattern(english), said) for english, said in pairs if "*" in english)


def _pattern(english: str) -> re.Pattern[str]:
    return re.compile("".join("([^,;:()]+?)" if part == "*" else re.escape(part) for part in re.split(r"(\*)", english)) + "$")


@cache
def told(text: str, code: str) -> str:
    """The text in that language as far as the phrases go; as it stands where none of its parts is among them."""
    if not phrases(code)[0]:
        return text
    if (whole := _part(text, code)) is not None:
        return whole
    parts = CUT.split(text)
    words = [part if place % 2 else _part(part, code) for place, part in enumerate(parts)]
    if all(word is None or place % 2 for place, word in enumerate(words)):
        return text
    return "".join(_joint(parts, words, place) if place % 2 else words[place] or parts[place] for place in range(len(parts)))


def _joint(parts: list[str], words: list[str | None], place: int) -> str:
    """What stands between two parts: wide where one beside it is Chinese."""
    beside = (words[place - 1], words[place + 1])
    wide = any(word and _FIRST.search(word) for word in beside)
    return _WIDE.get(parts[place], parts[place]) if wide else parts[place]


def _part(part: str, code: str) -> str | None:
    """One part, or None where the phrases do not have it."""
    plain, patterns = phrases(code)
    numbers = NUMBER.findall(part)
    masked = NUMBER.sub("#", part)
    found = plain.get(masked.strip())
    if found is None:
        for pattern, words in patterns:
            if match := pattern.match(masked.strip()):
                found = words
                for group in match.groups():
                    found = found.replace("*", plain.get(group, group), 1)
                break
    if found is None:
        return None
    for place, number in enumerate(numbers, 1):
        found = found.replace(f"{{{place}}}", number).replace("#", number, 1)
    return found
