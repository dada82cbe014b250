"""MiniMax-Text-01: lightning (linear) attention with softmax attention every eighth layer, a mixture in every layer.

Source of names and shapes: transformers 5.23, modeling_minimax.py; experts are named as in the checkpoints.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.families.mixtures import Mixture
from vramcast.models.families.state_space import LINEAR_OR_FULL
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, LinearAttention

_MIXTURE = Mixture(
    routed="num_local_experts",
    intermediate="intermediate_size",
    experts="block_sparse_moe.experts.",
    names=("w1", "w3", "w2"),
    router="block_sparse_moe.gate",
)


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A MiniMax model."""
    hidden, mixed = config.size("hidden_size"), _MIXTURE.kind(config)

    def build(kind: str) -> Block:
        mixer, tensors = _linear(config, hidden) if kind == "linear_attention" else _attention(config, hidden)
        norms = parts.norms(hidden, "input_layernorm", "post_attention_layernorm")
        return Block(
            name=f"{prefix}layers.{{}}.",
            indices=(),
            mixers=(mixer,),
            feedforward=mixed,
            tensors=(*tensors, *_MIXTURE.tensors(config, mixed, hidden), *norms),
        )

    return parts.decoder(config, hidden=hidden, prefix=prefix, blocks=parts.stack(_pattern(config), build))


def _pattern(config: Config) -> list[str]:
    """``layer_types``, or the checkpoint's ``attn_type_list`` (1 = softmax), or every other layer."""
    count = config.size("num_hidden_layers")
    listed = state_space.layer_kinds(config, "layer_types", LINEAR_OR_FULL)[:count]
    given = config.list("attn_type_list", default=[])[:count]
    return listed or [LINEAR_OR_FULL[bool(x)] for x in given] or [LINEAR_OR_FULL[(i + 1) % 2] for i in range(count)]


def _heads(config: Config, hidden: int) -> tuple[int, int]:
    heads = config.size("num_attention_heads")
    return heads, config.size("head_dim", default=max(1, hidden // heads))


def _attention(config: Config, hidden: int) -> tuple[Attention, tuple[Tensor, ...]]:
    heads, width = _heads(config, hidden)
    kind = Attention(heads=heads, kv_heads=config.size("num_key_value_heads", default=heads), head_dim=width)
    return kind, parts.attention(kind, hidden)


def _linear(config: Config, hidden: int) -> tuple[LinearAttention, tuple[Tensor, ...]]:
    heads, width = _heads(config, hidden)
    inner = heads * width
    return LinearAttention(heads=heads, head_dim=width), (
        *parts.linear("self_attn.qkv_proj", 3 * inner, hidden, "qkv", shard=0, groups=heads),
        *parts.linear("self_attn.output_gate", inner, hidden, "mixer", shard=0, groups=heads),
        *parts.linear("self_attn.out_proj", hidden, inner, "o", shard=1, groups=heads),
        Tensor(name="self_attn.norm.weight", shape=(inner,), role="norm", shard=0, groups=heads),
    )
