"""Zamba 1 and 2: Mamba layers, some of which first pass one of a few transformer blocks shared by all of them.

A shared block is stored and counted once but keeps a KV cache per use, so each hybrid layer has both mixers and the shared
tensors stand outside the layers, under the names of the block's first use. Zamba 2 gives every use its own low-rank adapters.
Source of names and shapes: transformers 5.23, modeling_zamba.py and modeling_zamba2.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense, Mamba1, Mamba2

_KINDS = ("linear_attention", "hybrid")


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A Zamba or Zamba 2 model."""
    hidden, second = config.size("hidden_size"), config.text("model_type") == "zamba2"
    mixer = _mamba2(config, hidden) if second else _mamba1(config, hidden)
    attention, mlp = _attention(config, hidden), _mlp(config, hidden)
    pattern = state_space.layer_kinds(config, "layers_block_type", _KINDS) or _pattern(config, second)

    def build(kind: str) -> Block:
        hybrid = kind == "hybrid"
        inner = "mamba_decoder." if hybrid else ""
        own = (*_mamba_tensors(config, mixer, hidden, f"{inner}mamba."), *parts.norms(hidden, f"{inner}input_layernorm"))
        joint = parts.linear("linear", hidden, hidden, "mixer", shard=None) if hybrid else ()
        return Block(
            name=f"{prefix}layers.{{}}.",
            indices=(),
            mixers=(attention, mixer) if hybrid else (mixer,),
            feedforward=mlp if hybrid else None,
            tensors=(*own, *joint),
        )

    uses = [i for i, kind in enumerate(pattern) if kind == "hybrid"]
    shared = _shared2(config, attention, mlp, uses, prefix) if second else _shared1(config, attention, mlp, uses, prefix)
    return parts.decoder(
        config,
        hidden=hidden,
        prefix=prefix,
        blocks=parts.stack(pattern, build),
        norm=parts.norms(hidden, f"{prefix}final_layernorm"),
        tied=True,
        extra=shared,
    )


def _pattern(config: Config, second: bool) -> list[str]:
    """The class's own pattern when the config spells none out."""
    plain, hybrid = _KINDS
    if second:
        middle = ([plain] * 5 + [hybrid]) * 7
        return [plain, *middle, *[plain] * 4, hybrid, *[plain] * 3, hybrid, *[plain] * 2]
    every, at = config.size("attn_layer_period", default=6), config.integer("attn_layer_offset", default=4)
    rest = config.size("num_hidden_layers") - 3
    return [plain, plain, hybrid] + [hybrid if i % every == at else plain for i in range(rest)]


