"""GLM-5 Next's decoder: delta attention with a forget gate per channel, indexed latent attention without positions, streams.

Source of names and shapes: transformers 5.23, modeling_glm5_next.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import kimi_linear, latent, mixtures, parts, state_space
from vramcast.models.families.mixtures import Mixture, shared_count
from vramcast.models.inventory import Block, Mixer, Model, Tensor
from vramcast.models.layers import Dense, Experts, GatedDeltaNet, LatentAttention

_KINDS = ("linear_attention", "indexed_attention", "full_attention")
_MIXTURE = Mixture(
    routed=("n_routed_experts", "num_local_experts"), shared=shared_count(), correction="mlp.gate.e_score_correction_bias"
)


def read(config: Config, *, prefix: str = "model.") -> Model:
    """The text model of GLM-5 Next."""
    hidden = config.size("hidden_size")
    blocks = parts.stack(_pattern(config), lambda key: _layer(config, hidden, *key, name=f"{prefix}layers.{{}}."))
    drafts = config.integer("num_nextn_predict_layers", default=0, most=64)
    unread = (f"{drafts} draft layers that the checkpoint may store",) if drafts else ()
    return parts.decoder(config, hidden=hidden, prefix=prefix, blocks=blocks, unmodelled=unread)


def _pattern(config: Config) -> list[tuple[str, bool, bool]]:
    """(kind, sparse, has an indexer) of each layer; the first three are dense, every fourth is indexed."""
    count = config.size("num_hidden_layers")
    named = state_space.layer_kinds(config, "layer_types", _KINDS)
    kinds = config.per_layer("layer_types", count) if named else [_KINDS[i % 4 == 3] for i in range(count)]
    sparse = mixtures.listed(config, count) or [i >= config.integer("first_k_dense_replace", default=3) for i in range(count)]
    indexers = latent.indexer_types(config, count)
    return [
        (state_space.LEGACY.get(str(kind), str(kind)), sparse[i], indexers[i] == "full" and kind != _KINDS[0])
        for i, kind in enumerate(kinds)
    ]


def _layer(config: Config, hidden: int, kind: str, sparse: bool, indexed: bool, *, name: str) -> Block:
    mixer: Mixer
    mixer, mixer_tensors = _delta(config, hidden) if kind == _KINDS[0] else _latent(config, hidden, indexed=indexed)
    feed, feed_tensors = _feed_forward(config, hidden, sparse=sparse)
    halves = (t for half in ("attn", "ffn") for t in _streams(config, hidden, f"{half}_hc."))
    norms = parts.norms(hidden, "input_layernorm", "post_attention_layernorm")
    return Block(
        name=name, indices=(), mixers=(mixer,), feedforward=feed, tensors=(*mixer_tensors, *feed_tensors, *norms, *halves)
    )


def _delta(config: Config, hidden: int) -> tuple[GatedDeltaNet, tuple[Tensor, ...]]:
    """As in Kimi Linear, one convolution over queries, keys and values together."""
    heads, width, kernel = kimi_linear.sizes(config)
    kind = GatedDeltaNet(key_heads=heads, value_heads=heads, key_dim=width, value_dim=width, conv=kernel)
    name, inner = "self_attn.", heads * width
    return kind, (
        *(t for x in "qkv" for t in parts.linear(f"{name}{x}_proj", inner, hidden, x, shard=0, groups=heads)),
        *state_space.convolution(f"{name}conv1d", 3 * inner, kernel, bias=False),
        state_space.state(f"{name}forget_gate.dt_bias", inner),
        state_space.state(f"{name}forget_gate.A_log", heads),
        *parts.linear(f"{name}b_proj", heads, hidden, "mixer", shard=0),
        *(t for x in ("forget_gate.f", "g") for t in parts.linear(f"{name}{x}_a_proj", width, hidden, "mixer", shard=None)),
        *(t for x in ("forget_gate.f", "g") for t in parts.linear(f"{name}{x}_b_proj", inner, width, "mixer", shard=0)),
        *parts.norms(width, f"{name}o_norm"),
        *parts.linear(f"{name}o_proj", hidden, inner, "o", shard=1, groups=heads),
    )


def _latent(config: Config, hidden: int, *, indexed: bool) -> tuple[LatentAttention, tuple[Tensor, ...]]:
    """Latent attention whose indexer pools the keys of ``index_kpool`` tokens."""
    own = LatentAttention(
        heads=config.size("num_attention_heads"),
        query_rank=config.size("q_lora_rank"),
        kv_rank=config.size("kv_lora_rank"),
        nope_dim=config.size("qk_nope_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim", default=0),
        value_dim=config.size("v_head_dim"),
        indexer=latent.indexer_of(config) if indexed else None,
    )
    width, name = config.size("index_head_dim"), "self_attn.indexer."
    pooled = (
        Tensor(name=f"{name}index_kpool_compress_ape", shape=(config.size("index_kpool", default=16), width), role="indexer"),
        Tensor(name=f"{name}index_kpool_compress_gate", shape=(width, hidden), role="indexer"),
        *latent.indexer_tensors(own, hidden),
    )
    bias = config.flag("attention_bias", default=False)
    return own, (*latent.latent_tensors(own, hidden, bias=bias), *(pooled if indexed else ()))


def _streams(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    """A hyper-connection: what gives the mixing weights of the residual streams."""
    streams = config.size("hc_mult", default=4)
    rows = (2 + streams) * streams
    shapes = {"fn": (rows, streams * hidden), "base": (rows,), "scale": (3,)}
    return tuple(Tensor(name=f"{name}{each}", shape=shape, role="mixer") for each, shape in shapes.items())


def _feed_forward(config: Config, hidden: int, *, sparse: bool) -> tuple[Dense | Experts, tuple[Tensor, ...]]:
    if sparse:
        kind = _MIXTURE.kind(config)
        return kind, _MIXTURE.tensors(config, kind, hidden)
    dense = Dense(intermediate=config.size("intermediate_size"), activation=config.text("hidden_act", default="silu"))
    return dense, parts.gated_mlp(dense, hidden)
