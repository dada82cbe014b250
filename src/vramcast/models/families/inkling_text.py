"""The decoders of Inkling and Inkling 2: short convolutions around attention and experts, relative positions by heads.

Sliding layers have heads of their own. Inkling 2 gates attention, has sinks that depend on the token, and mixes the outputs of
earlier blocks of layers into the inputs of both halves. Source of names and shapes: transformers 5.23, modeling_inkling.py and
modeling_inkling2.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import mixtures, parts, state_space
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense, Experts, ShortConv

_KINDS = ("hybrid", "hybrid_sliding")
_SECOND = "inkling2_text"


def read(config: Config, *, prefix: str = "model.") -> Model:
    """An Inkling text model."""
    hidden = config.size("hidden_size")
    second = config.text("model_type") == _SECOND
    blocks = parts.stack(_pattern(config), lambda key: _layer(config, hidden, *key, name=f"{prefix}layers.{{}}."))
    last = (Tensor(name=f"{prefix}final_input.query", shape=(hidden,), role="state"),) if second else ()
    return parts.decoder(
        Config({**config.raw, "tie_word_embeddings": False}, config.path),
        hidden=hidden,
        prefix=prefix,
        blocks=blocks,
        extra=(*parts.norms(hidden, f"{prefix}embed_tokens.embed_norm"), *last),
    )


def _pattern(config: Config) -> list[tuple[str, bool, bool]]:
    """(span, sparse, after another layer) of each layer; every sixth sees everything unless the config says otherwise."""
    count = config.size("num_hidden_layers")
    named = state_space.layer_kinds(config, "layer_types", _KINDS)
    near = set(config.integers("local_layer_ids", default=[i for i in range(count) if (i + 1) % 6]))
    kinds = config.per_layer("layer_types", count) if named else [_KINDS[i in near] for i in range(count)]
    dense = config.integer("dense_mlp_idx", default=0)
    sparse = mixtures.listed(config, count) or [i >= dense for i in range(count)]
    return [(kind, sparse[i], i > 0) for i, kind in enumerate(kinds)]


def _attention(config: Config, kind: str) -> Attention:
    name = "swa_" if kind == "hybrid_sliding" else ""
    return Attention(
        heads=config.size(f"{name}num_attention_heads"),
        kv_heads=config.size(f"{name}num_key_value_heads"),
        head_dim=config.size(f"{name}head_dim", default=128),
        window=config.size("sliding_window_size", "sliding_window") if name else 0,
        qk_norm=True,
        rope_dim=0,
    )


def _layer(config: Config, hidden: int, span: str, sparse: bool, follows: bool, *, name: str) -> Block:
    kind, second = _attention(config, span), config.text("model_type") == _SECOND
    feed, feed_tensors = _feed_forward(config, hidden, sparse=sparse)
    kernel = config.size("conv_kernel_size", "sconv_kernel_size", default=4)
    full = span == "hybrid" and second
    after = ("post_attention_convolution", "post_mlp_convolution") if second else ("attn_sconv", "mlp_sconv")
    # Four windows: keys, values, and what both halves add to the stream.
    convolutions = ShortConv(width=2 * kind.kv_heads * kind.head_dim + 2 * hidden, conv=kernel)
    norms = ("q_input_layernorm", "k_input_layernorm", "v_input_layernorm") if full else ("input_layernorm",)
    return Block(
        name=name,
        indices=(),
        mixers=(kind, convolutions),
        feedforward=feed,
        tensors=(
            *parts.attention(kind, hidden),
            *_relative(config, hidden, kind),
            *_mixed_keys(hidden, kind, kernel, dynamic=full),
            *(_second(config, hidden, kind, full=full, follows=follows) if second else _normed(kind)),
            *feed_tensors,
            *parts.norms(hidden, *norms, "post_attention_layernorm"),
            *(t for each in after for t in state_space.convolution(f"{each}.conv1d", hidden, kernel, bias=False)),
        ),
    )


def _normed(kind: Attention) -> tuple[Tensor, ...]:
    return parts.norms(kind.head_dim, "self_attn.q_norm", "self_attn.k_norm")


def _relative(config: Config, hidden: int, kind: Attention) -> tuple[Tensor, ...]:
    """Each head's view of distances: a few features of the token times a table over distances."""
    features, name = config.size("d_rel", default=16), "self_attn."
    reach = kind.window or config.size("rel_extent", default=1024)
    return (
        *parts.linear(f"{name}r_proj", kind.heads * features, hidden, "q", shard=0, groups=kind.heads),
        Tensor(name=f"{name}rel_logits_proj.proj", shape=(features, reach), role="position"),
    )


