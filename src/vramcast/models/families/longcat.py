"""LongCat-Flash: each layer has two latent attentions and two MLPs, and experts beside them, some of which do nothing.

A token may choose an expert that returns its input: such experts have a row in the router and no weights.
Source: the LongCat-Flash report (arXiv 2509.01322) and transformers 5.23, models/longcat_flash; names are the checkpoint's.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.families.latent import latent_kind, latent_tensors
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Dense, Experts, LatentAttention


def read(config: Config, *, prefix: str = "model.") -> Model:
    """LongCat-Flash; the weights of its no-op experts, which transformers allocates, are in no checkpoint and not counted."""
    hidden = config.size("hidden_size")
    kind = latent_kind(config)
    block = Block(
        name=f"{prefix}layers.{{}}.",
        indices=tuple(range(config.size("num_layers", "num_hidden_layers"))),
        mixers=(kind, kind),
        feedforward=_experts(config),
        tensors=(*_halves(config, kind, hidden), *_mixture(config, hidden)),
    )
    return parts.decoder(config, hidden=hidden, blocks=(block,), prefix=prefix)


def _experts(config: Config) -> Experts:
    """``shared_intermediate`` is the width of the two dense MLPs, which every token passes."""
    return Experts(
        routed=config.size("n_routed_experts"),
        active=config.size("moe_topk"),
        intermediate=config.size("expert_ffn_hidden_size"),
        shared_intermediate=2 * config.size("ffn_hidden_size"),
    )


def _halves(config: Config, kind: LatentAttention, hidden: int) -> tuple[Tensor, ...]:
    bias = config.flag("attention_bias", default=False)
    mlp = Dense(intermediate=config.size("ffn_hidden_size"))
    return tuple(
        tensor
        for half in "01"
        for tensor in (
            *latent_tensors(kind, hidden, bias=bias, prefix=f"self_attn.{half}."),
            *parts.gated_mlp(mlp, hidden, prefix=f"mlps.{half}.", role="shared."),
            *parts.norms(hidden, f"input_layernorm.{half}", f"post_attention_layernorm.{half}"),
        )
    )


def _mixture(config: Config, hidden: int) -> tuple[Tensor, ...]:
    experts = _experts(config)
    rows = experts.routed + config.integer("zero_expert_num", default=0)
    bias = Tensor(name="mlp.router.e_score_correction_bias", shape=(rows,), role="router", dtype="float32", kind="buffer")
    router_bias = config.flag("router_bias", default=False)
    return (
        *parts.linear("mlp.router.classifier", rows, hidden, "router", shard=None, bias=router_bias),
        bias,
        *parts.experts(experts, hidden),
    )
