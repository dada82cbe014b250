"""Classes of the flash-linear-attention library: GLA, GSA, DeltaNet, Gated DeltaNet, HGRN 2 and its plain transformer.

Each layer is a norm, a mixer with a matrix for state, a norm and a gated MLP; ``attn`` lists layers that attend instead. Source
of names, shapes and defaults: fla/models and fla/layers of fla-org/flash-linear-attention; no published weight index was held
against them, and the answer says so.
"""

from collections.abc import Callable

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.inventory import Block, Mixer, Model, Tensor
from vramcast.models.layers import Attention, Dense, GatedDeltaNet

_STEP = 256
_LOW_RANK = 16
_UNVERIFIED = "shapes are those of the library's class; no published weight index was held against them"
Mixed = tuple[Mixer, tuple[Tensor, ...]]


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A model of one of the library's classes."""
    family, hidden = config.text("model_type"), config.size("hidden_size")
    if config.has("attnres_block_size"):
        raise UnmodelledError(f"{config.path}: attnres_block_size has no rule: residuals that attend to layers before")
    hybrid = config.optional_child("attn")
    attends = set(hybrid.integers("layers", default=[])) if hybrid else set()
    count = config.size("num_hidden_layers", default=21 if family == "gated_deltanet" else 24)

    def build(attending: bool) -> Block:
        mixer, tensors = _attention(hybrid or config, hidden) if attending else _MIXERS[family](config, hidden)
        inner = config.size("intermediate_size", default=_wide(config, hidden))
        mlp = Dense(intermediate=inner)
        norms = parts.norms(hidden, "attn_norm", "mlp_norm")
        return Block(
            name=f"{prefix}layers.{{}}.",
            indices=(),
            mixers=(mixer,),
            feedforward=mlp,
            tensors=(*tensors, *parts.gated_mlp(mlp, hidden), *norms),
        )

    bounds = family == "hgrn2" and config.flag("use_lower_bound", default=True)
    return parts.decoder(
        config,
        hidden=hidden,
        vocab=config.size("vocab_size", default=32_000),
        prefix=prefix,
        embedding=f"{prefix}embeddings.weight",
        blocks=parts.stack((family == "transformer" or i in attends for i in range(count)), build),
        extra=(Tensor(name=f"{prefix}lower_bounds", shape=(count, hidden), role="state"),) if bounds else (),
        unmodelled=(_UNVERIFIED,),
    )


