"""A Model from tensor names and shapes alone, for one without a family: exact weights, a cache that says what it assumes.

Names follow the habits of published checkpoints: ``<prefix>.<layer>.<module>.weight``, experts numbered inside a layer.
Attention is taken from config.json where its widths agree with the key projections that are stored.
"""

import re
from collections.abc import Mapping
from typing import Any

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.inventory import Block, Mixer, Model, Stored, Tensor, Tower
from vramcast.models.layers import Attention
from vramcast.units import HEADER_BITS, HEADER_FLOATS

_LAYER = re.compile(r"(.*?\.)(\d{1,4})\.(.+)")
_EXPERT = re.compile(r"(.*?experts?\.)(\d{1,4})\.(.+)")
_PACKED = frozenset({"I32", "U32", "U8", "F4", "F6_E2M3", "F6_E3M2"})

#: Words in a name, the role they mean and the axis tensor parallelism cuts; the first that is found decides.
_ROLES: tuple[tuple[str, str, int | None], ...] = (
    (r"norm|ln_\w+$|layernorm", "norm", None), (r"bias$", "bias", None), (r"embed_positions|wpe$|position", "position", None),
    (r"lm_head|output_layer|embed_out|^head$", "head", 0),
    (r"embed_tokens|tokens_embed|word_embeddings?|wte$|tok_emb|embed_in|embeddings?$|embed$", "embedding", 0),
    (r"router|gate$|gate\.wg$", "router", None), (r"q_proj|query$", "q", 0), (r"k_proj|key$", "k", 0), (r"v_proj|value$", "v", 0),
    (r"qkv|c_attn|query_key_value|Wqkv", "qkv", 0), (r"o_proj|out_proj|attn.*dense|attn.*c_proj", "o", 1),
    (r"gate_up", "gate_up", 0), (r"gate_proj|w1$", "gate", 0), (r"down_proj|fc2|w2$|4h_to_h|mlp.*c_proj", "down", 1),
    (r"up_proj|fc1|w3$|h_to_4h|c_fc", "up", 0), (r"conv", "conv", None),
)  # fmt: skip


def from_headers(raw: Mapping[str, Any], stored: tuple[Stored, ...], where: str, refused: UnmodelledError) -> Model:
    """The model those tensors make up; ``refused`` is raised where they are packed, so that their names do not tell elements."""
    if any(s.dtype in _PACKED for s in stored):
        raise refused
    config = Config(raw, where)
    config = config.optional_child("text_config", "llm_config", "language_config") or config
    outer, stacks = _sorted_out(stored)
    blocks = {prefix: _blocks(prefix, layers) for prefix, layers in stacks.items()}
    main = max(blocks, key=lambda p: sum(b.elements * b.count for b in blocks[p]), default="")
    vocab = next((t for t in outer if t.role == "embedding" and len(t.shape) == 2), None)
    if not main or vocab is None:
        raise refused
    attention = _attention(config, blocks[main])
    layers = tuple(_with(b, attention, _key_role(blocks[main])) for b in blocks[main])
    return Model(
        id="",
        family=str(raw.get("model_type", "")),
        architecture=str(raw.get("architectures", [""])[0]) if isinstance(raw.get("architectures"), list) else "",
        hidden=vocab.shape[1],
        vocab=vocab.shape[0],
        positions=config.integer("max_position_embeddings", default=0),
        dtype=_dtype(stored),
        tied=not any(t.role == "head" for t in outer),
        blocks=layers,
        tensors=tuple(outer),
        towers=tuple(Tower(name=p.rstrip("."), kind="unknown", blocks=b) for p, b in blocks.items() if p != main),
        unmodelled=(_note(str(raw.get("model_type")), layers),),
    )


