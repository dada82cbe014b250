"""Made-up rows of published data sets: their columns, as long as theirs, with words that mean nothing.

``data_sets.toml`` says what a column is. KIND:NUMBER, the number being of words unless it says otherwise:

text, words (one word each), chat (messages of two turns), asked and replied (one message), pictured (messages whose first
holds a picture), turns (a question and an answer), sharegpt and said (from and value, of human and gpt, of user and
assistant), hh, guanaco, llama, sum and boxed (text in the form that such sets have), passages; label:K, labelfrom1:K, int:K,
index, id, float, bool, zero, just:N; tags:K:COLUMN (as many as that column has); first:COLUMN (its first words); image:WxH,
grey:WxH, encoded:WxH (the bytes of a picture's file), audio:RATExSECONDS, box:SIDE. ["...", N] is a list of N, a table a record.
"""

import itertools
import math
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec

from vramcast.tracing.published.words import WORDS

Kind = Any  # a string, a list of one kind and a number, or a table of kinds

_SPREAD = 0.6  # standard deviation of the logarithm of a text's length; texts of the sets listed lie between 0.4 and 0.9
_MOST_ROWS, _MOST_SOUNDS = 2048, 128
_GOLDEN = 0.6180339887498949
_FORMS = {
    "hh": "\n\nHuman: {}\n\nAssistant: {}",
    "guanaco": "### Human: {}### Assistant: {}",
    "llama": "<s>[INST] {} [/INST] {} </s>",
    "sum": "{} {}\n#### 42",
    "boxed": "{} {} \\boxed{{42}}",
}


class DataSet(NamedTuple):
    """A published data set: the id that it was found by, its columns, and the rows of each split.

    ``like``: the set whose rows these are, where its own are not listed. ``among``: columns of sets like it stand among its own.
    ``configuration``: the one asked for, where it is not known by name.
    """

    id: str
    columns: dict[str, Kind]
    splits: dict[str, int]
    like: str = ""
    among: bool = False
    configuration: str = ""

    @property
    def rows(self) -> str:
        """What rows are made up, in words."""
        own = f"rows like those of {self.like}" if self.like else "rows like its own"
        more = "; its own columns, labels and splits may differ" if self.like else ", with columns of sets like it" * self.among
        other = f"; its configuration {self.configuration!r} is not known by name and taken to be like the others"
        return f"{own} are made up, their lengths about as usual{more}{other if self.configuration else ''}"


_PLAIN = frozenset({"default", "plain_text"})  # what the hub calls the only configuration of a set


def data_set(path: str, name: str | None = None) -> DataSet | None:
    """The set of that path, and of that configuration where it has several; None where it is not known, or asks for one."""
    known, lower = _known(), path.lower()
    places = [lower] if "/" in lower or not lower else [lower, f"/{lower}"]
    exact = next((known[f"{place}:{name.lower()}"] for place in places if name and f"{place}:{name.lower()}" in known), None)
    found = exact or next((known[place] for place in places if place in known), None)
    if found is None or exact is not None or not name or name.lower() in _PLAIN:
        return found
    return found._replace(configuration=name)


@cache
def _known() -> dict[str, DataSet]:
    """The sets by their ids in lower case, and by those without their organisation."""
    rows = msgspec.toml.decode(files(__package__).joinpath("data_sets.toml").read_text())["set"]
    sets = [
        *(
            DataSet(each, row["columns"], row["splits"], among="like" in row and "own" not in row)
            for row in rows
            for each in row["ids"]
        ),
        *(DataSet(each, row["columns"], row["splits"], like=row["ids"][0]) for row in rows for each in row.get("like", ())),
    ]
    whole = {made.id.lower(): made for made in sets}
    short = {f"/{lower.partition('/')[2]}": made for lower, made in reversed(whole.items()) if "/" in lower}
    return whole | short


def rows_made(asked: DataSet, declared: int) -> int:
    """How many rows are made of so many; fewer of sounds, which are large."""
    sounds = any(str(kind).startswith("audio") for kind in asked.columns.values())
    return min(declared, _MOST_SOUNDS if sounds else _MOST_ROWS)


