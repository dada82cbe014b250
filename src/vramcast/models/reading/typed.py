"""A family and a size as people type them (``llama 70b``, ``mistral nemo 12b``): the maker's current model of that size.

Only what is in the name decides: every typed word is a word of the model's id, or the family's short name means a model of that
size. What else the words could have meant is said beside it; a name that fits nothing so is left to be refused.
"""

import re
from functools import cache

from vramcast.models import reading
from vramcast.models.names import take_apart
from vramcast.models.reading.known import generation, is_by_maker, short_name

_SIZE = re.compile(r"(?:\d+x)?\d[\d.]*[bmt]")
_WORD = re.compile(r"\d+x\d[\d.]*[bmt]|[ae]?\d[\d.]*[bmt](?![a-z])|[a-z]+|\d[\d.]*")
# Words of an id that make it no other model than the one its family and size name.
_PLAIN = frozenset({"instruct", "it", "chat", "hf", "meta", "pt", "base", "small", "nvidia"})
_ACTIVE = re.compile(r"a\d[\d.]*b|\d[\d.]*")
_NEAR = 0.06  # of a size: 14.7 B parameters are called 14b


def current(name: str) -> tuple[str, tuple[str, ...]] | None:
    """The id that a typed family and size mean today, and up to two others that the words could mean; None for other names."""
    asked = _WORD.findall(re.sub(r"(?<![a-z0-9])v(?=\d)", "", name.lower()))
    sizes = {word for word in asked if _SIZE.fullmatch(word)}
    if "/" in name or len(sizes) != 1 or len(set(asked) - sizes) == 0 or take_apart(name).ending:
        return None
    found = [one for one in _makers_own() if _named_by(frozenset(asked), one)]
    found.sort(key=lambda one: (_extra(frozenset(asked), one), -generation(one), len(one), one.lower()))
    short = _short(asked, sizes.pop())
    ids = list(dict.fromkeys([*([short] if short else []), *found]))
    return (ids[0], tuple(ids[1:3])) if ids else None


def _short(asked: list[str], size: str) -> str | None:
    """What the family's short name means, where that model has the size typed beside it."""
    family = "".join(word for word in asked if word != size and word not in _PLAIN - {"small"})
    meant = short_name(family)
    model = reading.load(meant) if meant else None
    if model is None or "x" in size:
        return None
    number = float(size[:-1]) * {"b": 1e9, "m": 1e6, "t": 1e12}[size[-1]]
    return meant if abs(model.parameters - number) <= _NEAR * number else None


@cache
def _makers_own() -> tuple[str, ...]:
    """Ids of organisations that publish their own models, unquantised."""
    return tuple(one for one in reading.known_ids() if is_by_maker(one) and not take_apart(one).ending)


@cache
def _words(one: str) -> frozenset[str]:
    return frozenset(_WORD.findall(re.sub(r"(?<![a-z0-9])v(?=\d)", "", one.lower().rpartition("/")[2])))


def _named_by(asked: frozenset[str], one: str) -> bool:
    own = _words(one)
    return asked <= own and all(word in _PLAIN or _ACTIVE.fullmatch(word) for word in own - asked)


def _extra(asked: frozenset[str], one: str) -> int:
    """Words of the id that were not typed and are no release, activity or tuning."""
    return sum(word == "small" for word in _words(one) - asked)
