"""Mixtures of experts on Llama's skeleton: one row for each class.

Source of names, shapes and defaults: each class in transformers 5.23 (modeling, configuration and conversion_mapping files).
"""

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import draft, mixtures, parts, skeleton, spans
from vramcast.models.families.mixtures import Mixture, shared_count, shared_field
from vramcast.models.families.skeleton import GEMMA_NORMS, GLM4_NORMS, Override, Style
from vramcast.models.inventory import Model, Tensor
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention

_MIXTRAL = ("w1", "w3", "w2")
_FOUR_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm")
_AFTER = ("post_attention_layernorm", "post_feedforward_layernorm")


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A Llama-like model some of whose layers are mixtures of experts."""
    return skeleton.read(config, STYLES[config.text("model_type")], prefix=prefix)


def _ernie_layers(config: Config, count: int) -> list[bool]:
    """Every ``moe_layer_interval``-th layer between the start and end index (ERNIE 4.5)."""
    step, start = config.size("moe_layer_interval", default=1), config.integer("moe_layer_start_index", default=1)
    end = config.integer("moe_layer_end_index", default=-1, least=-1)
    end = end if end >= 0 else count - 1
    return mixtures.listed(config, count) or [(i + 1) % step == 0 and start <= i <= end for i in range(count)]


def _after_dense_layers(config: Config, count: int) -> list[bool]:
    """Dense for ``num_dense_layers``, then sparse (AFMoE)."""
    first = config.integer("num_dense_layers", default=0)
    return mixtures.listed(config, count) or [i >= first for i in range(count)]


def _afmoe_gate(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """An output gate as wide as the queries."""
    queries = kind.heads * kind.head_dim
    return parts.linear("self_attn.gate_proj", queries, config.size("hidden_size"), "q", shard=0, groups=kind.heads)


def _beam_gate(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """An output gate as wide as the queries, with one bias for each head."""
    bias = Tensor(name="self_attn.gate_bias", shape=(kind.heads,), role="state", shard=0, groups=kind.heads)
    return (*_afmoe_gate(config, kind, feed), bias)


def _beam_spans(config: Config, count: int) -> list[spans.Span]:
    """Every sixth layer and the last see everything (Beam)."""
    window = spans.window_of(config)
    return [spans.FULL if (i + 1) % 6 == 0 or i == count - 1 else window for i in range(count)]


def _three_dense(config: Config, count: int) -> list[bool]:
    """Sparse after three layers, unless ``mlp_layer_types`` says otherwise (Beam)."""
    return mixtures.listed(config, count) or [i >= 3 for i in range(count)]


def _laguna_gate(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """An output gate per head, or as wide as the queries when ``gating`` says so."""
    per_head = config.raw.get("gating", True) in (True, "per-head")
    width = kind.heads * (1 if per_head else kind.head_dim)
    return parts.linear("self_attn.g_proj", width, config.size("hidden_size"), "q", shard=0, groups=kind.heads)


def _laguna_heads(config: Config, reach: list[spans.Span]) -> list[Override]:
    """``num_attention_heads_per_layer``: sliding layers have more query heads (Laguna)."""
    heads = config.sizes("num_attention_heads_per_layer", len(reach))
    return [(("num_attention_heads", given),) for given in heads] or [()] * len(reach)


def _mimo_spans(config: Config, count: int) -> list[spans.Span]:
    """``hybrid_layer_pattern`` (1 = sliding), else full on the first and every sixth layer (MiMo-V2)."""
    given = config.integer("sliding_window_size", default=0)
    window = spans.Span(window=given + 1 if given else config.size("sliding_window"))  # the size leaves out the token itself
    sliding = config.switches("hybrid_layer_pattern", count) or [i > 0 and (i + 1) % 6 != 0 for i in range(count)]
    return [window if slides else spans.FULL for slides in sliding]


def _flint_spans(config: Config, count: int) -> list[spans.Span]:
    """The first two layers, the second of every four and the last see everything (Flint)."""
    window = spans.window_of(config)
    return [spans.FULL if i < 2 or i % 4 == 1 or i == count - 1 else window for i in range(count)]


def _mimo_layers(config: Config, count: int) -> list[bool]:
    """``moe_layer_freq`` as a list, else only the first layer dense."""
    return mixtures.after_dense(config, count) if config.has("moe_layer_freq") else mixtures.first_dense(config, count)


def _mimo_heads(config: Config, reach: list[spans.Span]) -> list[Override]:
    """Sliding layers have twice the KV heads and a softmax sink (MiMo-V2)."""
    kv_heads = config.size("swa_num_key_value_heads", default=2 * config.size("num_key_value_heads"))
    sliding = (("num_key_value_heads", kv_heads), ("has_sinks", 1))
    return [sliding if span.window else () for span in reach]


def _cohere_spans(config: Config, count: int) -> list[spans.Span]:
    """The dense layers in front and the mixtures behind each have a period of their own (Command A MoE)."""
    first, window = config.integer("first_k_dense_replace", default=0), spans.window_of(config)
    steps = config.size("prefix_dense_sliding_window_pattern", default=1), config.size("sliding_window_pattern", default=4)
    places = [(i, steps[0]) if i < first else (i - first, steps[1]) for i in range(count)]
    return [window if (place + 1) % step else spans.FULL for place, step in places]


def _cohere_shared(config: Config) -> int:
    return config.size("intermediate_size") * config.integer("num_shared_experts", default=0)


def _minicpm_layers(config: Config, count: int) -> list[bool]:
    """Every layer when ``num_experts`` is set, else none (MiniCPM, MiniCPM-MoE)."""
    return [config.integer("num_experts", default=0) > 0] * count


def _step_heads(config: Config, reach: list[spans.Span]) -> list[Override]:
    """Sliding layers have their own number of query heads (Step-3.7)."""
    other = config.optional_child("attention_other_setting")
    given = config.integer("num_sliding_attention_heads", default=0) or (other.size("num_attention_heads") if other else 0)
    return [(("num_attention_heads", given),) if span.window and given else () for span in reach]


def _step_layers(config: Config, count: int) -> list[bool]:
    """``moe_layers_enum`` lists the sparse layers as text or numbers, else all but the first three are."""
    given = config.raw.get("moe_layers_enum")
    places = given.split(",") if isinstance(given, str) else config.list("moe_layers_enum", default=[*range(3, count)])
    chosen = {str(place).strip() for place in places}
    return mixtures.listed(config, count) or [str(i) in chosen for i in range(count)]


def _hunyuan(config: Config, count: int) -> list[bool]:
    """Every layer; latent attention is refused."""
    if config.flag("use_mla", default=False):
        raise UnmodelledError(f"{config.path}: use_mla is true; HunYuan with latent attention has no rule here")
    return [True] * count


def _hunyuan_attend(config: Config, style: Style, span: spans.Span) -> tuple[Attention, tuple[Tensor, ...]]:
    """Hunyuan-Large's layers that read the keys and values of the one before have no projections for them."""
    kind, tensors = skeleton.grouped(config, style, span)
    shares = config.flag("shares_cache", default=False)
    return kind, tuple(t for t in tensors if not (shares and t.name.startswith(("self_attn.k_proj", "self_attn.v_proj"))))


