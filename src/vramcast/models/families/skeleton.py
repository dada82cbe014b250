"""The Llama skeleton: pre- or post-norms around attention and an MLP or experts. What sets its many classes apart is a ``Style``.

A style is one row of a table in ``llama`` or ``mixture``; fields that are a config field's name are looked up in the config.
Source of names and shapes: the modeling file of each class in transformers 5.23, and the checkpoints' index files.
"""

from collections.abc import Callable

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts, spans
from vramcast.models.families.mixtures import Mixture
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention

GEMMA_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
GLM4_NORMS = ("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")
Switch = bool | str
Attend = Callable[[Config, "Style", spans.Span], tuple[Attention | LatentAttention, tuple[Tensor, ...]]]
Extra = Callable[[Config, Attention | LatentAttention, Dense | Experts], tuple[Tensor, ...]]
Outer = Callable[[Config, str], tuple[Tensor, ...]]
Draft = Callable[[Config, tuple[Block, ...]], tuple[Tower, ...]]
Override = tuple[tuple[str, int], ...]
Overrides = Callable[[Config, list[spans.Span]], list[Override]]


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How one class differs from Llama. A ``Switch`` is a fact of the class, or the name of the config flag that decides.

    ``span``: how far each layer sees. ``qkv_bias``, ``out_bias``, ``mlp_bias``, ``norm_bias``, ``head_bias``: which parts have
    biases; ``fused_qkv``: one tensor for q, k and v. ``out``, ``qk_names``, ``mlp_names``, ``mlp_prefix``, ``norms``,
    ``final_norm``, ``embedding``: names of tensors. ``head_dim``: the config may state it; ``value_dim``: the field that states a
    value head's, "" = the same. ``sinks``, ``softcap``: as in ``Attention``. ``tied``: the default of the config class.
    ``intermediate``: the config field of the MLP's width; ``mixture``: experts in sparse layers, None = none.
    ``qk_norm`` is how wide query and key norms are, "" = none: "head" (one head), "all" (the whole projection), "heads" (a
    matrix of head by width), "each" (a module per head). ``mlp`` is "gated", "fused" (gate and up in one tensor) or "plain".
    ``attend`` replaces grouped attention; ``extra`` and ``outer`` add to a layer and to the model. ``overrides`` gives the
    config fields that differ by layer. ``mtp`` gives the draft layers that are stored and not loaded.
    """

    span: spans.Rule = spans.full
    qkv_bias: Switch = "attention_bias"
    out_bias: Switch = "attention_bias"
    fused_qkv: bool = False
    out: str = "o_proj"
    qk_norm: str = ""
    qk_norm_if: Switch = True
    qk_names: tuple[str, str] = ("q_norm", "k_norm")
    qk_bias: bool = False
    sinks: Switch = False
    mlp: str = "gated"
    mlp_names: tuple[str, str] = ("up_proj", "down_proj")
    mlp_bias: Switch = False
    mlp_prefix: str = "mlp."
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    norm_bias: Switch = False
    final_norm: str = "norm"
    embedding: str = "embed_tokens"
    head_bias: Switch = False
    head_dim: bool = True
    value_dim: str = ""
    softcap: bool = False
    tied: bool = False
    mixture: Mixture | None = None
    extra: Extra | None = None
    outer: Outer | None = None
    attend: Attend | None = None
    intermediate: str = "intermediate_size"
    overrides: Overrides | None = None
    mtp: Draft | None = None


def read(config: Config, style: Style, *, prefix: str = "model.") -> Model:
    """The model of a config in that style."""
    hidden, count = config.size("hidden_size"), config.size("num_hidden_layers")
    sparse = style.mixture.sparse(config, count) if style.mixture else [False] * count
    reach = spans.of(config, count, style.span)
    changes = style.overrides(config, reach) if style.overrides else [()] * count
    keys = zip(reach, sparse, changes, strict=True)
    norm_bias = switched(config, style.norm_bias)
    blocks = parts.stack(keys, lambda key: layer(config, style, *key, name=f"{prefix}layers.{{}}."))
    drafts = 0 if style.mtp else config.integer("num_nextn_predict_layers", "num_mtp_modules", default=0, most=64)
    return parts.decoder(
        config,
        hidden=hidden,
        prefix=prefix,
        embedding=f"{prefix}{style.embedding}.weight",
        unmodelled=(f"{drafts} draft layers that the checkpoint may store",) if drafts else (),
        blocks=blocks,
        norm=parts.norms(hidden, f"{prefix}{style.final_norm}", bias=norm_bias) if style.final_norm else (),
        head_bias=switched(config, style.head_bias),
        tied=style.tied,
        extra=style.outer(config, prefix) if style.outer else (),
        towers=style.mtp(config, blocks) if style.mtp else (),
    )


def layer(config: Config, style: Style, span: spans.Span, sparse: bool, override: Override, *, name: str) -> Block:
    """One layer with that span, dense or sparse, with the config fields of its own."""
    config = Config({**config.raw, **dict(override)}, config.path) if override else config
    hidden = config.size("hidden_size")
    kind, projections = (style.attend or grouped)(config, style, span)
    feed, feed_tensors = _feed_forward(config, style, hidden, sparse)
    return Block(
        name=name,
        indices=(),
        mixers=(kind,),
        feedforward=feed,
        shares_cache=config.flag("shares_cache", default=False),
        tensors=(
            *projections,
            *feed_tensors,
            *parts.norms(hidden, *style.norms, bias=switched(config, style.norm_bias)),
            *(style.extra(config, kind, feed) if style.extra else ()),
        ),
    )


def switched(config: Config, switch: Switch) -> bool:
    """The value of a style's switch in this config."""
    return config.flag(switch, default=False) if isinstance(switch, str) else switch


