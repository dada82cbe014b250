"""Step 3: queries through a narrow factor, one group of keys and values (multi-matrix factorisation), experts in most layers.

Source of names and shapes: vllm/model_executor/models/step3_text.py and step3_vl.py; transformers_utils/configs/step3_vl.py for
what a config leaves out.
"""

import msgspec

from vramcast.ledger import Assumption
from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense, Experts

_SPARSE = range(4, 60)
_NAMES = ("gate_proj", "up_proj", "down_proj")
_STYLE = vit.Style(qkv="qkv_proj", out="out_proj", activation="quick_gelu", rope=False)


def read(config: Config, *, prefix: str = "model.") -> Model:
    """Step 3 with its tower, or its text decoder alone."""
    if config.text("model_type") == "step3_text":
        return _text(config, prefix)
    said = config.child("text_config")
    text = Config({**said.raw, "model_type": "step3_text"}, said.path)
    seen = config.optional_child("vision_config") or Config({}, f"{config.path}: vision_config")
    towers = (_vision(config, seen, text.size("hidden_size")),)
    model = wrapper.wrap(config, text, prefix="model.", towers=towers, tied=False)
    if config.has("vision_config"):
        return model
    unsaid = Assumption("vision_config", "the class's default", "the config describes no vision tower")
    return msgspec.structs.replace(model, assumed=(*model.assumed, unsaid))


def _text(config: Config, prefix: str) -> Model:
    hidden, count = config.size("hidden_size"), config.size("num_hidden_layers")
    sparse = _sparse(config)
    blocks = parts.stack(
        [i in sparse for i in range(count)], lambda mixed: _block(config, hidden, f"{prefix}layers.{{}}.", mixed)
    )
    longest = config.integer("max_position_embedding", "max_position_embeddings", "max_seq_len", default=0)
    placed = Config({**config.raw, "max_position_embeddings": longest or None}, config.path)
    return parts.decoder(placed, hidden=hidden, blocks=blocks, prefix=prefix)


def _sparse(config: Config) -> set[int]:
    """Layers of experts, written as a list or as words between commas."""
    said = config.raw.get("moe_layers_enum")
    if isinstance(said, str):
        words = [int(word) if word.isdigit() else word for word in said.replace(" ", "").split(",")]
        return set(Config({"moe_layers_enum": words}, config.path).integers("moe_layers_enum"))
    return set(config.integers("moe_layers_enum", default=[*_SPARSE]))


def _block(config: Config, hidden: int, name: str, mixed: bool) -> Block:
    kind = Attention(
        heads=config.size("num_attention_heads"),
        kv_heads=config.size("num_attention_groups", default=1),
        head_dim=config.size("head_dim", default=256),
    )
    feed, tensors = _experts(config, hidden) if mixed else _dense(config, hidden)
    return Block(
        name=name,
        indices=(),
        mixers=(kind,),
        feedforward=feed,
        tensors=(
            *_attention(kind, hidden, config.size("share_q_dim", default=2048)),
            *tensors,
            *parts.norms(hidden, "input_layernorm", "post_attention_layernorm"),
        ),
    )


def _attention(kind: Attention, hidden: int, factor: int) -> tuple[Tensor, ...]:
    keys = kind.kv_heads * kind.head_dim
    return (
        *parts.linear("self_attn.q_proj", factor, hidden, "q_a", shard=None),
        *parts.linear("self_attn.k_proj", keys, hidden, "k", shard=None),
        *parts.linear("self_attn.v_proj", keys, hidden, "v", shard=None),
        *parts.norms(factor, "self_attn.inter_norm"),
        *parts.linear("self_attn.wq", kind.heads * kind.head_dim, factor, "q", shard=0, groups=kind.heads),
        *parts.output(kind, hidden, "self_attn.o_proj"),
    )


def _experts(config: Config, hidden: int) -> tuple[Experts, tuple[Tensor, ...]]:
    width, count = config.size("moe_intermediate_size"), config.size("moe_num_experts")
    kind = Experts(
        routed=count,
        active=config.size("moe_top_k"),
        intermediate=width,
        shared_intermediate=config.size("share_expert_dim", default=5120),
    )
    shapes = {"gate_proj": (count, width, hidden), "up_proj": (count, width, hidden), "down_proj": (count, hidden, width)}
    routed = tuple(
        Tensor(
            name=f"moe.{n}.weight",
            shape=shape,
            role=f"expert.{n.removesuffix('_proj')}",
            shard=2 if n == "down_proj" else 1,
            stacked=count,
        )
        for n, shape in shapes.items()
    )
    shared = Dense(intermediate=kind.shared_intermediate)
    return kind, (
        *routed,
        *parts.router(kind, hidden, "moe.gate"),
        *parts.gated_mlp(shared, hidden, prefix="share_expert.", role="shared.", names=_NAMES),
    )


def _dense(config: Config, hidden: int) -> tuple[Dense, tuple[Tensor, ...]]:
    kind = Dense(intermediate=config.size("intermediate_size"))
    return kind, parts.gated_mlp(kind, hidden)


def _vision(config: Config, seen: Config, hidden: int) -> Tower:
    """The tower, two convolutions and the projection to the decoder."""
    width, out = seen.size("hidden_size", default=1792), seen.size("output_hidden_size", default=4096)
    patch, image = seen.size("patch_size", default=14), seen.size("image_size", default=728)
    layers, heads = seen.size("num_hidden_layers", default=63), seen.size("num_attention_heads", default=16)
    inner, places = seen.size("intermediate_size", default=3072), (image // patch) ** 2
    bias = config.flag("projector_bias", default=True)
    return Tower(
        name="vision_model.",
        kind="vision",
        hidden=width,
        blocks=(vit.block("vision_model.transformer.layers.{}.", layers, width, heads, intermediate=inner, style=_STYLE),),
        tensors=(
            vit.table("vision_model.embeddings.class_embedding", 1, width),
            vit.table("vision_model.embeddings.position_embedding.weight", places + 1, width),
            *vit.patches("vision_model.embeddings.patch_embedding", width, 3, patch, patch, bias=True),
            *vit.patches("vit_downsampler", out, width, 2, 2, bias=True),
            *vit.patches("vit_downsampler2", 2 * out, out, 3, 3, bias=True),
            *parts.linear("vit_large_projector", hidden, 2 * out, "projector", shard=None, bias=bias),
        ),
        facts={"patch_size": patch, "image_size": image},
    )
