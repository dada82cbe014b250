"""A ``model_type`` without a family here, built by transformers on the meta device: exact tensors, kinds as far as names tell.

Needs the [torch] extra. Only classes that transformers itself ships are built: no remote code, no weights, no memory. What cannot
be told from names (recurrent states, unusual caches) is listed as unmodelled.
"""

import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.families import parts, roles
from vramcast.models.inventory import Block, Model, Tower
from vramcast.models.layers import Attention, Dense

_LAYER = re.compile(r"^(.*?)(\d+)\.(.+)$")
_MOST_LAYERS = 2_000


def read_meta(raw: Mapping[str, Any], *, path: str, refused: UnmodelledError) -> Model:
    """The model that transformers' own class makes of this config.

    Raises ``refused`` when the [torch] extra is absent or transformers has no such class, ConfigError when the class refuses
    the config.
    """
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise refused
    config, built = _build(raw, path, refused)
    named = [(name, p, "parameter" if p.requires_grad else "frozen") for name, p in built.named_parameters()]
    stacks, outer = _stacks((name, tuple(p.shape), kind) for name, p, kind in named)
    if not stacks:
        raise refused
    return _model(config, built, stacks, outer)


def _build(raw: Mapping[str, Any], path: str, refused: UnmodelledError) -> tuple[Any, Any]:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    kind = str(raw.get("model_type", ""))
    if kind not in transformers.CONFIG_MAPPING or _too_deep(raw):
        raise refused
    names = raw.get("architectures")
    wanted = getattr(transformers, str(names[0]), None) if isinstance(names, list) and names else None
    try:
        config = transformers.CONFIG_MAPPING[kind].from_dict(dict(raw))
        with torch.device("meta"):
            made = wanted(config) if wanted is not None else transformers.AutoModel.from_config(config)
    except Exception as error:  # a class may refuse a config in any way it likes
        raise ConfigError(f"{path}: transformers {transformers.__version__} cannot build this: {error!s:.300}") from error
    return config, made


def _too_deep(raw: Mapping[str, Any]) -> bool:
    sizes = [v for k, v in raw.items() if "layer" in k and isinstance(v, int)]
    return max(sizes, default=0) > _MOST_LAYERS


Sized = tuple[str, tuple[int, ...], str]


def _stacks(named: Iterable[Sized]) -> tuple[dict[str, dict[int, list[Sized]]], list[Sized]]:
    """Parameters of numbered layers by the stack they are in, and the rest."""
    stacks: dict[str, dict[int, list[Sized]]] = {}
    outer: list[Sized] = []
    for name, shape, kind in named:
        found = _LAYER.match(name)
        if found:
            stacks.setdefault(found[1], {}).setdefault(int(found[2]), []).append((found[3], shape, kind))
        else:
            outer.append((name, shape, kind))
    return stacks, outer


def _model(config: Any, built: Any, stacks: dict[str, dict[int, list[Sized]]], outer: list[Sized]) -> Model:
    text = config.get_text_config(decoder=True)
    blocks = {prefix: _blocks(prefix, layers) for prefix, layers in stacks.items()}
    main = max(blocks, key=lambda p: sum(b.elements * b.count for b in blocks[p]))
    kind = _attention(text)
    towers = tuple(Tower(name=p, kind="other", blocks=b) for p, b in blocks.items() if p != main)
    return Model(
        id="",
        family=str(config.model_type),
        architecture=type(built).__name__,
        hidden=int(_said(text, "hidden_size") or 0),
        vocab=int(_said(text, "vocab_size") or 0),
        positions=int(_said(text, "max_position_embeddings") or 0),
        dtype=str(getattr(config, "dtype", None) or "float32").removeprefix("torch."),
        tied=_is_tied(built),
        blocks=tuple(_kinds(block, kind) for block in blocks[main]),
        tensors=tuple(roles.named(*each) for each in outer),
        towers=towers,
        quantization=parts.quantization_of(_as_config(config)),
        unmodelled=(
            f"model_type {config.model_type!r} was built by transformers on the meta device: tensors are exact, attention is "
            "taken from num_attention_heads and num_key_value_heads, recurrent states and other caches are not known",
        ),
    )


def _is_tied(built: Any) -> bool:
    try:
        head, embedding = built.get_output_embeddings(), built.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return False
    return head is not None and getattr(head, "weight", None) is getattr(embedding, "weight", head)


def _as_config(config: Any) -> Any:
    from vramcast.models.config import Config

    return Config(config.to_dict())


def _blocks(prefix: str, layers: dict[int, list[Sized]]) -> tuple[Block, ...]:
    """Layers of equal tensors together."""
    alike: dict[tuple[Sized, ...], list[int]] = {}
    for index, tensors in layers.items():
        alike.setdefault(tuple(tensors), []).append(index)
    return tuple(
        Block(name=f"{prefix}{{}}.", indices=tuple(indices), tensors=tuple(roles.named(*each) for each in tensors))
        for tensors, indices in alike.items()
    )


def _said(text: Any, field: str) -> Any:
    """The field, None where the config has none or differs by layer (transformers 5 raises an error of its own then)."""
    try:
        return getattr(text, field, None)
    except Exception:
        return None


def _attention(text: Any) -> Attention | None:
    heads, hidden = _said(text, "num_attention_heads"), _said(text, "hidden_size")
    if not isinstance(heads, int) or heads < 1 or not isinstance(hidden, int):
        return None
    width = _said(text, "head_dim") or hidden // heads
    kv_heads = _said(text, "num_key_value_heads") or heads
    window = _said(text, "sliding_window") or 0
    return Attention(heads=heads, kv_heads=int(kv_heads), head_dim=int(width), window=int(window) if _slides(text) else 0)


def _slides(text: Any) -> bool:
    """Whether every layer slides; a pattern of both is taken as full, the larger cache."""
    kinds = _said(text, "layer_types")
    return isinstance(kinds, list | tuple) and set(kinds) == {"sliding_attention"}


def _kinds(block: Block, kind: Attention | None) -> Block:
    """The block with an attention kind if it has keys, and an MLP as wide as its down projection."""
    attends = any(t.role in ("k", "qkv") for t in block.tensors)
    down = next((t.shape[-1] for t in block.tensors if t.role == "down" and len(t.shape) == 2), 0)
    gated = any("gate" in t.name and t.role == "up" for t in block.tensors)
    return Block(
        name=block.name,
        indices=block.indices,
        tensors=block.tensors,
        mixers=(kind,) if kind and attends else (),
        feedforward=Dense(intermediate=down, gated=gated) if down else None,
    )
