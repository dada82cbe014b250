"""Gemma 3n and Gemma 4: an embedding for every layer, layers that read an earlier layer's cache, and, in 4, wider global heads.

Source: transformers 5.23, models/gemma3n and models/gemma4 (modeling and configuration files).
"""

import msgspec

from vramcast.errors import ConfigError
from vramcast.models.config import Config
from vramcast.models.families import parts, skeleton, spans
from vramcast.models.families.skeleton import GEMMA_NORMS, Override, Style
from vramcast.models.families.stacked import Stacked
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention

_SHARED = ("self_attn.k_", "self_attn.v_")
_MIXED_NORMS = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A Gemma 3n or Gemma 4 text decoder."""
    style = STYLES[config.text("model_type")]
    model = skeleton.read(config, style, prefix=prefix)
    return msgspec.structs.replace(model, towers=(*model.towers, *_unused(config, style, model)))


def _unused(config: Config, style: Style, model: Model) -> tuple[Tower, ...]:
    """Keys and values of layers that read another's cache: the checkpoint stores them, nothing loads them."""
    blocks = tuple(
        Block(name=block.name, indices=block.indices, tensors=_keys_and_values(config, style, block))
        for block in model.blocks
        if block.shares_cache
    )
    return (Tower(name="unused_kv", kind="unused", blocks=blocks, stored_only=True),) if blocks else ()


def _keys_and_values(config: Config, style: Style, block: Block) -> tuple[Tensor, ...]:
    kind = block.mixers[0]
    tensors = skeleton.attention_tensors(config, style, kind, config.size("hidden_size")) if isinstance(kind, Attention) else ()
    return tuple(t for t in tensors if t.name.startswith(_SHARED))


def attend(config: Config, style: Style, span: spans.Span) -> tuple[Attention, tuple[Tensor, ...]]:
    """Attention whose keys may be its values, or belong to an earlier layer."""
    kind = skeleton.attention_of(config, style, span)
    if config.flag("attention_k_eq_v", default=False) and not span.window:
        kind = Attention(
            heads=kind.heads,
            kv_heads=kind.kv_heads,
            head_dim=kind.head_dim,
            qk_norm=True,
            softcap=kind.softcap,
            value_is_key=True,
        )
    tensors = skeleton.attention_tensors(config, style, kind, config.size("hidden_size"))
    absent = _absent(kind, shared=config.flag("shares_cache", default=False))
    return kind, tuple(t for t in tensors if not t.name.startswith(absent))


def _absent(kind: Attention, *, shared: bool) -> tuple[str, ...]:
    """Names of the projections and norms such a layer does without."""
    if shared:
        return _SHARED
    return ("self_attn.v_",) if kind.value_is_key else ()


DRAFTS = "reads_the_cache_of_its_target"
"""Set for an assistant: no layer of its own writes a cache, those of the model it drafts for do."""


def _sharing(config: Config, count: int) -> list[bool]:
    """The last ``num_kv_shared_layers`` layers read the cache of the last earlier layer of their kind."""
    shared = config.integer("num_kv_shared_layers", default=0)
    if shared >= count and not config.flag(DRAFTS, default=False):
        raise ConfigError(f"{config.path}: num_kv_shared_layers is {shared}, all {count} layers would read a cache nobody writes")
    return [i >= count - shared for i in range(count)]


def _widths(config: Config, reach: list[spans.Span]) -> list[Override]:
    """Gemma 3n: the MLP's width is a list over the layers."""
    listed = isinstance(config.raw.get("intermediate_size"), list)
    widths = config.sizes("intermediate_size", len(reach)) if listed else [config.size("intermediate_size")] * len(reach)
    if not widths:
        raise ConfigError(f"{config.path}: intermediate_size is an empty list")
    shared = _sharing(config, len(reach))
    return [(("intermediate_size", widths[i]), ("shares_cache", int(shared[i]))) for i in range(len(reach))]


def _global_heads(config: Config, reach: list[spans.Span]) -> list[Override]:
    """Gemma 4: global layers have their own head width and KV heads; sharing layers may have twice the MLP."""
    wide = config.size("global_head_dim", default=512)
    kv_heads = config.size("num_key_value_heads")
    if config.flag("attention_k_eq_v", default=False):
        kv_heads = config.size("num_global_key_value_heads", default=kv_heads)
    double = config.flag("use_double_wide_mlp", default=False)
    width = config.size("intermediate_size")
    return [
        (
            ("shares_cache", int(shares)),
            ("intermediate_size", width * 2 if double and shares else width),
            *(() if span.window else (("head_dim", wide), ("num_key_value_heads", kv_heads))),
        )
        for span, shares in zip(reach, _sharing(config, len(reach)), strict=True)
    ]