def _mixed_keys(hidden: int, kind: Attention, kernel: int, *, dynamic: bool) -> tuple[Tensor, ...]:
    """The convolutions over keys and values; in Inkling 2's full layers each token makes its kernel's weights."""
    width, names = kind.kv_heads * kind.head_dim, ("self_attn.k_sconv", "self_attn.v_sconv")
    if not dynamic:
        return tuple(t for n in names for t in state_space.convolution(f"{n}.conv1d", width, kernel, bias=False))
    return (
        *(Tensor(name=f"{n}.static_weight", shape=(kernel, width), role="conv", shard=1) for n in names),
        *(t for n in names for t in parts.linear(f"{n}.weight_proj", kind.kv_heads * kernel, hidden, "mixer", shard=0)),
    )


def _second(config: Config, hidden: int, kind: Attention, *, full: bool, follows: bool) -> tuple[Tensor, ...]:
    """Inkling 2: output gate, sinks, scales of clipped queries, and queries over the outputs of earlier blocks of layers."""
    name, features = "self_attn.", config.size("d_rel", default=16)
    entering = (3, hidden) if full else (hidden,)
    return (
        *parts.linear(f"{name}gate_proj", kind.heads * kind.head_dim, hidden, "q", shard=0, groups=kind.heads),
        *parts.linear(f"{name}sink_proj", kind.heads, hidden, "q", shard=0, groups=kind.heads),
        Tensor(name=f"{name}q_l2_clip.scale", shape=(kind.heads, kind.head_dim), role="norm", shard=0),
        Tensor(name=f"{name}rel_l2_clip.scale", shape=(kind.heads, features), role="norm", shard=0),
        *((Tensor(name="attention_input.query", shape=entering, role="state"),) if follows else ()),
        Tensor(name="mlp_input.query", shape=(hidden,), role="state"),
    )


def _feed_forward(config: Config, hidden: int, *, sparse: bool) -> tuple[Dense | Experts, tuple[Tensor, ...]]:
    if not sparse:
        dense = Dense(intermediate=config.size("dense_intermediate_size", "intermediate_size"))
        scale = Tensor(name="mlp.global_scale", shape=(1,), role="state")
        return dense, (*parts.gated_mlp(dense, hidden), scale)
    kind = _experts(config)
    return kind, (*_router(config, kind, hidden), *parts.experts(kind, hidden), *_shared(config, kind, hidden))


def _experts(config: Config) -> Experts:
    """A config that gives dense layers a width of their own means the experts' by ``intermediate_size``."""
    apart = config.has("dense_intermediate_size")
    width = config.size("intermediate_size") if apart else config.size("moe_intermediate_size", "intermediate_size")
    shared = 0 if config.text("model_type") == _SECOND else config.integer("n_shared_experts", default=2)
    return Experts(
        routed=config.size("n_routed_experts", "num_local_experts"),
        active=config.size("num_experts_per_tok"),
        intermediate=width,
        shared_intermediate=shared * width,
    )


def _router(config: Config, kind: Experts, hidden: int) -> tuple[Tensor, ...]:
    """Inkling's router also weighs the shared experts."""
    shared = kind.shared_intermediate // kind.intermediate
    scale = (Tensor(name="mlp.gate.global_scale", shape=(1,), role="router"),) if config.text("model_type") != _SECOND else ()
    weight = parts.linear("mlp.gate", kind.routed + shared, hidden, "router", shard=None)
    return (*weight, *scale, *parts.correction(kind))


def _shared(config: Config, kind: Experts, hidden: int) -> tuple[Tensor, ...]:
    """The shared experts side by side in one tensor for each matrix."""
    count = kind.shared_intermediate // kind.intermediate
    if not count:
        return ()
    shapes = {"gate": (count, kind.intermediate, hidden), "up": (count, kind.intermediate, hidden)}
    down = Tensor(name="mlp.shared_experts.down_proj", shape=(count, hidden, kind.intermediate), role="shared.down", shard=2)
    return (
        *(Tensor(name=f"mlp.shared_experts.{n}_proj", shape=s, role=f"shared.{n}", shard=1) for n, s in shapes.items()),
        down,
    )
