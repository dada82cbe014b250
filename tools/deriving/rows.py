"""From builds of a class to its row: stacks, what single fields switch, and what is refused."""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import classes
import folding
from tracing import Trace, build

from vramcast.errors import VramcastError
from vramcast.models.config import Config
from vramcast.models.families import model_types
from vramcast.models.families.derived import Condition, Piece, Row, Stack
from vramcast.models.families.derived_fields import Fields

Raw = dict[str, Any]


def get(raw: Raw, path: str) -> Any:
    """The value at a path of a nested config; None where there is none."""
    found: Any = raw
    for step in path.split("."):
        entry = isinstance(found, list | tuple)
        found = found[int(step)] if entry else found.get(step) if isinstance(found, dict) else None
    return found


def flat(raw: Raw, path: str = "") -> dict[str, Any]:
    """Every field of a nested config by path."""
    found: dict[str, Any] = {}
    for name, value in raw.items():
        found |= flat(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return found


def put(raw: Raw, path: str, value: Any) -> Raw:
    """A copy with another value there, lists over the layers left to the class where a depth changed."""
    out = copy.deepcopy(raw)
    *nodes, last = path.split(".")
    node: Any = out
    for step in nodes:
        node = node.setdefault(step, {})
    if isinstance(node, list):
        node[int(last)] = value
        return out
    node[last] = value
    if classes.is_depth(path):
        for name in classes.PATTERNS:
            node.pop(name, None)
    return out


@dataclass
class Study:
    """What is known of one class so far."""

    model_type: str
    cls: Any
    raw: Raw
    base: Trace
    seen: list[tuple[Raw, Trace, frozenset[str]]] = field(default_factory=list)
    prefixes: dict[str, Any] = field(default_factory=dict)
    guesses: dict[tuple[str, int], Any] = field(default_factory=dict)
    forced: dict[str, str] = field(default_factory=dict)
    built: dict[str, Trace | None] = field(default_factory=dict)

    def tried(self, raw: Raw) -> Trace | None:
        """The class built from that config, None when it refuses."""
        key = json.dumps(raw, sort_keys=True, default=str)
        if key not in self.built:
            try:
                self.built[key] = build(self.cls, raw)
            except Exception:  # a class refuses a config in any way it likes
                self.built[key] = None
        found = self.built[key]
        return self._guessed(found) if found and self.guesses else found

    def _guessed(self, trace: Trace) -> Trace:
        """The trace with what was found out of dimensions whose making was not seen."""
        how = {
            name: tuple(self.guesses.get((everywhere(name), i), d) if isinstance(d, int) else d for i, d in enumerate(dims))
            for name, dims in trace.how.items()
        }
        return replace(trace, how=how)


def everywhere(name: str) -> str:
    """A tensor's name with its numbers left open."""
    return re.sub(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)", "{}", name)


def find_unseen(study: Study) -> None:
    """Dimensions that were computed out of sight: the expression, met elsewhere in the class, that changes as they do."""
    known = dict.fromkeys(d for dims in study.base.how.values() for d in dims if not isinstance(d, int))
    for path, value in study.base.fields.items():
        if isinstance(value, bool) or not isinstance(value, int) or classes.is_depth(path):
            continue
        for other in (value * 2, value + 1, value // 2):
            raw = put(study.raw, path, other)
            trace = study.tried(raw) if other > 0 else None
            if trace is not None:
                _note_forced(study, trace, path)
                if trace.how.keys() == study.base.how.keys():
                    _guess(study, trace, raw, {path: None} | known)
                break
    study.base = study.tried(study.raw) or study.base


def _note_forced(study: Study, trace: Trace, path: str) -> None:
    """Fields that the config class itself makes equal to this one, whatever they say."""
    base, made = study.base.fields, trace.fields
    for other, value in base.items():
        if other != path and value == base[path] and made.get(other) == made[path] != value:
            study.forced.setdefault(other, path)


def _guess(study: Study, trace: Trace, raw: Raw, known: dict[Any, None]) -> None:
    before, after = (Fields(Config(each), dict.fromkeys(study.base.fields), {}) for each in (study.raw, raw))
    for name, shape in trace.shapes.items():
        for i, (old, new) in enumerate(zip(study.base.shapes[name], shape, strict=False)):
            how, key = study.base.how[name][i], (everywhere(name), i)
            if old == new or not isinstance(how, int) or key in study.guesses:
                continue
            fit = next((each for each in known if _value(before, each) == old and _value(after, each) == new), None)
            if fit is not None:
                study.guesses[key] = fit


def _value(fields: Fields, how: Any) -> Any:
    try:
        return fields.of(how)
    except VramcastError:
        return None


def begin(model_type: str, cls: Any, deep: frozenset[str]) -> Study:
    """The study of a class from its smallest config that builds, fields in ``deep`` as the class has them."""
    for raw in (classes.beginning(model_type, deep), classes.default(model_type)):
        try:
            study = Study(model_type, cls, raw, build(cls, raw))
            find_unseen(study)
            return study
        except Exception as error:  # the next config may do
            failed = error
    raise LookupError(f"{model_type}: {type(failed).__name__}: {str(failed)[:150]}")


class UnruledError(LookupError):
    """No rule tells the layers under a prefix apart."""

    def __init__(self, prefix: str) -> None:
        super().__init__(f"no rule tells the layers of {prefix!r} apart")
        self.prefix = prefix


def find_depths(study: Study) -> None:
    """Which fields count layers of which stacks."""
    study.seen = [(study.raw, study.base, frozenset())]
    slopes: dict[str, dict[Any, int]] = {}
    for how, path, value in _numbers(study):
        for step in (1, 2, 3):
            raw = put(study.raw, path, value + [value[-1]] * step if isinstance(value, list) else value + step)
            grown = study.tried(raw)
            if grown is not None:
                _note_growth(study, (raw, grown), how, step, slopes)
                break
    outer = {p: s for p, s in slopes.items() if not any(p != q and p.startswith(q) for q in slopes)}
    study.prefixes = {p: _count(study, p, s) for p, s in outer.items()}


def _numbers(study: Study) -> Iterator[tuple[Any, str, Any]]:
    """What might count layers: (its expression, the field to change, its value); whole numbers and lengths of lists."""
    for path, value in study.base.fields.items():
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 64 and _may_count(study, path, value):
            yield path, path, value
        elif isinstance(value, list | tuple) and 0 < len(value) <= 8:
            if "depth" in path or "layers" in path or "blocks" in path:
                numbers = ((f"{path}.{i}", v) for i, v in enumerate(value) if isinstance(v, int) and not isinstance(v, bool))
                yield from ((p, p, v) for p, v in numbers if 0 < v <= 64)
            yield ("len", path), path, [*value]


def _note_growth(study: Study, grown: tuple[Raw, Trace], how: Any, step: int, slopes: dict[str, dict[Any, int]]) -> None:
    prefixes = folding.growing(study.base, grown[1])
    for prefix in prefixes:
        more = grown[1].counts.get(prefix, 0) - study.base.counts[prefix]
        if more % step == 0:
            slopes.setdefault(prefix, {})[how] = more // step
    if prefixes:
        study.seen.append((*grown, frozenset(prefixes)))


def _may_count(study: Study, path: str, value: int) -> bool:
    """Whether some stack has about as many layers, or the field is called like one that counts them."""
    counts = {*study.base.counts.values()}
    return classes.is_depth(path) or any(abs(value - c) <= 1 or (c and c % value == 0 and value > 1) for c in counts)


def _count(study: Study, prefix: str, slopes: dict[Any, int]) -> Any:
    how: Any = None
    left = study.base.counts[prefix]
    for path, slope in slopes.items():
        term = path if slope == 1 else ["*", path, slope]
        left -= slope * (len(get(study.raw, path[1])) if isinstance(path, tuple) else get(study.raw, path))
        how = term if how is None else ["+", how, term]
    return ["+", how, left] if left else how


def plain(how: Any) -> Any:
    """An expression without steps that do nothing."""
    if not isinstance(how, list | tuple):
        return how
    sign, *given = how[0], *(plain(each) for each in how[1:])
    if all(isinstance(each, int | float) for each in given) and sign in "+-*//**%" and len(given) == 2:
        return {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
                "/": lambda a, b: a / b, "%": lambda a, b: a % b, "**": lambda a, b: a**b}[sign](*given)  # fmt: skip
    if sign == "//" and isinstance(given[0], tuple) and given[0][0] == "*" and given[1] in given[0][1:]:
        return given[0][1] if given[1] == given[0][2] else given[0][2]
    if sign in ("*", "//") and given[1] == 1 and isinstance(given[1], int):
        return given[0]
    if sign in ("*", "+") and given[0] == {"*": 1, "+": 0}[sign] and isinstance(given[0], int):
        return given[1]
    if sign in ("+", "-") and given[1] == 0 and isinstance(given[1], int):
        return given[0]
    return (sign, *given)


def _pieces(signature: folding.Signature) -> tuple[Piece, ...]:
    return tuple(Piece(name, tuple(plain(d) for d in dims), (), frozen) for name, dims, frozen in signature)


def row_of(study: Study, trace: Trace, seen: list[tuple[Raw, Trace, frozenset[str]]], drop: str | None) -> Row:
    """The row of one build, whatever switches left as they are. ``drop``: a prefix of tensors that another family reads."""
    prefixes = {p for p in study.prefixes if drop is None or not p.startswith(drop)}
    stacks = []
    for prefix in sorted(prefixes):
        found = folding.kinds([(r, t) for i, (r, t, grown) in enumerate(seen) if not i or prefix in grown], prefix)
        if found is None:
            raise UnruledError(prefix)
        if found:
            variants = tuple((rule, _pieces(held)) for rule, held in found)
            attends, crosses = _heads(trace, prefix)
            count = study.prefixes[prefix]
            stacks.append(Stack(prefix=prefix, count=count, variants=variants, attends=attends, crosses=crosses))
    outer = folding.rest(trace, prefixes)
    if drop is not None:
        outer = tuple(each for each in outer if not each[0].startswith(drop) and each[0] != "lm_head.weight")
    return Row(architecture=study.cls.__name__, tensors=_pieces(outer), stacks=tuple(stacks))


def _heads(trace: Trace, prefix: str) -> tuple[Any, bool]:
    inside = {name[len(prefix) :].partition(".")[2]: h for name, h in trace.heads.items() if name.startswith(prefix)}
    crosses = [n for n in inside if any(w in n.lower() for w in ("cross", "encoder_attn", "encdec"))]
    own = next((h for n, h in inside.items() if n not in crosses and all(each is not None for each in h)), None)
    return (tuple(plain(each) for each in own) if own else None), bool(crosses)


def text_of(study: Study) -> tuple[str, str] | None:
    """(path, prefix) of a nested config whose class has a family of its own here."""
    for path, prefixes in study.base.parts.items():
        kind = get(study.raw, f"{path}.model_type")
        if kind in set(model_types()) and "text" in path and len(prefixes) == 1 and _is_decoder(kind):
            return path, prefixes[0]
    return None


# Kinds whose own families read more than a decoder, or whose caches differ by layer in a way that a wrapper does not carry over.
_NOT_NESTED = {"bart", "bert", "modernbert", "gemma3n_text"}


def _is_decoder(kind: str) -> bool:
    return kind in classes.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in _NOT_NESTED


def main_of(row: Row, study: Study) -> str:
    """The prefix of the layers that are the model's own: those that write, else the largest."""

    def weight(stack: Stack) -> tuple[bool, bool, int]:
        held = sum(_size(study.base.shapes, f"{stack.prefix}{i}.") for i in range(64))
        name = f".{stack.prefix}"
        named = any(w in name for w in (".decoder.", "language_model", "text_model", "text_decoder", "lm."))
        beside = any(w in name for w in ("vision", "image", "audio", "speech", "projector", "codec", "timestamp", "tokenizer"))
        return named and classes.writes(study.cls, study.model_type), not beside, held

    return max(row.stacks, key=weight).prefix if row.stacks else ""


def _size(shapes: dict[str, tuple[int, ...]], prefix: str) -> int:
    total = 0
    for name, shape in shapes.items():
        if name.startswith(prefix):
            size = 1
            for each in shape:
                size *= each
            total += size
    return total


def paths_in(how: Any) -> Iterator[str]:
    """Every field that an expression looks at."""
    if isinstance(how, str) and how not in ("#", "##"):
        yield how
    elif isinstance(how, list | tuple):
        if how and how[0] in ("at", "in", "len"):
            yield how[1]
            return
        for each in how[1:]:
            yield from paths_in(each)


def conditions(trace: Trace, when: tuple[tuple[str, Any], ...] = ()) -> tuple[Condition, ...]:
    """Comparisons of fields that the class made while it was built, once each; remainders of division by one left out."""
    plainly = {(sign, plain(left), plain(right)): outcome for sign, left, right, outcome in trace.conditions}
    return tuple(
        Condition(*sides, outcome, when)
        for sides, outcome in plainly.items()
        if any(True for _ in paths_in(sides)) and not (isinstance(sides[1], tuple) and sides[1][0] == "%" and sides[1][2] == 1)
    )