def _gemma4_spans(config: Config, count: int) -> list[spans.Span]:
    """Every sixth layer and the last see everything."""
    return [*spans.every(6)(config, count)[:-1], spans.FULL]


def _per_layer(config: Config, hidden: int) -> tuple[Tensor, ...]:
    """What one layer does with its own embedding of each token."""
    width = config.integer("hidden_size_per_layer_input", default=0)
    if not width:
        return ()
    return (
        *parts.linear("per_layer_input_gate", width, hidden, "mixer", shard=None),
        *parts.linear("per_layer_projection", hidden, width, "mixer", shard=None),
        *parts.norms(hidden, "post_per_layer_input_norm"),
    )


def _gemma3n_layer(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """AltUp (arXiv 2301.13310), the low-rank residual Laurel (arXiv 2411.07501), and the per-layer embedding."""
    hidden, inputs, rank = config.size("hidden_size"), config.size("altup_num_inputs"), config.size("laurel_rank")
    return (
        Tensor(name="altup.correct_output_scale", shape=(hidden,), role="norm"),
        *parts.linear("altup.correction_coefs", inputs, inputs, "mixer", shard=None),
        *parts.linear("altup.prediction_coefs", inputs**2, inputs, "mixer", shard=None),
        *parts.linear("altup.modality_router", inputs, hidden, "mixer", shard=None),
        *parts.norms(hidden, "altup.router_norm", "laurel.post_laurel_norm"),
        *parts.linear("laurel.linear_left", rank, hidden, "mixer", shard=None),
        *parts.linear("laurel.linear_right", hidden, rank, "mixer", shard=None),
        *_per_layer(config, hidden),
    )


def _gemma4_layer(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """A scalar, the per-layer embedding, and what mixture layers have beside their experts."""
    hidden = config.size("hidden_size")
    scalar = Tensor(name="layer_scalar", shape=(1,), role="state", kind="buffer")
    if not isinstance(feed, Experts):
        return (scalar, *_per_layer(config, hidden))
    scales = (("router.scale", hidden), ("router.per_expert_scale", feed.routed))
    return (
        scalar,
        *_per_layer(config, hidden),
        *parts.norms(hidden, *_MIXED_NORMS),
        *(Tensor(name=name, shape=(width,), role="router") for name, width in scales),
    )


def _outer(config: Config, prefix: str) -> tuple[Tensor, ...]:
    """The table of per-layer embeddings and its projection."""
    width, count = config.integer("hidden_size_per_layer_input", default=0), config.size("num_hidden_layers")
    if not width:
        return ()
    rows, hidden = config.size("vocab_size_per_layer_input"), config.size("hidden_size")
    return (
        Tensor(name=f"{prefix}embed_tokens_per_layer.weight", shape=(rows, count * width), role="embedding", shard=0),
        *parts.linear(f"{prefix}per_layer_model_projection", count * width, hidden, "mixer", shard=None),
        *parts.norms(width, f"{prefix}per_layer_projection_norm"),
    )


def _gemma3n_outer(config: Config, prefix: str) -> tuple[Tensor, ...]:
    """AltUp's projections into and out of its parallel inputs."""
    hidden, inputs = config.size("hidden_size"), config.size("altup_num_inputs")
    names = [f"{prefix}altup_{way}.{i}" for way in ("projections", "unembed_projections") for i in range(inputs - 1)]
    altup = (t for name in names for t in parts.linear(name, hidden, hidden, "mixer", shard=None))
    return (*_outer(config, prefix), *altup)


def _gemma4_mixed(config: Config, count: int) -> list[bool]:
    return [config.flag("enable_moe_block", default=False)] * count


def _gemma4_shared(config: Config) -> int:
    """The dense MLP runs beside the experts."""
    return config.size("intermediate_size")


_GEMMA4 = Style(
    attend=attend, span=_gemma4_spans, overrides=_global_heads, qk_norm="head", norms=GEMMA_NORMS, extra=_gemma4_layer,
    outer=_outer, tied=True,
    mixture=Stacked(
        sparse=_gemma4_mixed, active="top_k_experts", router="router.proj", up="experts.gate_up_proj",
        down="experts.down_proj", shared=_gemma4_shared, shared_prefix="mlp.",
    ),
)  # fmt: skip

STYLES: dict[str, Style] = {
    "gemma3n_text": Style(
        attend=attend, span=spans.every(5), overrides=_widths, qk_norm="head", norms=GEMMA_NORMS, extra=_gemma3n_layer,
        outer=_gemma3n_outer, tied=True,
    ),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
}  # fmt: skip
