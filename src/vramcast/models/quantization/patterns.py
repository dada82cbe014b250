"""Names of modules as quantisation configs write them, and the layers of a model that they cover.

Four dialects are read alike: plain names and parts of names (``lm_head``, ``visual``, ``mlp.gate``), numbered ones
(``model.layers.7.self_attn``), globs (``model.layers.1.*``) and regular expressions after ``re:`` (compressed-tensors).
Checkpoints wrap the decoder differently (``model.``, ``language_model.model.`` ...), so leading wrappers are dropped on both
sides. A list of thousands of numbered names shrinks to a few names with a set of layer numbers, which is what makes this quick.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from vramcast.errors import ConfigError
from vramcast.models.quantization.expressions import Expression, compiled
from vramcast.untrusted import whole_number

_WRAPPERS = frozenset({"model", "language_model", "backbone", "transformer", "text_model", "thinker", "llm"})
_RANGES = re.compile(r"\{([0-9,-]+)\}")
# A glob with none of these meets a number (or the "{}" that stands for one) with its stars alone, which take any text.
_TELLS_NUMBERS = re.compile(r"[0-9?{}]")
_LONGEST = 2_000
_LARGEST_LAYER = 10_000


def canonical(name: str) -> str:
    """The name without the wrappers that checkpoints put before the decoder's own names."""
    parts = name.split(".")
    while len(parts) > 1 and parts[0] in _WRAPPERS:
        parts = parts[1:]
    return ".".join(parts)


class Patterns:
    """A set of module names; ``layers`` says in which layers of a block a module is one of them."""

    __slots__ = ("_blind", "_exact", "_globs", "_loose", "layers", "texts")

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        self._exact: dict[str, set[int]] = {}
        self._globs: dict[str, set[int]] = {}
        self._loose: list[Expression] = []
        self._blind: list[Expression] = []  # globs that cannot tell one number from another: one look does for all layers
        for text in self.texts:
            self._add(text)
        self.layers = lru_cache(maxsize=4096)(self._layers)

    def __bool__(self) -> bool:
        return bool(self.texts)

    def covers(self, name: str) -> bool:
        """Whether the module of that full name is one of them."""
        generic, number = numbered(canonical(name))
        return number in self._numbers(generic) or self._by_search(name) or _any_matches(self._blind, name)

    def _layers(self, prefix: str, module: str, indices: tuple[int, ...]) -> frozenset[int]:
        """Those of ``indices`` whose module (``prefix`` holds "{}" for the layer) is one of these names."""
        if _any_matches(self._blind, f"{prefix}{module}"):
            return frozenset(indices)
        exact = self._numbers(canonical(f"{prefix}{module}"))
        names = {i: f"{prefix.replace('{}', str(i), 1)}{module}" for i in indices}
        return frozenset(i for i in indices if i in exact or self._by_search(names[i]))

    def _numbers(self, generic: str) -> set[int]:
        parts = generic.split(".")
        above = (".".join(parts[: n + 1]) for n in range(len(parts)))
        globs = (numbers for glob, numbers in self._globs.items() if _as_search(glob).match(generic))
        return set().union(*(self._exact.get(name, ()) for name in above), *globs)

    def _by_search(self, name: str) -> bool:
        return _any_matches(self._loose, name)

    def _add(self, text: str) -> None:
        if checked(text).startswith("re:"):
            self._loose.append(compiled(text[3:]))
            return
        for generic, number in _written_out(canonical(text)):
            if number >= 0:
                where = self._globs if "*" in generic or "?" in generic else self._exact
                where.setdefault(generic, set()).add(number)
            else:
                glob = canonical(text)
                whole = glob != text and "*" not in glob and "?" not in glob
                (self._loose if _TELLS_NUMBERS.search(glob) else self._blind).append(_as_search(glob, whole=whole))


def _any_matches(expressions: Iterable[Expression], name: str) -> bool:
    bare = canonical(name)
    return any(expression.match(name) or expression.match(bare) for expression in expressions)


def compact(names: Iterable[str]) -> list[str]:
    """The same names, numbered ones folded into one per module: ``layers.{0-47}.mlp.gate``."""
    folded: dict[str, set[int]] = {}
    for name in names:
        generic, number = numbered(checked(name))
        folded.setdefault(generic, set()).add(number)
    return [n.replace("{}", f"{{{_spans(numbers)}}}", 1) if -1 not in numbers else n for n, numbers in folded.items()]


def checked(text: object) -> str:
    """That module name; ConfigError for what cannot be one."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise ConfigError(f"quantization_config names a module {str(text)[:60]!r}: expected a name of at most {_LONGEST} letters")
    return text


def numbered(name: str) -> tuple[str, int]:
    """The name with its first numeric part replaced by "{}", and that number (-1 when there is none)."""
    parts = name.split(".")
    for place, part in enumerate(parts):
        if part.isascii() and part.isdigit() and len(part) < 6:
            return ".".join([*parts[:place], "{}", *parts[place + 1 :]]), int(part)
    return name, -1


def _written_out(name: str) -> list[tuple[str, int]]:
    """A name with its ranges resolved: one entry per layer, the first expert standing for all of them."""
    spans = _RANGES.search(name)
    if spans is None:
        return [numbered(name)]
    generic = name.replace(spans[0], "{}", 1)
    for experts in _RANGES.finditer(generic):
        generic = generic.replace(experts[0], str(_numbers_of(experts[1])[0]), 1)
    return [(generic, number) for number in _numbers_of(spans[1])]


@lru_cache(maxsize=1024)
def _numbers_of(text: str) -> list[int]:
    found = set[int]()
    for span in set(text.split(",")):
        low, _, high = (whole_number(part) if part else None for part in (*span.partition("-"),))
        last = high if "-" in span else low
        if low is None or last is None or last > _LARGEST_LAYER:
            raise ConfigError(f"quantization_config names layers {text[:40]!r}: expected ranges such as 0-5,8")
        found.update(range(low, last + 1))
    return sorted(found)


def _spans(numbers: set[int]) -> str:
    spans: list[list[int]] = []
    for n in sorted(numbers):
        if spans and n == spans[-1][1] + 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


@lru_cache(maxsize=1024)
def _as_search(text: str, *, whole: bool = False) -> Expression:
    """A glob or part of a name as an expression for ``match``: whole parts between dots, anything before them unless numbered.

    ``whole``: the name began with the decoder's own wrappers, so nothing stands before it (Molmo's head
    "model.transformer.ff_out" is no "model.transformer.blocks.0.ff_out").
    """
    body = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in re.sub(r"\*+", "*", text))
    start = "" if whole or re.search(r"\.[\d{]", text) else r"(?:.*\.)?"
    return compiled(rf"{start}{body}(?:\.|$)")
