"""JetMoE: experts in the attention too, each with queries and an output of its own over shared keys and values.

Source of names and shapes: transformers 5.23, modeling_jetmoe.py; arXiv 2404.07413.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Experts


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A JetMoE model."""
    hidden, routed = config.size("hidden_size"), config.size("num_local_experts")
    active, width = config.size("num_experts_per_tok"), config.size("kv_channels", default=128)
    kv_heads = config.size("num_key_value_heads")
    kind = Attention(heads=kv_heads * active, kv_heads=kv_heads, head_dim=width)
    feed = Experts(routed=routed, active=active, intermediate=config.size("intermediate_size"))
    block = Block(
        name=f"{prefix}layers.{{}}.",
        indices=tuple(range(config.size("num_hidden_layers"))),
        mixers=(kind,),
        feedforward=feed,
        tensors=(
            *_experts("self_attention.experts.", routed, hidden, kv_heads * width, gated=False),
            *parts.linear("self_attention.kv_proj", 2 * kv_heads * width, hidden, "kv", shard=0, groups=kv_heads),
            *_experts("mlp.", routed, hidden, feed.intermediate, gated=True),
            *parts.norms(hidden, "input_layernorm", "post_attention_layernorm"),
        ),
    )
    return parts.decoder(config, hidden=hidden, prefix=prefix, blocks=(block,), tied=True)


def _experts(name: str, routed: int, hidden: int, width: int, *, gated: bool) -> tuple[Tensor, ...]:
    """A router, the experts' two stacks and one bias behind them."""
    rows = width * (2 if gated else 1)
    return (
        *parts.linear(f"{name}router.layer", routed, hidden, "router", shard=None),
        Tensor(name=f"{name}input_linear.weight", shape=(routed, rows, hidden), role="expert.up", shard=1, stacked=routed),
        Tensor(name=f"{name}output_linear.weight", shape=(routed, hidden, width), role="expert.down", shard=2, stacked=routed),
        Tensor(name=f"{name}bias", shape=(hidden,), role="bias"),
    )
