r"""Regular expressions of strangers, matched in time that grows with the text and not with its powers.

Quantisation configs name modules by expressions after ``re:``; a hostile or careless one makes a backtracking matcher run for
hours. Here an expression becomes a small tree, and matching carries the *set* of places reached (a whole number used as a bit
set): alternatives are unions, a repeat is a closure, so nothing is ever tried twice. What the published configs use is read:
letters, classes, ``.``, groups, ``|``, ``* + ? {m,n}``, ``^ $ \b``, look-ahead; back references and look-behind are refused.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from vramcast.errors import ConfigError

LONGEST = 2_000
MOST_REPEATS = 100
Step = Callable[[str, int], int]
"""From a text and the bit set of places reached to the bit set of places after."""

_CLASSES = {"d": r"\d", "w": r"\w", "s": r"\s", "D": r"\D", "W": r"\W", "S": r"\S"}
_COUNTED = re.compile(r"\{(\d{0,3})(,?)(\d{0,3})\}")


class Expression:
    """A compiled expression; ``match`` asks whether some beginning of the text fits, as ``re.match`` does."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._step = _Reader(text).whole()

    def match(self, text: str) -> bool:
        """Whether the text begins with something that fits."""
        return self._step(text[:LONGEST], 1) != 0


@lru_cache(maxsize=4096)
def compiled(text: str) -> Expression:
    """The expression. Raises ConfigError for one that is malformed, too long, or uses what is not read here."""
    if len(text) > LONGEST:
        raise ConfigError(f"quantization_config holds an expression of {len(text):,} letters: at most {LONGEST:,} are read")
    try:
        return Expression(text)
    except (_Malformed, re.error, RecursionError) as error:
        raise ConfigError(f"quantization_config holds the expression {text[:60]!r}, which is not read: {error}") from None


class _Malformed(Exception):  # noqa: N818 (an outcome of reading, told as a ConfigError)
    pass


class _Reader:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def whole(self) -> Step:
        step = self._alternatives()
        if self.at < len(self.text):
            raise _Malformed(f"a bracket too many at letter {self.at + 1}")
        return step

    def _alternatives(self) -> Step:
        branches = [self._sequence()]
        while self._next("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        return lambda text, places: _union(branch(text, places) for branch in branches)

    def _sequence(self) -> Step:
        steps: list[Step] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            steps.append(self._repeated(self._one()))

        def run(text: str, places: int) -> int:
            for step in steps:
                if not places:
                    break
                places = step(text, places)
            return places

        return run

    def _repeated(self, step: Step) -> Step:
        while self.at < len(self.text) and self.text[self.at] in "*+?{":
            counted = _COUNTED.match(self.text, self.at)
            sign = self.text[self.at]
            if sign == "{" and (counted is None or not (counted[1] or counted[3])):
                return step  # a brace that counts nothing is a letter, read next
            self.at = counted.end() if sign == "{" and counted else self.at + 1
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign) or _counts(counted)
            step = _repeat(step, low, high)
            self._next("?")  # a lazy repeat reaches the same places
        return step

    def _one(self) -> Step:
        letter = self.text[self.at]
        self.at += 1
        if letter == "(":
            return self._group()
        if letter == "[":
            return self._class()
        if letter == "\\":
            return self._escaped()
        if letter in "*+?":
            raise _Malformed(f"{letter!r} repeats nothing at letter {self.at}")
        if letter == "^":
            return lambda text, places: places & 1
        if letter == "$":
            return lambda text, places: places & (1 << len(text))
        return _letter(lambda found: found != "\n") if letter == "." else _letter(lambda found: found == letter)

    def _group(self) -> Step:
        ahead = ""
        if self._next("?"):
            kind = self.text[self.at : self.at + 1]
            self.at += 1
            if kind in "=!" and kind:
                ahead = kind
            elif kind != ":":
                raise _Malformed(f"(?{kind} is not read")
        inner = self._alternatives()
        if not self._next(")"):
            raise _Malformed("a bracket is not closed")
        return _look_ahead(inner, wanted=ahead == "=") if ahead else inner

    def _class(self) -> Step:
        end = self.at + (self.text[self.at : self.at + 1] == "^")
        end += self.text[end : end + 1] == "]"
        while end < len(self.text) and self.text[end] != "]":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise _Malformed("a class is not closed")
        one = re.compile(f"[{self.text[self.at : end]}]")
        self.at = end + 1
        return _letter(lambda found: one.match(found) is not None)

    def _escaped(self) -> Step:
        letter = self.text[self.at : self.at + 1]
        self.at += 1
        if letter == "b":
            return _boundary
        if letter in _CLASSES:
            one = re.compile(_CLASSES[letter])
            return _letter(lambda found: one.match(found) is not None)
        if not letter or letter.isalnum():
            raise _Malformed(f"\\{letter} is not read")
        return _letter(lambda found: found == letter)

    def _next(self, letter: str) -> bool:
        met = self.text[self.at : self.at + 1] == letter
        self.at += met
        return met


def _letter(fits: Callable[[str], bool]) -> Step:
    @lru_cache(maxsize=64)
    def where(text: str) -> int:
        return sum(1 << place for place, letter in enumerate(text) if fits(letter))

    return lambda text, places: (places & where(text)) << 1


def _union(places: Iterable[int]) -> int:
    found = 0
    for one in places:
        found |= one
    return found


def _counts(counted: "re.Match[str] | None") -> tuple[int, int | None]:
    assert counted is not None
    low = int(counted[1] or 0)
    high = low if not counted[2] else int(counted[3]) if counted[3] else None
    if max(low, high or 0) > MOST_REPEATS or (high is not None and high < low):
        raise _Malformed(f"{counted[0]} repeats more than {MOST_REPEATS} times, or ends before it begins")
    return low, high


def _repeat(step: Step, low: int, high: int | None) -> Step:
    def run(text: str, places: int) -> int:
        for _ in range(low):
            places = step(text, places)
        reached = fresh = places
        rounds = 0
        while fresh and (high is None or rounds < high - low):
            fresh = step(text, fresh) & ~reached
            reached |= fresh
            rounds += 1
        return reached

    return run


def _look_ahead(inner: Step, *, wanted: bool) -> Step:
    def run(text: str, places: int) -> int:
        kept, place = 0, 0
        while places >> place:
            if places >> place & 1 and (inner(text, 1 << place) != 0) is wanted:
                kept |= 1 << place
            place += 1
        return kept

    return run


def _boundary(text: str, places: int) -> int:
    def word(place: int) -> bool:
        return 0 <= place < len(text) and (text[place].isalnum() or text[place] == "_")

    return sum(1 << p for p in range(len(text) + 1) if places >> p & 1 and word(p - 1) != word(p))
