"""Fields that switch tensors on and off: a row that holds for one value joined with the row that holds for another."""

from functools import partial
from typing import Any

import msgspec

from vramcast.models.families.derived import Piece, Row, Stack
from vramcast.models.families.derived_fields import same

When = tuple[str, Any]


def joined(one: Row, other: Row, base: When, switched: When, firsts: dict[str, Any]) -> Row:
    """The row for both values of a field; ``firsts`` are the values that ``one`` was derived with.

    Raises LookupError where their layers are told apart by other rules.
    """
    union = partial(_union, base=base, switched=switched, firsts=firsts)
    stacks = {s.prefix: s for s in other.stacks}
    found = []
    for stack in one.stacks:
        twin = stacks.pop(stack.prefix, None)
        if stack.when:
            found.append(stack)
        elif twin is None:
            found.append(msgspec.structs.replace(stack, when=(base,)))
        else:
            found.append(_both(stack, twin, base[0], union))
    found += [msgspec.structs.replace(s, when=(switched,)) for s in stacks.values()]
    return msgspec.structs.replace(one, tensors=union(one.tensors, other.tensors), stacks=tuple(found))


def _both(one: Stack, other: Stack, path: str, union: Any) -> Stack:
    rules, others = ([rule for rule, _ in each.variants] for each in (one, other))
    if rules != others:
        raise LookupError(f"{path} changes which layers of {one.prefix!r} are of which kind")
    pairs = zip(one.variants, other.variants, strict=True)
    variants = tuple((rule, union(mine, theirs)) for (rule, mine), (_, theirs) in pairs)
    return msgspec.structs.replace(one, variants=variants)


def _union(
    one: tuple[Piece, ...], other: tuple[Piece, ...], *, base: When, switched: When, firsts: dict[str, Any]
) -> tuple[Piece, ...]:
    bare = {_bare(p) for p in other}
    known = {_bare(p) for p in one}
    kept = (p if _switched(p, firsts) or _bare(p) in bare else _also(p, base) for p in one)
    return (*kept, *(_also(p, switched) for p in other if _bare(p) not in known))


def _bare(piece: Piece) -> Any:
    return msgspec.json.encode((piece.name, piece.dims, piece.frozen))


def _also(piece: Piece, when: When) -> Piece:
    return msgspec.structs.replace(piece, when=(*piece.when, when))


def _switched(piece: Piece, firsts: dict[str, Any]) -> bool:
    """Whether the piece is there only when some field differs from its first value."""
    return any(not same(value, firsts.get(path)) for path, value in piece.when)