def _attention(config: Config, hidden: int) -> Attention:
    """The shared attention works on the layer's input beside the embeddings: twice the hidden size."""
    heads = config.size("num_attention_heads")
    width = max(1, 2 * hidden // heads)
    turned = -1 if config.flag("use_mem_rope", default=False) else 0
    kv_heads = config.size("num_key_value_heads", default=heads)
    return Attention(heads=heads, kv_heads=kv_heads, head_dim=width, rope_dim=turned)


def _mlp(config: Config, hidden: int) -> Dense:
    return Dense(intermediate=config.size("intermediate_size", default=4 * hidden), activation="gelu")


def _shared_attention(kind: Attention, hidden: int, name: str) -> tuple[Tensor, ...]:
    wide = 2 * hidden
    query, key = kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
    return (
        *parts.linear(f"{name}self_attn.q_proj", query, wide, "q", shard=0, groups=kind.heads),
        *parts.linear(f"{name}self_attn.k_proj", key, wide, "k", shard=0, groups=kind.kv_heads),
        *parts.linear(f"{name}self_attn.v_proj", key, wide, "v", shard=0, groups=kind.kv_heads),
        *parts.output(kind, hidden, f"{name}self_attn.o_proj"),
        *parts.norms(wide, f"{name}input_layernorm"),
        *parts.norms(hidden, f"{name}pre_ff_layernorm"),
    )


def _shared1(config: Config, attention: Attention, mlp: Dense, uses: list[int], prefix: str) -> tuple[Tensor, ...]:
    hidden, name = config.size("hidden_size"), f"{prefix}layers.{uses[0]}.shared_transf."
    return (*_shared_attention(attention, hidden, name), *parts.gated_mlp(mlp, hidden, prefix=f"{name}feed_forward."))


def _shared2(config: Config, attention: Attention, mlp: Dense, uses: list[int], prefix: str) -> tuple[Tensor, ...]:
    """``num_mem_blocks`` blocks used in turn, each with an adapter per use of it."""
    hidden, blocks = config.size("hidden_size"), config.size("num_mem_blocks", default=1)
    bias = config.flag("add_bias_linear", default=False)
    tensors: list[Tensor] = []
    for block, first in enumerate(uses[:blocks]):
        name = f"{prefix}layers.{first}.shared_transformer."
        tensors += _shared_attention(attention, hidden, name)
        tensors += parts.fused_mlp(mlp, hidden, prefix=f"{name}feed_forward.", bias=bias)
        for use in range(block, len(uses), blocks):
            tensors += _adapters(config, mlp, hidden, name, use)
    return tuple(tensors)


def _adapters(config: Config, mlp: Dense, hidden: int, name: str, use: int) -> list[Tensor]:
    targets = [("feed_forward.gate_up_proj_adapter_list", hidden, 2 * mlp.intermediate)]
    if config.flag("use_shared_attention_adapter", default=False):
        targets += [(f"self_attn.linear_{x}_adapter_list", 2 * hidden, 2 * hidden) for x in "qkv"]
    rank = config.size("adapter_rank", default=128)
    return [
        tensor
        for target, inputs, outputs in targets
        for tensor in (
            *parts.linear(f"{name}{target}.{use}.0", rank, inputs, "adapter", shard=None),
            *parts.linear(f"{name}{target}.{use}.1", outputs, rank, "adapter", shard=0),
        )
    ]


def _mamba1(config: Config, hidden: int) -> Mamba1:
    return Mamba1(
        inner=int(config.number("mamba_expand", default=2) * hidden),
        state=config.size("mamba_d_state", default=16),
        conv=config.size("mamba_d_conv", default=4),
        dt_rank=state_space.rank_of(config, "mamba_dt_rank", hidden),
    )


def _mamba2(config: Config, hidden: int) -> Mamba2:
    heads = config.size("n_mamba_heads", default=8)
    return Mamba2(
        heads=heads,
        head_dim=int(config.number("mamba_expand", default=2) * hidden) // heads,
        groups=config.size("mamba_ngroups", default=1),
        state=config.size("mamba_d_state", default=64),
        conv=config.size("mamba_d_conv", default=4),
        chunk=config.size("chunk_size", default=256),
    )


def _mamba_tensors(config: Config, kind: Mamba1 | Mamba2, hidden: int, prefix: str) -> tuple[Tensor, ...]:
    if isinstance(kind, Mamba1):
        return _mamba1_tensors(config, kind, hidden, prefix)
    bias, conv_bias = config.flag("add_bias_linear", default=False), config.flag("use_conv_bias", default=True)
    return state_space.mamba2(kind, hidden, prefix=prefix, bias=bias, conv_bias=conv_bias)


def _mamba1_tensors(config: Config, kind: Mamba1, hidden: int, prefix: str) -> tuple[Tensor, ...]:
    """Zamba's Mamba 1 has several heads, with their projections as one parameter each."""
    heads = config.size("n_mamba_heads", default=2)
    width, bias = kind.inner // heads, config.flag("mamba_proj_bias", default=False)

    def mixer(name: str, *shape: int) -> Tensor:
        return Tensor(name=f"{prefix}{name}", shape=(heads, *shape), role="mixer", shard=0, groups=heads)

    return (
        *parts.linear(f"{prefix}in_proj", 2 * kind.inner, hidden, "mixer", shard=0, bias=bias),
        *state_space.convolution(f"{prefix}conv1d", kind.inner, kind.conv, bias=config.flag("mamba_conv_bias", default=True)),
        mixer("x_proj_weight", kind.dt_rank + 2 * kind.state, width),
        mixer("dt_proj_weight", width, kind.dt_rank),
        mixer("dt_proj_bias", width),
        state_space.state(f"{prefix}A_log", heads, width, kind.state),
        state_space.state(f"{prefix}D", heads, width),
        *parts.linear(f"{prefix}out_proj", hidden, kind.inner, "mixer", shard=1, bias=bias),
    )