def _sorted_out(stored: tuple[Stored, ...]) -> tuple[list[Tensor], dict[str, dict[int, dict[str, list[Stored]]]]]:
    """Tensors outside any layer, and per stack of layers the tensors of each layer by name with experts together."""
    outer: list[Tensor] = []
    stacks: dict[str, dict[int, dict[str, list[Stored]]]] = {}
    for one in stored:
        found = _LAYER.fullmatch(one.name)
        if found is None:
            outer.append(_tensor(one.name, [one]))
            continue
        expert = _EXPERT.fullmatch(found[3])
        name = f"{expert[1]}{{}}.{expert[3]}" if expert else found[3]
        stacks.setdefault(found[1] + "{}.", {}).setdefault(int(found[2]), {}).setdefault(name, []).append(one)
    return outer, stacks


def _blocks(prefix: str, layers: Mapping[int, Mapping[str, list[Stored]]]) -> tuple[Block, ...]:
    alike: dict[tuple[Tensor, ...], list[int]] = {}
    for index in sorted(layers):
        tensors = tuple(_tensor(name, parts) for name, parts in sorted(layers[index].items()))
        alike.setdefault(tensors, []).append(index)
    return tuple(Block(name=prefix, indices=tuple(indices), tensors=tensors) for tensors, indices in alike.items())


def _tensor(name: str, parts: list[Stored]) -> Tensor:
    """One tensor, or as many copies as there are experts; unequal ones count as the largest."""
    largest = max(parts, key=lambda s: s.bytes)
    bare = name.removesuffix(".weight")
    role, shard = next(((role, axis) for words, role, axis in _ROLES if re.search(words, bare)), ("other", None))
    fixed = HEADER_FLOATS.get(largest.dtype) if HEADER_BITS[largest.dtype] > 16 else None
    return Tensor(
        name=name,
        shape=largest.shape or (1,),
        role=f"expert.{role}" if "{}" in name else role,
        shard=shard if shard is not None and shard < len(largest.shape) else None,
        copies=len(parts),
        dtype=fixed,
    )


def _attention(config: Config, blocks: tuple[Block, ...]) -> Attention | None:
    """The attention config.json describes, when the stored key projections have its width."""
    heads = config.integer("num_attention_heads", "n_head", default=0)
    kv_heads = config.integer("num_key_value_heads", default=heads)
    width = config.integer("head_dim", default=config.integer("hidden_size", "n_embd", default=0) // max(1, heads))
    role = _key_role(blocks)
    expected = kv_heads * width if role == "k" else (heads + 2 * kv_heads) * width
    stored = {t.shape[0] for b in blocks for t in b.tensors if t.role == role and len(t.shape) == 2}
    return Attention(heads=heads, kv_heads=kv_heads, head_dim=width) if heads and stored == {expected} else None


def _key_role(blocks: tuple[Block, ...]) -> str:
    """How keys are stored: by themselves, or with queries and values where no layer has them so."""
    return "k" if any(t.role == "k" for b in blocks for t in b.tensors) else "qkv"


def _with(block: Block, attention: Attention | None, keys: str) -> Block:
    has_keys = any(t.role == keys for t in block.tensors)
    mixers: tuple[Mixer, ...] = (attention,) if attention and has_keys else ()
    return Block(name=block.name, indices=block.indices, tensors=block.tensors, mixers=mixers)


def _note(kind: str, layers: tuple[Block, ...]) -> str:
    without = sum(b.count for b in layers if not b.mixers)
    known = sum(b.count for b in layers) - without
    cache = (
        f"the cache of {known} layers is assumed to be full attention as config.json says" if known else "its cache is not known"
    )
    rest = f"; what {without} layers without such keys keep is not known" if known and without else ""
    return f"model_type {kind[:80]!r} has no family here: its weights are those of its files; {cache}{rest}"


def _dtype(stored: tuple[Stored, ...]) -> str:
    """The type that most bytes are stored in."""
    sizes: dict[str, int] = {}
    for one in stored:
        sizes[one.dtype] = sizes.get(one.dtype, 0) + one.bytes
    return HEADER_FLOATS.get(max(sizes, key=lambda d: sizes[d]), "bfloat16")
