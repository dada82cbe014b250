"""Classes of transformers whose shapes were derived from the class itself: every tensor by name, as expressions of config fields.

``derived.json`` holds a row for each, written by ``tools/build_derived.py``: the class is built on the meta device from numbers
that remember how they were computed, and the row is then held against the class on random configs. What was never tried is
refused: fields in ``only`` must have a value that was, and each of ``conditions`` must come out as it did.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.ledger import Assumption
from vramcast.models.config import Config
from vramcast.models.families import parts, roles
from vramcast.models.families.derived_fields import Fields, refuse, same
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense

ROWS = Path(__file__).with_suffix(".json")
_MOST_LAYERS = 1024


class Condition(msgspec.Struct, frozen=True, array_like=True):
    """A comparison of two expressions, how it came out, and the fields' values with which the class makes it."""

    sign: str
    left: Any
    right: Any
    outcome: bool
    when: tuple[tuple[str, Any], ...] = ()


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """One tensor: its name, its dimensions, the fields' values it is there for, whether it is trained."""

    name: str
    dims: tuple[Any, ...]
    when: tuple[tuple[str, Any], ...] = ()
    frozen: bool = False


class Stack(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Numbered layers: how many, and the tensors of those for which an expression holds (True: all).

    ``attends``: query heads, KV heads and the width of a head; ``crosses``: it attends to an encoder too.
    """

    prefix: str
    count: Any
    variants: tuple[tuple[Any, tuple[Piece, ...]], ...]
    attends: tuple[Any, Any, Any] | None = None
    crosses: bool = False
    when: tuple[tuple[str, Any], ...] = ()


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One class. ``main``: the prefix of the layers that are the model's own; ``text``: a nested config with a family of its own.

    ``window``: what the class says of ``sliding_window`` where every layer slides, as transformers' DynamicCache reads it.
    ``text`` is (path, prefix of its tensors, whether the head is tied when neither, the outer, the inner, both configs say so).
    """

    architecture: str
    generates: bool = False
    main: str = ""
    hidden: Any = 0
    vocab: Any = 0
    positions: Any = 0
    window: int = 0
    tied: tuple[str, Any] = ("", False)
    fields: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    only: dict[str, list[Any]] = {}
    conditions: tuple[Condition, ...] = ()
    tensors: tuple[Piece, ...] = ()
    stacks: tuple[Stack, ...] = ()
    text: tuple[str, str, tuple[bool, bool, bool, bool]] | None = None


def names() -> frozenset[str]:
    """Every ``model_type`` that has a row."""
    return frozenset(_rows())


def read(config: Config) -> Model:
    """The model of a config whose class has a row.

    Raises ConfigError for a damaged field and UnmodelledError for values that were never held against the class.
    """
    row = _row(config)
    model = described(config, row)
    wanted = config.architecture or row.architecture
    if wanted == row.architecture:
        return model
    added = f"{wanted[:60]} is not known here: counted is {row.architecture}, which it stands on, and nothing that it adds"
    return msgspec.structs.replace(model, architecture=wanted, unmodelled=(*model.unmodelled, added))


def described(config: Config, row: Row) -> Model:
    """The model of a config by that row. Raises as ``read`` does."""
    fields = Fields(config, row.fields, row.aliases)
    _admit(config, row, fields)
    model = _around_text(config, row, fields) if row.text else _whole(config, row, fields)
    return msgspec.structs.replace(model, assumed=(*model.assumed, *_assumed(config, row, fields)))


def _assumed(config: Config, row: Row, fields: Fields) -> Iterator[Assumption]:
    """Sizes that the config leaves to its class. Raises ConfigError where it says none at all."""
    if fields.sizes and not any(fields.sizes.values()) and not row.text:
        names = ", ".join([*fields.sizes][:3])
        raise ConfigError(f"{config.path} has no {names}: is this the config.json of a complete model?")
    for path, said in fields.sizes.items():
        if not said:
            yield Assumption(
                name=path, value=fields.value(path), because=f"the config leaves it out; {row.architecture} has it so"
            )


def _row(config: Config) -> Row:
    kind = config.text("model_type")
    rows = msgspec.json.decode(_rows()[kind], type=list[Row])
    wanted = config.architecture or rows[0].architecture
    alike = [row for row in rows if row.architecture == wanted]
    alike = alike or [
        row
        for row in rows
        if row.architecture.endswith("Model") and wanted.startswith(f"{row.architecture.removesuffix('Model')}For")
    ]
    if not alike:
        known = ", ".join(row.architecture for row in rows)
        raise UnmodelledError(
            f"{config.path}: {wanted[:80]} of model_type {kind!r} is not known here, only {known}: "
            "point at its safetensors files, whose headers are exact, or install the [torch] extra"
        )
    return next((row for row in alike[:-1] if _fits(config, row)), alike[-1])


def _fits(config: Config, row: Row) -> bool:
    """Whether that row, of several of one class, is the one that was derived for such values."""
    fields = Fields(config, row.fields, row.aliases)
    told = all(any(same(fields.value(path), each) for each in admitted) for path, admitted in row.only.items())
    return told and next(unmet(row, fields), None) is None


def _admit(config: Config, row: Row, fields: Fields) -> None:
    for path, admitted in row.only.items():
        value = fields.value(path)
        if not any(same(value, each) for each in admitted):
            raise refuse(config, path, value, admitted)
    broken = next(unmet(row, fields), None)
    if broken:
        raise UnmodelledError(
            f"{config.path}: {_spelled((broken.sign, broken.left, broken.right))} is {not broken.outcome} here, and was "
            f"{broken.outcome} where the shapes of {row.architecture} were derived: point at its safetensors files, whose "
            "headers are exact"
        )


def unmet(row: Row, fields: Fields) -> Iterator[Condition]:
    """Comparisons that come out otherwise than where the row was derived."""
    for each in row.conditions:
        if _holds(each.when, fields) and bool(fields.of((each.sign, each.left, each.right))) != each.outcome:
            yield each


def _spelled(how: Any) -> str:
    """An expression as people write it."""
    if not isinstance(how, list | tuple):
        return str(how)
    sign, *given = how
    inner = [f"({_spelled(g)})" if isinstance(g, list | tuple) else str(g) for g in given]
    return f" {sign} ".join(inner) if len(inner) == 2 else f"{sign} {inner[0]}"


def _holds(when: tuple[tuple[str, Any], ...], fields: Fields) -> bool:
    return all((fields.value(path) is not None) if value == "set" else same(fields.value(path), value) for path, value in when)


def _sized(piece: Piece, fields: Fields, config: Config) -> Tensor:
    shape = tuple(fields.of(each) for each in piece.dims)
    for each in shape:
        if not isinstance(each, int) or not 0 <= each < 2**40:
            raise ConfigError(
                f"{config.path}: {piece.name} would be {' x '.join(map(str, shape))}: its fields do not fit together"
            )
    return roles.named(piece.name, shape, "frozen" if piece.frozen else "parameter")


def _blocks(stack: Stack, row: Row, fields: Fields, config: Config) -> Iterator[Block]:
    """The layers of a stack, equal ones together."""
    count = fields.of(stack.count)
    if not isinstance(count, int) or not 0 <= count <= _MOST_LAYERS:
        raise ConfigError(f"{config.path}: {_spelled(stack.count)} is {count}, expected 0 to {_MOST_LAYERS} layers")
    if not _holds(stack.when, fields):
        return
    left = [*range(count)]
    for at, pieces in stack.variants:
        mine = [i for i in left if at is True or fields.of(at, i, count)]
        left = [i for i in left if i not in mine]
        tensors = tuple(_sized(p, fields, config) for p in pieces if _holds(p.when, fields))
        if mine:
            yield _block(stack, row, tuple(mine), tensors, fields)
    if left:
        raise UnmodelledError(f"{config.path}: layer {left[0]} of {stack.prefix!r} is of a kind that was never derived")


def _block(stack: Stack, row: Row, indices: tuple[int, ...], tensors: tuple[Tensor, ...], fields: Fields) -> Block:
    kind = _attention(stack, row, tensors, fields)
    down = next((t.shape[-1] for t in tensors if t.role == "down" and len(t.shape) == 2), 0)
    gated = any("gate" in t.name and t.role == "up" for t in tensors)
    return Block(
        name=f"{stack.prefix}{{}}.",
        indices=indices,
        tensors=tensors,
        mixers=(kind,) if kind else (),
        cross=msgspec.structs.replace(kind, causal=False) if kind and stack.crosses else None,
        feedforward=Dense(intermediate=down, gated=gated) if down else None,
    )


def _attention(stack: Stack, row: Row, tensors: tuple[Tensor, ...], fields: Fields) -> Attention | None:
    if stack.attends is None or not any(t.role in ("k", "qkv") for t in tensors):
        return None
    heads, kv_heads, width = (fields.of(each) for each in stack.attends)
    if not all(isinstance(each, int) and each > 0 for each in (heads, kv_heads, width)):
        raise ConfigError(
            f"{row.architecture}: {heads} query heads, {kv_heads} KV heads of {width}: its fields do not fit together"
        )
    writes = row.generates and stack.prefix == row.main
    said = fields.said("sliding_window", row.window) if writes else 0
    window = said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else 0
    return Attention(heads=heads, kv_heads=kv_heads, head_dim=width, causal=writes, window=window if row.window else 0)


def _parts_of(row: Row, fields: Fields, config: Config) -> tuple[tuple[Block, ...], tuple[Tensor, ...], tuple[Tower, ...]]:
    """The model's own layers, its tensors outside of any, and what stands beside: by the first words of their names."""
    outer = tuple(_sized(p, fields, config) for p in row.tensors if _holds(p.when, fields))
    main: tuple[Block, ...] = ()
    beside: dict[str, list[Block]] = {}
    kinds: dict[str, str] = {}
    for stack in row.stacks:
        blocks = tuple(_blocks(stack, row, fields, config))
        if stack.prefix == row.main:
            main = blocks
        elif blocks:
            beside.setdefault(_tower(stack.prefix), []).extend(blocks)
            kinds.setdefault(_tower(stack.prefix), _kind(stack.prefix))
    kept = tuple(t for t in outer if _tower(t.name) not in beside)
    towers = (
        Tower(name=name, kind=kinds[name], blocks=tuple(blocks), tensors=tuple(t for t in outer if _tower(t.name) == name))
        for name, blocks in beside.items()
    )
    return main, kept, tuple(towers)


def _tower(name: str) -> str:
    """The part a tensor belongs to: "model.vision_tower.encoder.layers.0..." is of "model.vision_tower."."""
    words = name.split(".")
    return ".".join(words[: 2 if words[0] in ("model", "base_model") and len(words) > 2 else 1]) + "."


_KINDS = {
    **dict.fromkeys(("vis", "image", "vq"), "vision"),
    **dict.fromkeys(("audio", "speech", "codec", "acoustic"), "audio"),
    "encoder": "encoder",
}


def _kind(name: str) -> str:
    return next((kind for word, kind in _KINDS.items() if word in name), "other")


def _whole(config: Config, row: Row, fields: Fields) -> Model:
    blocks, tensors, towers = _parts_of(row, fields, config)
    path, tied = row.tied
    own = parts.said_of_itself(config)
    return Model(
        id="",
        hidden=fields.of(row.hidden),
        vocab=fields.of(row.vocab),
        tied=_holds(((path, True),), fields) if path else bool(tied),
        blocks=blocks,
        tensors=tensors,
        towers=towers,
        unmodelled=_untold(row, blocks),
        **{**own, "architecture": row.architecture, "positions": fields.of(row.positions) or own["positions"]},
    )


def _untold(row: Row, blocks: tuple[Block, ...]) -> tuple[str, ...]:
    """What the shapes alone do not tell of a class that writes."""
    if not row.generates:
        return ()
    if not blocks or not all(b.mixers for b in blocks):
        return (f"{row.architecture}: its tensors are exact, how it attends is not known here: its cache is not counted",)
    others = (s.prefix for s in row.stacks if s.attends and s.prefix != row.main and "decoder" in s.prefix)
    return tuple(f"{name}: what it keeps while it writes is not counted" for name in others if _kind(name) == "other")


def _around_text(config: Config, row: Row, fields: Fields) -> Model:
    """A decoder that has a family of its own, with the towers of this class."""
    from vramcast.models.families import wrapper

    path, prefix, ties = row.text or ("", "", (False,) * 4)
    text = wrapper.text_of(config, fields.value(f"{path}.model_type"), path)
    outer = bool(fields.value("tie_word_embeddings"))
    inner = bool(text.flag("tie_word_embeddings", default=False))
    said = Config(
        {**config.raw, "tie_word_embeddings": ties[2 * inner + outer], "architectures": [row.architecture]}, config.path
    )
    whole = wrapper.wrap(said, text, prefix=prefix, towers=())
    blocks, tensors, towers = _parts_of(row, fields, config)
    if blocks:
        towers = (*towers, Tower(name=row.main, kind=_kind(row.main), blocks=blocks))
    return msgspec.structs.replace(whole, tensors=(*whole.tensors, *tensors), towers=(*whole.towers, *towers))


@cache
def _rows() -> Mapping[str, msgspec.Raw]:
    return msgspec.json.decode(ROWS.read_bytes(), type=dict[str, msgspec.Raw]) if ROWS.is_file() else {}