def _shared_by(config: Config) -> int:
    """Of how many layers one keeps the keys and values (``use_cla``: cross-layer attention); 1 = each its own."""
    return config.size("cla_share_factor", default=2) if config.flag("use_cla", default=False) else 1


def _hunyuan_lists(config: Config, reach: list[spans.Span]) -> list[Override]:
    """Sizes that HunYuan's own configs give as one number or as a list over the layers."""
    names = ("num_experts", "moe_topk")
    lists = [
        (name, config.sizes(name, len(reach))) for name in names if isinstance(config.raw.get(name), list) and config.raw[name]
    ]
    factor = _shared_by(config)
    shared = [(("shares_cache", 1),) if i % factor else () for i in range(len(reach))]
    head = ("head_dim", _hunyuan_head(config))
    return [(head, *((name, given[i]) for name, given in lists), *shared[i]) for i in range(len(reach))]


def _hunyuan_head(config: Config) -> int:
    width = config.size("hidden_size") // config.size("num_attention_heads")
    return config.size("head_dim", "attention_head_dim", default=max(1, width))


def _arctic(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """Arctic's dense MLP beside the experts, as wide as the model."""
    hidden = config.size("hidden_size")
    return parts.gated_mlp(Dense(intermediate=hidden), hidden, prefix="residual_mlp.", role="shared.", names=_MIXTRAL)


def _arctic_layers(config: Config, count: int) -> list[bool]:
    """Every ``moe_layer_frequency``-th layer (Arctic)."""
    step = config.size("moe_layer_frequency", default=1)
    return [(i + 1) % step == 0 for i in range(count)]


STYLES: dict[str, Style] = {
    "mixtral": Style(
        span=spans.uniform, qkv_bias=False, out_bias=False,
        mixture=Mixture(
            routed="num_local_experts", intermediate="intermediate_size", router="block_sparse_moe.gate",
            experts="block_sparse_moe.experts.", names=_MIXTRAL,
        ),
    ),
    "qwen2_moe": Style(
        span=spans.below, qkv_bias="qkv_bias", out_bias=False,
        mixture=Mixture(
            sparse=mixtures.stepped, shared=shared_field("shared_expert_intermediate_size"), shared_prefix="mlp.shared_expert.",
            shared_gate="mlp.shared_expert_gate",
        ),
    ),
    "qwen3_moe": Style(span=spans.switched, qk_norm="head", mixture=Mixture(sparse=mixtures.stepped)),
    "mellum": Style(qk_norm="head", mixture=Mixture()),
    "olmoe": Style(qk_norm="all", mixture=Mixture(intermediate="intermediate_size")),
    "flex_olmo": Style(qk_norm="all", norms=_AFTER, mixture=Mixture(intermediate="intermediate_size")),
    "phimoe": Style(
        span=spans.uniform, norm_bias=True, head_bias="lm_head_bias",
        mixture=Mixture(
            routed="num_local_experts", intermediate="intermediate_size", router="block_sparse_moe.gate",
            experts="block_sparse_moe.experts.", names=_MIXTRAL,
        ),
    ),
    "ernie4_5_moe": Style(
        qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", head_bias="use_bias",
        mixture=Mixture(
            sparse=_ernie_layers, routed="moe_num_experts", active="moe_k", shared=shared_count("moe_num_shared_experts"),
            correction="mlp.moe_statics.e_score_correction_bias", held="frozen", shared_bias="use_bias",
        ),
    ),
    "hunyuan_v1_moe": Style(
        qk_norm="head", qk_names=("query_layernorm", "key_layernorm"),
        overrides=_hunyuan_lists, attend=_hunyuan_attend,
        mixture=Mixture(
            sparse=_hunyuan, active="moe_topk", intermediate="intermediate_size", router="mlp.gate.wg",
            shared=shared_field("intermediate_size"), shared_prefix="mlp.shared_mlp.",
        ),
    ),
    "glm4_moe": Style(
        out_bias=False, qk_norm="head", qk_norm_if="use_qk_norm", mtp=draft.deepseek,
        mixture=Mixture(
            sparse=mixtures.after_dense, routed="n_routed_experts", shared=shared_count(),
            correction="mlp.gate.e_score_correction_bias",
        ),
    ),
    "deepseek": Style(
        mlp_bias="mlp_bias",
        mixture=Mixture(
            sparse=mixtures.after_dense, routed="n_routed_experts", shared=shared_count(), shared_bias="mlp_bias"
        ),
    ),
    "dots1": Style(
        span=spans.above, qk_norm="head",
        mixture=Mixture(
            sparse=mixtures.after_dense, routed="n_routed_experts", shared=shared_count(),
            correction="mlp.gate.e_score_correction_bias",
        ),
    ),
    "solar_open": Style(
        out_bias=False,
        mixture=Mixture(routed="n_routed_experts", shared=shared_count(), correction="mlp.gate.e_score_correction_bias"),
    ),
    "exaone_moe": Style(
        span=spans.every(4), qkv_bias=False, out_bias=False, qk_norm="head",
        mixture=Mixture(
            sparse=mixtures.after_dense, shared=shared_count("num_shared_experts"), correction="mlp.e_score_correction_bias",
        ),
    ),
    "hy_v3": Style(
        qk_norm="head", mlp_bias="mlp_bias",
        mixture=Mixture(
            sparse=mixtures.first_dense, shared=shared_count("num_shared_experts"), correction="mlp.e_score_correction_bias",
            shared_bias="mlp_bias",
        ),
    ),
    "minimax_m2": Style(
        qkv_bias=False, out_bias=False, qk_norm="all",
        mixture=Mixture(
            routed="num_local_experts", intermediate="intermediate_size", router="block_sparse_moe.gate",
            experts="block_sparse_moe.experts.", names=_MIXTRAL, correction="block_sparse_moe.e_score_correction_bias",
        ),
    ),
    "afmoe": Style(
        span=spans.every(4), qk_norm="head", norms=_FOUR_NORMS, extra=_afmoe_gate,
        mixture=Mixture(
            sparse=_after_dense_layers, router="mlp.router.gate", shared=shared_count("num_shared_experts"),
            correction="mlp.expert_bias", held="frozen",
        ),
    ),
    "laguna": Style(
        qk_norm="head", overrides=_laguna_heads, extra=_laguna_gate,
        mixture=Mixture(
            sparse=mixtures.first_dense, shared=shared_field("shared_expert_intermediate_size"),
            correction="mlp.experts.e_score_correction_bias", held="frozen",
        ),
    ),
    "mimo_v2_flash": Style(
        span=_mimo_spans, out_bias=False, value_dim="v_head_dim", overrides=_mimo_heads, sinks="has_sinks",
        mixture=Mixture(sparse=_mimo_layers, routed="n_routed_experts", correction="mlp.gate.e_score_correction_bias"),
    ),
    "step3p7_text": Style(
        qk_norm="head", mlp_bias="mlp_bias", overrides=_step_heads, extra=_laguna_gate,
        mixture=Mixture(
            sparse=_step_layers, routed=("n_routed_experts", "num_experts"), shared=shared_field("share_expert_dim"),
            correction="mlp.gate.e_score_correction_bias",
        ),
    ),
    "beam": Style(
        span=_beam_spans, qk_norm="head", norms=GEMMA_NORMS, extra=_beam_gate,
        mixture=Mixture(sparse=_three_dense, correction="mlp.gate.e_score_correction_bias"),
    ),
    "minicpm": Style(
        tied=True, mixture=Mixture(sparse=_minicpm_layers, intermediate="intermediate_size", names=_MIXTRAL),
    ),
    # Remote-code classes: the modeling file beside each checkpoint on the hub.
    "grok-1": Style(
        norms=("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"),
        mixture=Mixture(
            intermediate="intermediate_size", router="moe_block.gate", experts="moe_block.experts.",
            names=("linear", "linear_v", "linear_1"),
        ),
    ),
    "arctic": Style(
        extra=_arctic, norms=("input_layernorm", "post_attention_layernorm", "residual_layernorm"),
        mixture=Mixture(
            sparse=_arctic_layers, routed="num_local_experts", intermediate="intermediate_size", router="block_sparse_moe.gate",
            experts="block_sparse_moe.experts.", names=_MIXTRAL,
        ),
    ),
    "flint": Style(
        span=_flint_spans, qk_norm="head", sinks=True,
        mixture=Mixture(
            sparse=mixtures.stepped, shared=shared_field("shared_expert_intermediate_size"), shared_prefix="mlp.shared_expert.",
        ),
    ),
    "kolibri1": Style(
        span=spans.every(5), qk_norm="head", norms=GLM4_NORMS,
        mixture=Mixture(shared=shared_field("shared_expert_intermediate_size"), correction="mlp.e_score_correction_bias"),
    ),
    "cohere2_moe": Style(
        span=_cohere_spans, norms=("input_layernorm",), intermediate="prefix_dense_intermediate_size",
        mixture=Mixture(sparse=mixtures.after_dense, intermediate="intermediate_size", shared=_cohere_shared),
    ),
}  # fmt: skip
