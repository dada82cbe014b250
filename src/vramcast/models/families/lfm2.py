"""LFM2, its mixture and LFM3: gated short convolutions with a few attention layers, some of LFM3's with a window.

Source of names and shapes: transformers 5.23, modeling_lfm2.py, modeling_lfm2_moe.py and modeling_lfm3.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.families.mixtures import Mixture
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense, Experts, ShortConv

_KINDS = ("full_attention", "conv", "sliding_attention")
_NAMES = ("w1", "w3", "w2")
_MIXTURE = Mixture(
    experts="feed_forward.experts.",
    names=_NAMES,
    router="feed_forward.gate",
    correction="feed_forward.expert_bias",
    correction_if="use_expert_bias",
)


def read(config: Config, *, prefix: str = "model.") -> Model:
    """An LFM2 model."""
    hidden = config.size("hidden_size")

    def build(key: tuple[str, bool]) -> Block:
        mixer, mixer_tensors = _conv(config, hidden) if key[0] == "conv" else _attention(config, hidden, key[0])
        feed, feed_tensors = _feed_forward(config, hidden, sparse=key[1])
        sandwich = ("post_operator_norm", "post_ffn_norm") if _is_third(config, "use_sandwich_norm") else ()
        norms = parts.norms(hidden, "operator_norm", "ffn_norm", *sandwich)
        return Block(
            name=f"{prefix}layers.{{}}.",
            indices=(),
            mixers=(mixer,),
            feedforward=feed,
            tensors=(*mixer_tensors, *feed_tensors, *norms),
        )

    tied = config.flag("tie_embedding", "tie_word_embeddings", default=True)
    return parts.decoder(
        Config({**config.raw, "tie_word_embeddings": tied}, config.path),
        hidden=hidden,
        prefix=prefix,
        blocks=parts.stack(_pattern(config), build),
        norm=parts.norms(hidden, f"{prefix}embedding_norm"),
    )


def _pattern(config: Config) -> list[tuple[str, bool]]:
    """(kind, sparse) of each layer; the first ``num_dense_layers`` of the mixture are dense."""
    count = config.size("num_hidden_layers")
    attends = config.list("full_attn_idxs", default=[*range(count)])
    listed = state_space.layer_kinds(config, "layer_types", _KINDS)
    if not listed and config.text("model_type") == "lfm3":
        listed = [_third_kind(i) for i in range(count)]
    kinds = listed[:count] or [_KINDS[i not in attends] for i in range(count)]
    dense = config.integer("num_dense_layers", default=2) if config.text("model_type") == "lfm2_moe" else count
    return [(kind, i >= dense) for i, kind in enumerate(kinds)]


def _third_kind(place: int) -> str:
    """LFM3: of four layers the first slides and the third sees everything, but for the first of all."""
    return "full_attention" if place % 4 == 2 else "sliding_attention" if place % 4 == 0 and place else "conv"


def _is_third(config: Config, switch: str) -> bool:
    """Whether this is LFM3 with that switch, which it has on unless told."""
    return config.text("model_type") == "lfm3" and config.flag(switch, default=True)


def _attention(config: Config, hidden: int, span: str) -> tuple[Attention, tuple[Tensor, ...]]:
    heads, third = config.size("num_attention_heads"), config.text("model_type") == "lfm3"
    kind = Attention(
        heads=heads,
        kv_heads=config.size("num_key_value_heads", default=heads),
        head_dim=config.size("head_dim", default=max(1, hidden // heads)),
        qk_norm=True,
        window=config.size("sliding_window") if span == "sliding_attention" else 0,
    )
    names = ("self_attn.q_norm", "self_attn.k_norm") if third else ("self_attn.q_layernorm", "self_attn.k_layernorm")
    gated = _is_third(config, "use_attention_gate")
    bias = third and config.flag("attention_bias", default=False)
    return kind, (
        *parts.attention(kind, hidden, out="o_proj" if third else "out_proj", bias=bias),
        *parts.norms(kind.head_dim, *names),
        *(parts.linear("self_attn.g_proj", heads, hidden, "q", shard=0, groups=heads) if gated else ()),
    )


def _conv(config: Config, hidden: int) -> tuple[ShortConv, tuple[Tensor, ...]]:
    kind, bias = ShortConv(width=hidden, conv=config.size("conv_L_cache", default=3)), config.flag("conv_bias", default=False)
    return kind, (
        *state_space.convolution("conv.conv", hidden, kind.conv, bias=bias),
        *parts.linear("conv.in_proj", 3 * hidden, hidden, "mixer", shard=0, bias=bias),
        *parts.linear("conv.out_proj", hidden, hidden, "mixer", shard=1, bias=bias),
    )


def _feed_forward(config: Config, hidden: int, *, sparse: bool) -> tuple[Dense | Experts, tuple[Tensor, ...]]:
    if sparse:
        mixed = _MIXTURE.kind(config)
        return mixed, _MIXTURE.tensors(config, mixed, hidden)
    kind = Dense(intermediate=_intermediate(config))
    return kind, parts.gated_mlp(kind, hidden, prefix="feed_forward.", names=_NAMES)


def _intermediate(config: Config) -> int:
    """The MLP's width: two thirds of the configured one, scaled and rounded up, when ``block_auto_adjust_ff_dim``."""
    width = config.size("block_ff_dim", "intermediate_size")
    if config.text("model_type") != "lfm2" or not config.flag("block_auto_adjust_ff_dim", default=True):
        return width
    step = config.size("block_multiple_of", default=256)
    width = int(config.number("block_ffn_dim_multiplier", default=1) * int(2 * width / 3))
    return -(-width // step) * step
