"""Ling and Ring (Bailing MoE, versions 1 and 2): a fused qkv projection beside DeepSeek-like experts.

Source: the modeling files beside inclusionAI/Ling-lite and inclusionAI/Ling-mini-2.0 on the hub.
"""

from vramcast.models.config import Config
from vramcast.models.families import draft, mixtures, parts, skeleton, spans
from vramcast.models.families.mixtures import Mixture, shared_count
from vramcast.models.families.skeleton import Style
from vramcast.models.inventory import Model, Tensor
from vramcast.models.layers import Attention


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A Bailing mixture."""
    return skeleton.read(config, STYLES[config.text("model_type")], prefix=prefix)


def _attend(config: Config, style: Style, span: spans.Span) -> tuple[Attention, tuple[Tensor, ...]]:
    kind = skeleton.attention_of(config, style, span)
    bias = config.flag("use_bias", default=False)
    tensors = parts.fused_attention(
        kind,
        config.size("hidden_size"),
        qkv="attention.query_key_value",
        out="attention.dense",
        bias=bias or config.flag("use_qkv_bias", default=False),
        out_bias=bias,
    )
    names = ("attention.query_layernorm", "attention.key_layernorm")
    return kind, (*tensors, *(parts.norms(kind.head_dim, *names) if kind.qk_norm else ()))


def _mixture(correction: str = "") -> Mixture:
    return Mixture(sparse=mixtures.after_dense, shared=shared_count("num_shared_experts"), correction=correction)


STYLES: dict[str, Style] = {
    "bailing_moe": Style(attend=_attend, embedding="word_embeddings", mixture=_mixture()),
    "bailing_moe_v2": Style(
        attend=_attend, embedding="word_embeddings", qk_norm="head", qk_norm_if="use_qk_norm", mtp=draft.deepseek,
        mixture=_mixture(correction="mlp.gate.expert_bias"),
    ),
}  # fmt: skip