def _wide(config: Config, hidden: int) -> int:
    """The MLP's width: two thirds of ``hidden_ratio`` times the model's, rounded up to 256."""
    return -(-int(hidden * config.size("hidden_ratio", default=4) * 2 / 3) // _STEP) * _STEP


def _attention(config: Config, hidden: int) -> Mixed:
    heads = config.size("num_heads")
    kind = Attention(
        heads=heads,
        kv_heads=config.size("num_kv_heads", default=heads),
        head_dim=max(1, hidden // heads),
        window=config.integer("window_size", default=0),
        qk_norm=config.flag("qk_norm", default=False),
    )
    bias, scaled = config.flag("qkv_bias", default=False), parts.norms(kind.head_dim, "attn.q_norm", "attn.k_norm")
    tensors = parts.attention(kind, hidden, prefix="attn.", bias=bias, out_bias=False)
    return kind, (*tensors, *scaled) if kind.qk_norm else tensors


def _linears(hidden: int, **outputs: int) -> tuple[Tensor, ...]:
    """Projections of the stream to those widths."""
    names = (parts.linear(f"attn.{name}_proj", width, hidden, "mixer", shard=0) for name, width in outputs.items() if width)
    return tuple(tensor for one in names for tensor in one)


def _convolved(config: Config, default: bool, **widths: int) -> tuple[tuple[Tensor, ...], int]:
    """The short convolutions and their reach, 1 where there is none."""
    if not config.flag("use_short_conv", default=default):
        return (), 1
    kernel = config.size("conv_size", default=4)
    found = (state_space.convolution(f"attn.{name}_conv1d", width, kernel, bias=False) for name, width in widths.items())
    return tuple(tensor for one in found for tensor in one), kernel


def _widths(config: Config, hidden: int, expand_k: float) -> tuple[int, int, int, int]:
    """(heads, KV heads, width of keys, of values)."""
    heads = config.size("num_heads", default=4)
    keys = int(hidden * config.number("expand_k", default=expand_k))
    return heads, config.size("num_kv_heads", default=heads), keys, int(hidden * config.number("expand_v", default=1.0))


def _out(hidden: int, width: int) -> tuple[Tensor, ...]:
    return parts.linear("attn.o_proj", hidden, width, "mixer", shard=1)


def _gla(config: Config, hidden: int) -> Mixed:
    """Gated linear attention: decay through a narrow matrix (arXiv 2312.06635)."""
    heads, kv_heads, keys, values = _widths(config, hidden, 0.5)
    share = max(1, heads // kv_heads)
    gated = values if config.flag("use_output_gate", default=True) else 0
    convs, reach = _convolved(config, False, q=keys, k=keys // share, v=values // share)
    normed = config.flag("elementwise_affine", default=True)
    kind = GatedDeltaNet(key_heads=heads, value_heads=heads, key_dim=keys // heads, value_dim=values // heads, conv=reach)
    return kind, (
        *_linears(hidden, q=keys, k=keys // share, v=values // share, g=gated),
        *convs,
        *parts.linear("attn.gk_proj.0", _LOW_RANK, hidden, "mixer", shard=None),
        *parts.linear("attn.gk_proj.1", keys // share, _LOW_RANK, "mixer", shard=0, bias=True),
        *(parts.norms(values // heads, "attn.g_norm") if normed else ()),
        *_out(hidden, values),
    )


def _gsa(config: Config, hidden: int) -> Mixed:
    """Gated slot attention: a state of slots (arXiv 2409.07146)."""
    heads, kv_heads, keys, values = _widths(config, hidden, 1.0)
    share, slots = max(1, heads // kv_heads), config.size("num_slots", default=64)
    convs, reach = _convolved(config, False, q=keys, k=keys // share, v=values // share)
    each = keys // heads + values // heads
    return GatedDeltaNet(key_heads=heads, value_heads=heads, key_dim=slots, value_dim=each, conv=reach), (
        *_linears(hidden, q=keys, k=keys // share, v=values // share, f=kv_heads * slots),
        *convs,
        *(parts.norms(hidden, "attn.g_norm") if config.flag("elementwise_affine", default=True) else ()),
        *_out(hidden, values),
    )


def _delta(config: Config, hidden: int) -> Mixed:
    """DeltaNet (arXiv 2406.06484)."""
    config = Config({"num_heads": 16, **config.raw}, config.path)
    heads, _, keys, values = _widths(config, hidden, 1.0)
    convs, reach = _convolved(config, True, q=keys, k=keys, v=values)
    writes = heads if config.flag("use_beta", default=True) else 0
    gate = values if config.flag("use_gate", default=False) else 0
    kind = GatedDeltaNet(key_heads=heads, value_heads=heads, key_dim=keys // heads, value_dim=values // heads, conv=reach)
    return kind, (
        *_linears(hidden, q=keys, k=keys, v=values, b=writes, g=gate),
        *convs,
        *parts.norms(values // heads, "attn.o_norm"),
        *_out(hidden, values),
    )


def _gated_delta(config: Config, hidden: int) -> Mixed:
    """Gated DeltaNet (arXiv 2412.06464): head widths are given, not computed."""
    heads, width = config.size("num_heads", default=6), config.size("head_dim", default=256)
    groups = config.size("num_v_heads", default=heads)
    each = int(width * config.number("expand_v", default=2.0))
    keys, values = heads * width, groups * each
    convs, reach = _convolved(config, True, q=keys, k=keys, v=values)
    gate = values if config.flag("use_gate", default=True) else 0
    return GatedDeltaNet(key_heads=heads, value_heads=groups, key_dim=width, value_dim=each, conv=reach), (
        *_linears(hidden, q=keys, k=keys, v=values, a=groups, b=groups, g=gate),
        *convs,
        state_space.state("attn.A_log", groups),
        state_space.state("attn.dt_bias", groups),
        *parts.norms(each, "attn.o_norm"),
        *_out(hidden, values),
    )


def _hgrn2(config: Config, hidden: int) -> Mixed:
    """HGRN 2 (arXiv 2404.07904): a state of ``expand_ratio`` for each head."""
    ratio = config.size("expand_ratio", default=128)
    heads = config.size("num_heads", default=max(1, hidden // ratio))
    forgets = heads * ratio
    convs, reach = _convolved(config, False, q=forgets, f=forgets, i=hidden)
    kind = GatedDeltaNet(key_heads=heads, value_heads=heads, key_dim=ratio, value_dim=hidden // heads, conv=reach)
    return kind, (
        *_linears(hidden, q=forgets, f=forgets, i=hidden),
        *convs,
        *(parts.norms(hidden, "attn.g_norm") if config.flag("elementwise_affine", default=True) else ()),
        *_out(hidden, hidden),
    )


_MIXERS: dict[str, Callable[[Config, int], Mixed]] = {
    "gla": _gla, "gsa": _gsa, "delta_net": _delta, "gated_deltanet": _gated_delta, "hgrn2": _hgrn2,
}  # fmt: skip
