"""The decoders of Muse Glimmer (dense) and Muse Spark (experts in a narrower space): gated attention, windows from the end.

Source of names and shapes: transformers 5.23, modeling_muse_glimmer.py and modeling_muse_spark.py.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import mixtures, parts, skeleton, spans
from vramcast.models.families.mixtures import Mixture
from vramcast.models.families.skeleton import GEMMA_NORMS, Style
from vramcast.models.inventory import Model, Tensor
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention


def read(config: Config, *, prefix: str = "model.") -> Model:
    """The text model of Muse Glimmer or Muse Spark."""
    return skeleton.read(config, STYLES[config.text("model_type")], prefix=prefix)


class LatentMixture(Mixture, frozen=True, kw_only=True):
    """Experts in a space of ``moe_hidden_size``, with a norm on the way in and one on the way out."""

    def kind(self, config: Config) -> Experts:
        """The sizes of the mixture."""
        return msgspec.structs.replace(super().kind(config), latent=config.size("moe_hidden_size"))

    def tensors(self, config: Config, kind: Experts, hidden: int) -> tuple[Tensor, ...]:
        """Router and experts, the projections around them and their norms."""
        return (
            *super().tensors(config, kind, hidden),
            *parts.linear("mlp.pre_expert_proj", kind.latent, hidden, "latent", shard=None),
            *parts.linear("mlp.post_expert_proj", hidden, kind.latent, "latent", shard=None),
            *parts.norms(kind.latent, "mlp.pre_expert_norm", "mlp.experts.post_expert_norm"),
        )


def _from_the_end(config: Config, count: int) -> list[spans.Span]:
    """The last layer and every fourth before it see everything."""
    window = spans.window_of(config)
    return [spans.FULL if (count - 1 - i) % 4 == 0 else window for i in range(count)]


def _gate(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """An output gate as wide as the queries."""
    width = kind.heads * kind.head_dim
    return parts.linear("self_attn.gate_proj", width, config.size("hidden_size"), "q", shard=0, groups=kind.heads)


def _spark(config: Config, kind: Attention | LatentAttention, feed: Dense | Experts) -> tuple[Tensor, ...]:
    """Beside attention's gate, one on each of the two residual sums."""
    halves = ("post_attention_residual_gate", "post_feedforward_residual_gate")
    gates = (Tensor(name=f"{half}.gate", shape=(config.size("hidden_size"),), role="state") for half in halves)
    return (*_gate(config, kind, feed), *gates)


STYLES: dict[str, Style] = {
    "muse_glimmer_text": Style(span=_from_the_end, norms=GEMMA_NORMS, extra=_gate),
    "muse_spark_text": Style(
        span=_from_the_end, norms=(GEMMA_NORMS[0], *GEMMA_NORMS[2:]), extra=_spark,
        mixture=LatentMixture(
            sparse=mixtures.every_layer, routed="num_local_experts", correction="mlp.gate.e_score_correction_bias",
        ),
    ),
}  # fmt: skip
