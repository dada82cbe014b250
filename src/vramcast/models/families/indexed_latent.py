"""A.X K2 and Mistral Large 4: latent attention with an indexer; A.X K2 has one projection for queries and gate, and gated norms.

Source of names and shapes: transformers 5.23, modeling_axk2.py and modeling_mistral_large4.py.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import latent, mixtures, parts, skeleton, spans
from vramcast.models.families.mixtures import Mixture, shared_count
from vramcast.models.families.skeleton import Override, Style
from vramcast.models.inventory import Model, Tensor
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention

_MIXTURE = Mixture(sparse=mixtures.after_one, routed="n_routed_experts", shared=shared_count())


def read(config: Config, *, prefix: str = "model.") -> Model:
    """An A.X K2 or Mistral Large 4 text model."""
    return skeleton.read(config, STYLES[config.text("model_type")], prefix=prefix)


def _indexed(config: Config, *, rope: int) -> LatentAttention:
    return msgspec.structs.replace(
        latent.latent_kind(config), rope_dim=rope, indexer=latent.indexer_of(config) if _has_indexer(config) else None
    )


def _has_indexer(config: Config) -> bool:
    return config.flag("has_indexer", default=True)


def _axk2(config: Config, style: Style, span: spans.Span) -> tuple[LatentAttention, tuple[Tensor, ...]]:
    """Queries and the gate on values come out of one projection, which reads the query's low rank twice over."""
    hidden, name = config.size("hidden_size"), "self_attn."
    kind = _indexed(config, rope=config.size("qk_rope_head_dim"))
    bias, rank = config.flag("attention_bias", default=False), config.size("q_lora_rank")
    joined = kind.heads * (kind.head_dim + kind.value_dim)
    return kind, (
        *parts.linear(f"{name}q_a_proj", rank, hidden, "q_a", shard=None, bias=bias),
        *parts.norms(rank, f"{name}q_a_layernorm"),
        *parts.linear(f"{name}q_gate_proj", joined, 2 * rank, "q_b", shard=0, groups=kind.heads),
        *latent.compressed(kind, hidden, bias=bias),
        *latent.indexer_tensors(kind, hidden),
    )


def _axk2_norms(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """Norms with a gate of low rank; the one before a dense MLP has none."""
    hidden, rank = config.size("hidden_size"), config.size("gated_norm_rank", default=16)
    gated = ("input_layernorm", "post_attention_layernorm") if isinstance(feed, Experts) else ("input_layernorm",)
    plain = () if isinstance(feed, Experts) else ("post_attention_layernorm",)
    return (
        *parts.norms(hidden, *(f"{name}.norm" for name in gated), *plain),
        *(t for name in gated for t in parts.linear(f"{name}.mlp.fc1", rank, hidden, "mixer", shard=None)),
        *(t for name in gated for t in parts.linear(f"{name}.mlp.fc2", hidden, rank, "mixer", shard=None)),
    )


def _large(config: Config, style: Style, span: spans.Span) -> tuple[LatentAttention, tuple[Tensor, ...]]:
    """Mistral Large 4: layers without positions keep none in the cache, and heads of the same width without rotation."""
    hidden, rope, name = config.size("hidden_size"), config.size("qk_rope_head_dim"), "self_attn."
    turned = config.flag("turned", default=True)
    kind = _indexed(config, rope=rope if turned else 0)
    kind = msgspec.structs.replace(kind, nope_dim=kind.nope_dim + (0 if turned else rope), query_rank=0)
    bias, shares = config.flag("attention_bias", default=False), config.flag("shares_cache", default=False)
    return kind, (
        *parts.linear(f"{name}q_proj", kind.heads * kind.head_dim, hidden, "q", shard=0, groups=kind.heads),
        *latent.compressed(kind, hidden, bias=bias, owns=not shares),
        *_scaling(f"{name}softmax_scaling.", kind.heads),
        *(_large_indexer(kind, hidden) if kind.indexer else ()),
    )


def _scaling(name: str, heads: int) -> tuple[Tensor, ...]:
    """A factor and an offset for each head's scores."""
    return tuple(Tensor(name=f"{name}{each}", shape=(heads,), role="state") for each in ("scale", "bias"))


def _large_indexer(kind: LatentAttention, hidden: int) -> tuple[Tensor, ...]:
    """As DeepSeek's, its queries projected from the normalised input."""
    name = "self_attn.indexer."
    heads = kind.indexer.heads if kind.indexer else 0
    plain = latent.indexer_tensors(msgspec.structs.replace(kind, query_rank=hidden), hidden)
    return (*plain, *parts.norms(hidden, f"{name}q_input_norm", bias=True), *_scaling(f"{name}softmax_scaling.", heads))


def _large_layers(config: Config, reach: list[spans.Span]) -> list[Override]:
    """Per layer: whether positions turn it (``no_rope_layers``, 1 = yes), whose cache it reads, whether it has an indexer."""
    count = len(reach)
    turned = config.switches("no_rope_layers", count) or [(i + 1) % _interval(config) != 0 for i in range(count)]
    sources = config.sizes("kv_source_layers", count) or [*range(count)]
    indexers = latent.indexer_types(config, count)
    return [
        (("turned", int(turned[i])), ("shares_cache", int(sources[i] != i)), ("has_indexer", int(indexers[i] == "full")))
        for i in range(count)
    ]


def _interval(config: Config) -> int:
    return config.size("no_rope_layer_interval", default=4)


STYLES: dict[str, Style] = {
    "axk2": Style(
        attend=_axk2, norms=(), extra=_axk2_norms,
        mixture=msgspec.structs.replace(_MIXTURE, correction="mlp.gate.e_score_correction_bias"),
    ),
    "mistral_large4_text": Style(attend=_large, overrides=_large_layers, mixture=_MIXTURE),
}  # fmt: skip