def grouped(config: Config, style: Style, span: spans.Span) -> tuple[Attention, tuple[Tensor, ...]]:
    """Grouped attention, its projections, query and key norms and sinks."""
    kind = attention_of(config, style, span)
    return kind, attention_tensors(config, style, kind, config.size("hidden_size"))


def attention_of(config: Config, style: Style, span: spans.Span) -> Attention:
    """The attention kind; ``head_dim`` is read when the class has it, else hidden / heads."""
    heads, hidden = config.size("num_attention_heads"), config.size("hidden_size")
    width = max(1, hidden // heads)
    return Attention(
        heads=heads,
        kv_heads=config.size("num_key_value_heads", default=heads),
        head_dim=config.size("head_dim", default=width) if style.head_dim else width,
        window=span.window,
        chunk=span.chunk,
        value_dim=config.size(style.value_dim, default=width) if style.value_dim else 0,
        qk_norm=bool(style.qk_norm) and switched(config, style.qk_norm_if),
        sinks=switched(config, style.sinks),
        softcap=style.softcap,
        rope_dim=rotary_width(
            config, config.size("head_dim", default=width) if style.head_dim else width, joined=style.fused_qkv
        ),
    )


def rotary_width(config: Config, head_dim: int, *, joined: bool = False) -> int:
    """Features of a head that are turned: a share of it (``partial_rotary_factor``, GPT-NeoX's ``rotary_pct``); -1 = the head.

    ``joined``: the class joins the turned part and the rest even where the turned part is all (Phi-3).
    """
    told = config.optional_child("rope_parameters")
    inside = told.number("partial_rotary_factor", default=1.0) if told else 1.0
    share = config.number("partial_rotary_factor", "rotary_pct", default=inside)
    return int(head_dim * share) if 0 < share < 1 or joined else -1


def attention_tensors(config: Config, style: Style, kind: Attention, hidden: int) -> tuple[Tensor, ...]:
    """Projections, query and key norms, sinks."""
    bias, out_bias = switched(config, style.qkv_bias), switched(config, style.out_bias)
    if style.fused_qkv:
        names = ("self_attn.qkv_proj", f"self_attn.{style.out}")
        projections = parts.fused_attention(kind, hidden, qkv=names[0], out=names[1], bias=bias, out_bias=out_bias)
    else:
        projections = parts.attention(kind, hidden, bias=bias, out_bias=out_bias, out=style.out)
    return (*projections, *(_qk_norms(style, kind) if kind.qk_norm else ()), *(parts.sinks(kind) if kind.sinks else ()))


def _qk_norms(style: Style, kind: Attention) -> tuple[Tensor, ...]:
    query, key = (f"self_attn.{name}" for name in style.qk_names)
    if style.qk_norm == "head":
        return parts.norms(kind.head_dim, query, key, bias=style.qk_bias)
    if style.qk_norm == "each":
        per_head = [f"{query}.norms.{i}" for i in range(kind.heads)] + [f"{key}.norms.{i}" for i in range(kind.kv_heads)]
        return parts.norms(kind.head_dim, *per_head)
    flat = style.qk_norm == "all"
    return tuple(
        Tensor(
            name=f"{name}.weight",
            shape=(heads * kind.head_dim,) if flat else (heads, kind.head_dim),
            role="norm",
            shard=0,
            groups=heads,
        )
        for name, heads in ((query, kind.heads), (key, kind.kv_heads))
    )


def _feed_forward(config: Config, style: Style, hidden: int, sparse: bool) -> tuple[Dense | Experts, tuple[Tensor, ...]]:
    if sparse and style.mixture:
        mixed = style.mixture.kind(config)
        return mixed, style.mixture.tensors(config, mixed, hidden)
    kind = Dense(
        intermediate=config.size(*dict.fromkeys((style.intermediate, "intermediate_size"))),
        gated=style.mlp != "plain",
        activation=config.text("hidden_act", "hidden_activation", "activation_function", default="silu"),
    )
    return kind, mlp_tensors(style, kind, hidden, bias=switched(config, style.mlp_bias))


def mlp_tensors(style: Style, kind: Dense, hidden: int, *, bias: bool) -> tuple[Tensor, ...]:
    """The dense MLP of a layer."""
    if style.mlp == "fused":
        return parts.fused_mlp(kind, hidden, prefix=style.mlp_prefix, bias=bias)
    if style.mlp == "plain":
        up, down = (f"{style.mlp_prefix}{name}" for name in style.mlp_names)
        return parts.plain_mlp(kind, hidden, up, down, bias=bias)
    return parts.gated_mlp(kind, hidden, prefix=style.mlp_prefix, bias=bias)
