"""DeepSeek and the classes that took over its latent attention (MLA), with or without an indexer, dense or mixed.

Source: DeepSeek-V2 (arXiv 2405.04434) and -V3 (arXiv 2412.19437); names and shapes from each class in transformers 5.23.
"""

import msgspec

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import draft, mixtures, parts, skeleton, spans
from vramcast.models.families.mixtures import Mixture, shared_count
from vramcast.models.families.skeleton import Override, Style
from vramcast.models.inventory import Model, Tensor
from vramcast.models.layers import Attention, Dense, Experts, Indexer, LatentAttention


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A model with multi-head latent attention."""
    return skeleton.read(config, STYLES[config.text("model_type")], prefix=prefix)


def latent_kind(config: Config) -> LatentAttention:
    """Latent attention as DeepSeek's keys give it."""
    return LatentAttention(
        heads=config.size("num_attention_heads"),
        query_rank=config.integer("q_lora_rank", default=0),
        kv_rank=config.size("kv_lora_rank"),
        nope_dim=config.size("qk_nope_head_dim"),
        rope_dim=config.size("qk_rope_head_dim"),
        value_dim=config.size("v_head_dim"),
    )


def latent(config: Config, style: Style, span: spans.Span) -> tuple[LatentAttention, tuple[Tensor, ...]]:
    """Latent attention and its tensors; queries are projected directly when ``q_lora_rank`` is null or 0."""
    indexer = indexer_of(config) if config.flag("has_indexer", default=False) else None
    kind = msgspec.structs.replace(latent_kind(config), window=span.window, indexer=indexer)
    hidden = config.size("hidden_size")
    bias = skeleton.switched(config, style.qkv_bias)
    return kind, (*latent_tensors(kind, hidden, bias=bias), *(indexer_tensors(kind, hidden) if kind.indexer else ()))


def _evenly(config: Config, style: Style, span: spans.Span) -> tuple[LatentAttention, tuple[Tensor, ...]]:
    """MiniCPM3's published configs leave values' width out: the hidden size over the heads (modeling_minicpm.py beside them)."""
    width = config.size("hidden_size") // config.size("num_attention_heads")
    return latent(Config({"v_head_dim": width, **config.raw}, config.path), style, span)


def latent_tensors(kind: LatentAttention, hidden: int, *, bias: bool = False, prefix: str = "self_attn.") -> tuple[Tensor, ...]:
    """Down-projections are held whole by every rank, up-projections are cut in heads (arXiv 2405.04434, 2.1.2)."""
    queries = kind.heads * kind.head_dim
    if kind.query_rank:
        query = (
            *parts.linear(f"{prefix}q_a_proj", kind.query_rank, hidden, "q_a", shard=None, bias=bias),
            *parts.norms(kind.query_rank, f"{prefix}q_a_layernorm"),
            *parts.linear(f"{prefix}q_b_proj", queries, kind.query_rank, "q_b", shard=0, groups=kind.heads),
        )
    else:
        query = parts.linear(f"{prefix}q_proj", queries, hidden, "q", shard=0, groups=kind.heads)
    return (*query, *compressed(kind, hidden, bias=bias, prefix=prefix))


def compressed(
    kind: LatentAttention, hidden: int, *, bias: bool = False, prefix: str = "self_attn.", owns: bool = True
) -> tuple[Tensor, ...]:
    """All but the queries: what is cached, its expansion and the output; ``owns`` false: an earlier layer's cache is read."""
    values = kind.heads * (kind.nope_dim + kind.value_dim)
    cached = (
        *parts.linear(f"{prefix}kv_a_proj_with_mqa", kind.cache_elements, hidden, "kv_a", shard=None, bias=bias),
        *parts.norms(kind.kv_rank, f"{prefix}kv_a_layernorm"),
    )
    return (
        *(cached if owns else ()),
        *parts.linear(f"{prefix}kv_b_proj", values, kind.kv_rank, "kv_b", shard=0, groups=kind.heads),
        *parts.output(kind, hidden, f"{prefix}o_proj", bias=bias),
    )


def indexer_of(config: Config) -> Indexer:
    """The indexer's sizes as DeepSeek's keys give them."""
    return Indexer(heads=config.size("index_n_heads"), head_dim=config.size("index_head_dim"), top_k=config.size("index_topk"))


def indexer_tensors(kind: LatentAttention, hidden: int, *, prefix: str = "self_attn.indexer.") -> tuple[Tensor, ...]:
    """The lightning indexer of DeepSeek-V3.2, held whole by every rank."""
    indexer = kind.indexer
    if indexer is None:
        return ()
    return (
        *parts.linear(f"{prefix}wq_b", indexer.heads * indexer.head_dim, kind.query_rank, "indexer", shard=None),
        *parts.linear(f"{prefix}wk", indexer.head_dim, hidden, "indexer", shard=None),
        *parts.norms(indexer.head_dim, f"{prefix}k_norm", bias=True),
        *parts.linear(f"{prefix}weights_proj", indexer.heads, hidden, "indexer", shard=None),
    )


def _indexed(config: Config, reach: list[spans.Span]) -> list[Override]:
    """Every layer has its indexer."""
    return [(("has_indexer", 1),)] * len(reach)


def _partly_indexed(config: Config, reach: list[spans.Span]) -> list[Override]:
    """Layers that reuse the selection of an earlier one have no indexer (GLM-5): a list, a pattern of F and S, or a period."""
    return [(("has_indexer", int(kind == "full")),) for kind in indexer_types(config, len(reach))]