def row(columns: dict[str, Kind], number: int) -> dict[str, Any]:
    """The row of that number, with numbers, texts, lists and tables; pictures and sounds as what ``value`` says of them."""
    made: dict[str, Any] = {}
    for column, kind in columns.items():
        made[column] = value(kind, number, made)
    return made


def value(kind: Kind, number: int, before: dict[str, Any]) -> Any:
    """One value of a kind; a picture is (width, height, channels), a sound (rate, seconds)."""
    if isinstance(kind, dict):
        return {name: value(part, number, before) for name, part in kind.items()}
    if isinstance(kind, list):
        return _several(kind, number, before)
    name, _, size = str(kind).partition(":")
    if name in _NUMBERS:
        return _NUMBERS[name](number, int(size or 1))
    if name in {"image", "grey"}:
        return (*map(int, size.split("x")), 3 if name == "image" else 1)
    if name == "encoded":
        return (*map(int, size.split("x")), 3, "PNG")
    if name == "audio":
        return tuple(map(int, size.split("x")))
    if name == "first":
        return " ".join(str(before[size]).split()[:3])
    return _texts(name, int(size or 1), number)


_NUMBERS: dict[str, Callable[[int, int], Any]] = {
    "label": lambda number, kinds: number % kinds,
    "labelfrom1": lambda number, kinds: 1 + number % (kinds - 1),
    "int": lambda number, most: 1 + number * 7 % most,
    "index": lambda number, _: number,
    "id": lambda number, _: f"{number:06d}",
    "float": lambda number, _: number * _GOLDEN % 1,
    "bool": lambda number, _: number % 2 == 0,
    "zero": lambda _, __: 0,
    "just": lambda _, most: most,
    "box": lambda _, side: [10.0, 10.0, float(side), float(side)],
}


def _several(kind: list[Any], number: int, before: dict[str, Any]) -> list[Any]:
    part, *count = kind
    name, _, rest = part.partition(":") if isinstance(part, str) else ("", "", "")
    if name == "words":
        return text(int(rest), number).split()
    if name == "tags":
        kinds, _, column = rest.partition(":")
        return [(number + place) % int(kinds) for place in range(len(before[column]))]
    return [value(part, number + place, before) for place in range(count[0] if count else 1)]


def text(words: int, number: int) -> str:
    """A text of about so many words: its length by the row's number, spread as such texts are, the median ``words``."""
    length = words_of(words, number)
    start = number * 5 % len(WORDS)
    return " ".join(itertools.islice(itertools.cycle(WORDS), start, start + length)).capitalize() + ("." if length > 2 else "")


def words_of(median: int, number: int) -> int:
    """The length of a row's text: lognormal, every number another quantile."""
    if median <= 3:
        return median
    quantile = min(max((number + 0.5) * _GOLDEN % 1, 0.001), 0.999)
    return max(1, round(median * math.exp(_SPREAD * NormalDist().inv_cdf(quantile))))


def _texts(name: str, words: int, number: int) -> Any:
    question, answer = text(max(words // 4, 1), number), text(max(words * 3 // 4, 1), number + 1)
    if name in _FORMS:
        return _FORMS[name].format(question, answer)
    asked, replied = {"role": "user", "content": question}, {"role": "assistant", "content": answer}
    forms: dict[str, Any] = {
        "chat": [asked, replied],
        "asked": [asked | {"content": text(words, number)}],
        "replied": [replied | {"content": text(words, number)}],
        "sharegpt": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}],
        "said": [{"from": "user", "value": question}, {"from": "assistant", "value": answer}],
        "turns": [{"user": question, "assistant": answer, "source": "made up"}],
        "passages": [{"docid": f"{number + n}", "title": text(2, n), "text": text(56, number + n)} for n in range(words)],
        "pictured": _pictured(question, answer),
    }
    if name not in forms and name != "text":
        raise ValueError(f"{name!r} is no kind of column")
    return forms[name] if name in forms else text(words, number)


def _pictured(question: str, answer: str) -> list[dict[str, Any]]:
    picture, said = {"type": "image", "text": None, "index": 0}, {"type": "text", "index": None}
    return [
        {"role": "user", "content": [said | {"text": question}, picture]},
        {"role": "assistant", "content": [said | {"text": answer}]},
    ]
