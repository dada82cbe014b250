"""What no class can build is refused with the field named: heads that do not divide, more active experts than there are.

A list over the layers that is too long is answered with the damage named. One that is too short is refused where it is read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramcast.errors import ConfigError
from vramcast.ledger import Assumption
from vramcast.models.config import Config
from vramcast.models.inventory import Block, Model
from vramcast.models.layers import Attention, Experts

_WIDTHS = ("head_dim", "attention_head_dim", "kv_channels", "d_kv", "qkv_hidden_size", "attention_hidden_size")
# Classes whose own default does not divide (96 heads over 4,096; 28 over 2,048): transformers 5.23 takes the floor as the width.
_FLOORED = frozenset(
    {"glm4_moe", "glm4v_moe", "glm4v_moe_text", "qwen3_omni_moe", "qwen3_omni_moe_thinker", "qwen3_omni_moe_text"}
)
_OVER_LAYERS = ("layer_types", "mlp_layer_types", "layers_block_type", "attn_type_list", "hybrid_layer_pattern", "indexer_types")
_DRAFTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "num_mtp_modules")


def checked(model: Model, config: Config) -> Model:
    """The model, with lists that are too long named among its assumptions.

    Raises ConfigError where query heads are no multiple of KV heads or do not divide a hidden size that alone gives their width,
    or where more experts are active than there are.
    """
    objects = [*_objects(config.raw)]
    told = any(name in said for said in objects for name in _WIDTHS) or any(
        said.get("model_type") in _FLOORED for said in objects
    )
    for block in model.blocks:
        _check(block, model.hidden, config.path, told=told)
    spare = tuple(each for said in objects for each in _too_long(said))
    return msgspec.structs.replace(model, assumed=(*model.assumed, *spare)) if spare else model


def _check(block: Block, hidden: int, path: str, *, told: bool) -> None:
    for kind in (mixer for mixer in block.mixers if isinstance(mixer, Attention)):
        if kind.heads % kind.kv_heads:
            raise ConfigError(
                f"{path}: {kind.heads} query heads (num_attention_heads) are no multiple of {kind.kv_heads} KV heads "
                "(num_key_value_heads)"
            )
        if not told and hidden % kind.heads and kind.head_dim == hidden // kind.heads:
            raise ConfigError(
                f"{path}: hidden_size {hidden} is no multiple of num_attention_heads, {kind.heads}, and head_dim is not stated"
            )
    feed = block.feedforward
    if isinstance(feed, Experts) and feed.active > feed.routed:
        raise ConfigError(f"{path}: num_experts_per_tok is {feed.active}, more than the {feed.routed} experts of a layer")


def _too_long(said: Mapping[str, Any]) -> Iterator[Assumption]:
    """Lists with more entries than there are layers and draft layers."""
    count = said.get("num_hidden_layers")
    if not isinstance(count, int):
        return
    drafts = sum(value for name in _DRAFTS if isinstance(value := said.get(name), int))
    for name in _OVER_LAYERS:
        given = said.get(name)
        if isinstance(given, list) and len(given) > count + drafts:
            because = f"the config has {len(given)} entries for {count} layers; those beyond are left out"
            yield Assumption(name=name, value=count, because=because)


def _objects(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield raw
    for value in raw.values():
        if isinstance(value, Mapping):
            yield from _objects(value)