def indexer_types(config: Config, count: int) -> list[str]:
    """Which layers have an indexer ("full") and which reuse an earlier one's selection ("shared")."""
    pattern = config.raw.get("indexer_types") or config.raw.get("index_topk_pattern")
    if isinstance(pattern, list | str) and pattern:
        types = [{"F": "full", "S": "shared"}.get(str(kind), str(kind)) for kind in pattern]
        if unknown := set(types) - {"full", "shared"}:
            raise UnmodelledError(f"{config.path}: indexer_types has {min(unknown)[:40]!r}, known are 'full' and 'shared'")
        if len(types) < count:
            raise ConfigError(f"{config.path}: indexer_types has {len(types)} entries for {count} layers")
        return types[:count]
    step = max(1, config.integer("index_topk_freq", default=1))
    offset = config.integer("index_skip_topk_offset", default=2)
    return ["full" if max(i - offset + 1, 0) % step == 0 else "shared" for i in range(count)]


def _after_mlp(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """A norm after the experts (A.X K1)."""
    return parts.norms(config.size("hidden_size"), "mlp.post_mlp_layernorm") if isinstance(feed, Experts) else ()


def _hy4(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """HY 4's sinks and output gate, and the mixing of its residual streams before each half of a layer."""
    hidden, streams = config.size("hidden_size"), config.size("hc_mult", default=4)
    width = kind.heads * config.size("v_head_dim")
    return (
        *parts.sinks(kind),
        *parts.linear("self_attn.gate_proj", width, hidden, "q", shard=0, groups=kind.heads),
        *(tensor for half in ("attn_hc", "ffn_hc") for tensor in _streams(f"{half}.", 2 * streams, streams * hidden, 2)),
    )


def _streams(name: str, outputs: int, inputs: int, scales: int) -> tuple[Tensor, ...]:
    shapes = {"fn": (outputs, inputs), "base": (outputs,), "scale": (scales,)}
    return tuple(Tensor(name=f"{name}{each}", shape=shape, role="state") for each, shape in shapes.items())


def _hy4_end(config: Config, prefix: str) -> tuple[Tensor, ...]:
    """The streams are joined before the head."""
    streams = config.size("hc_mult", default=4)
    return _streams(f"{prefix}hc_head.hc_", streams, streams * config.size("hidden_size"), 1)


def _hy4_indexed(config: Config, reach: list[spans.Span]) -> list[Override]:
    """The first layer and every fourth from the second on have an indexer (HY 4)."""
    told = config.has("indexer_types")
    usual = ["full" if i == 0 or (i - 1) % 4 == 0 else "shared" for i in range(len(reach))]
    return [(("has_indexer", int(k == "full")),) for k in (indexer_types(config, len(reach)) if told else usual)]


def _dots_layers(config: Config, reach: list[spans.Span]) -> list[Override]:
    """``per_layer_config`` gives sliding layers sizes of their own; the others have an indexer (dots 3)."""
    own = config.optional_child("per_layer_config")
    said = {int(place): own.child(place).raw for place in own.raw if place.isdigit()} if own else {}
    return [(("has_indexer", int(not span.window)), *sorted(said.get(i, {}).items())) for i, span in enumerate(reach)]


def _dots_gate(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """A gate for each head, and a norm of the rotary key."""
    gate = parts.linear("self_attn.g_proj", kind.heads, config.size("hidden_size"), "q", shard=0, groups=kind.heads)
    return (*gate, *parts.norms(kind.rope_dim, "self_attn.k_rope_only_layernorm"))


_V2 = Mixture(sparse=mixtures.after_dense, routed="n_routed_experts", shared=shared_count(), shared_bias="mlp_bias")
_V3 = Mixture(
    sparse=mixtures.after_dense,
    routed="n_routed_experts",
    shared=shared_count(),
    correction="mlp.gate.e_score_correction_bias",
)

_V3_AFTER_ONE = msgspec.structs.replace(_V3, sparse=mixtures.after_one)
_V3_FIRST_DENSE = msgspec.structs.replace(_V3, sparse=mixtures.first_dense)

STYLES: dict[str, Style] = {
    "deepseek_v2": Style(attend=latent, mlp_bias="mlp_bias", mixture=_V2),
    "deepseek_v3": Style(attend=latent, mixture=_V3, mtp=draft.deepseek),
    "deepseek_v32": Style(attend=latent, overrides=_indexed, mixture=_V3, mtp=draft.deepseek),
    "glm_moe_dsa": Style(attend=latent, overrides=_partly_indexed, mixture=_V3, mtp=draft.deepseek),
    "glm4_moe_lite": Style(attend=latent, mixture=_V3_FIRST_DENSE, mtp=draft.deepseek),
    "dots3_note_text": Style(attend=latent, overrides=_dots_layers, extra=_dots_gate, mixture=_V3_FIRST_DENSE),
    "hy_v4": Style(attend=latent, overrides=_hy4_indexed, extra=_hy4, outer=_hy4_end, mixture=_V3_FIRST_DENSE),
    "mistral4": Style(attend=latent, mixture=_V2),
    "axk1": Style(attend=latent, mixture=_V3_AFTER_ONE, extra=_after_mlp),
    "minicpm3": Style(attend=_evenly, mlp_bias="mlp_bias"),
    "youtu": Style(attend=latent, mlp_bias="mlp_bias"),
}
