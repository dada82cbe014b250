"""Llama 3.2 Vision: a text decoder whose every few layers attend to the image instead of to the text.

Source of names and shapes: transformers 5.23, modeling_mllama.py.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense

_STYLE = vit.Style(out="o_proj", bias=False, out_bias=False, norms=("input_layernorm", "post_attention_layernorm"), rope=False)
_IMAGE_TOKENS = 8
"""Rows that the input embedding has beyond the vocabulary, for image tokens; the head does not."""

_RATIOS = [[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1]]
"""Shapes of an image in four tiles, the class's default."""

# MllamaTextConfig's own choice, which a config written as a difference leaves out.
_CROSSED = [*range(3, 40, 5)]


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A Llama 3.2 Vision model: the whole, or its text decoder alone."""
    if config.text("model_type") == "mllama_text_model":
        return _decoder(config, prefix)
    text = wrapper.text_of(config, "mllama_text_model")
    tower = _vision(wrapper.part(config, "vision_config", "mllama_vision_model"), text.size("hidden_size"))
    return wrapper.wrap(wrapper.tied_as(config, False), text, prefix="language_model.model.", towers=(tower,))


def _decoder(config: Config, prefix: str) -> Model:
    hidden, across = config.size("hidden_size"), set(config.list("cross_attention_layers", default=_CROSSED))
    heads = config.size("num_attention_heads")
    kind = Attention(heads=heads, kv_heads=config.size("num_key_value_heads", default=heads), head_dim=max(1, hidden // heads))
    crossing = [i in across for i in range(config.size("num_hidden_layers"))]
    blocks = parts.stack(crossing, lambda cross: _layer(config, kind, hidden, cross=cross, name=f"{prefix}layers.{{}}."))
    model = parts.decoder(config, hidden=hidden, prefix=prefix, blocks=blocks)
    embedding, *rest = model.tensors
    wider = msgspec.structs.replace(embedding, shape=(model.vocab + _IMAGE_TOKENS, hidden))
    return msgspec.structs.replace(model, tensors=(wider, *rest))


def _layer(config: Config, kind: Attention, hidden: int, *, cross: bool, name: str) -> Block:
    mlp = Dense(intermediate=config.size("intermediate_size"), activation=config.text("hidden_act", default="silu"))
    across = msgspec.structs.replace(kind, causal=False, qk_norm=True)
    own = parts.attention(kind, hidden, prefix="cross_attn." if cross else "self_attn.")
    gates = tuple(Tensor(name=f"cross_attn_{part}_gate", shape=(1,), role="norm") for part in ("attn", "mlp"))
    extra = (*parts.norms(kind.head_dim, "cross_attn.q_norm", "cross_attn.k_norm"), *gates) if cross else ()
    norms = parts.norms(hidden, "input_layernorm", "post_attention_layernorm")
    return Block(
        name=name,
        indices=(),
        mixers=() if cross else (kind,),
        cross=across if cross else None,
        feedforward=mlp,
        tensors=(*own, *parts.gated_mlp(mlp, hidden), *norms, *extra),
    )


def _vision(config: Config, hidden: int) -> Tower:
    width, name = config.size("hidden_size"), "vision_model."
    patch, image = wrapper.side(config, "patch_size"), wrapper.side(config, "image_size")
    tokens, tiles = (image // patch) ** 2 + 1, config.size("max_num_tiles", default=4)
    gates = tuple(Tensor(name=gate, shape=(1,), role="norm") for gate in ("gate_attn", "gate_ffn"))
    layers, distant = config.size("num_hidden_layers"), config.size("num_global_layers")
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(_blocks(config, f"{name}transformer.", layers), _blocks(config, f"{name}global_transformer.", distant, gates)),
        tensors=(
            vit.table(f"{name}class_embedding", width),
            *vit.patches(f"{name}patch_embedding", width, 3, patch, patch),
            *_positions(config, name, tokens, width),
            *parts.norms(width, f"{name}layernorm_pre", f"{name}layernorm_post", bias=True),
            *parts.linear("multi_modal_projector", hidden, config.size("vision_output_dim"), "projector", shard=None, bias=True),
        ),
        facts={"patch_size": patch, "image_size": image, "tiles": tiles, "tokens_per_image": tokens * tiles},
    )


def _blocks(config: Config, name: str, count: int, extra: tuple[Tensor, ...] = ()) -> Block:
    width, heads = config.size("hidden_size"), config.size("attention_heads", "num_attention_heads")
    inner = config.size("intermediate_size")
    return vit.block(f"{name}layers.{{}}.", count, width, heads, intermediate=inner, style=_STYLE, extra=extra)


def _positions(config: Config, name: str, tokens: int, width: int) -> tuple[Tensor, ...]:
    """Learned positions of tokens in a tile and of tiles in an image, by aspect ratio (one more for padding)."""
    tiles, ratios = config.size("max_num_tiles", default=4), len(config.list("supported_aspect_ratios", default=_RATIOS)) + 1
    inside, tile = f"{name}gated_positional_embedding.", "_tile_positional_embedding."
    return (
        vit.table(f"{inside}gate", 1),
        vit.table(f"{inside}embedding", tokens, width),
        vit.table(f"{inside}tile_embedding.weight", ratios, tiles * tokens * width),
        *(vit.table(f"{name}{side}{tile}gate", 1) for side in ("pre", "post")),
        *(vit.table(f"{name}{side}{tile}embedding.weight", ratios, tiles * width) for side in ("pre", "post")),
    )
