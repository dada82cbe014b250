"""Mamba 2 beside attention: Bamba and Granite 4 (one or the other per layer), Falcon-H1 (both in every layer).

Source of names and shapes: transformers 5.23, modeling_bamba.py, modeling_granitemoehybrid.py and modeling_falcon_h1.py;
Granite's experts are named one by one although its checkpoints keep them as one tensor per layer.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.families.mixtures import Mixture
from vramcast.models.families.state_space import LINEAR_OR_FULL
from vramcast.models.inventory import Block, Mixer, Model, Tensor
from vramcast.models.layers import Attention, Dense, Experts, Mamba2

_GRANITE = Mixture(
    routed="num_local_experts",
    intermediate="intermediate_size",
    experts="block_sparse_moe.experts.",
    router="block_sparse_moe.router.layer",
)


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A Bamba, Granite 4 hybrid or Falcon-H1 model."""
    family = config.text("model_type")
    granite, hidden = family == "granitemoehybrid", config.size("hidden_size")

    def build(kinds: tuple[str, ...]) -> Block:
        mixers, mixer_tensors = _mixers(config, hidden, kinds)
        feed, feed_tensors = _granite_feed(config, hidden) if granite else _feed(config, hidden)
        second = "post_attention_layernorm" if granite else "pre_ff_layernorm"
        return Block(
            name=f"{prefix}layers.{{}}.",
            indices=(),
            mixers=mixers,
            feedforward=feed,
            tensors=(*mixer_tensors, *feed_tensors, *parts.norms(hidden, "input_layernorm", second)),
        )

    blocks = parts.stack(_pattern(config, family), build)
    last = "norm" if granite else "final_layernorm"
    return parts.decoder(config, hidden=hidden, prefix=prefix, blocks=blocks, norm=parts.norms(hidden, f"{prefix}{last}"))


def _pattern(config: Config, family: str) -> list[tuple[str, ...]]:
    """What each layer mixes with: one kind, or both at once."""
    count = config.size("num_hidden_layers")
    if family == "falcon_h1":
        return [LINEAR_OR_FULL] * count
    if family == "granitemoehybrid":
        field = "layer_types" if config.has("layer_types") else "layers_block_type"
        kinds = state_space.layer_kinds(config, field, LINEAR_OR_FULL) or [LINEAR_OR_FULL[0]] * count
        return [(kind,) for kind in kinds[:count]]
    attends = set(config.list("attn_layer_indices", default=[]))
    return [(LINEAR_OR_FULL[i in attends],) for i in range(count)]


def _mixers(config: Config, hidden: int, kinds: tuple[str, ...]) -> tuple[tuple[Mixer, ...], tuple[Tensor, ...]]:
    mixers: list[Mixer] = []
    tensors: list[Tensor] = []
    if "full_attention" in kinds:
        attention = _attention(config, hidden)
        mixers.append(attention)
        tensors += parts.attention(attention, hidden, bias=config.flag("attention_bias", default=False))
    if "linear_attention" in kinds:
        mamba = _mamba(config, hidden)
        mixers.append(mamba)
        tensors += _mamba_tensors(config, mamba, hidden)
    return tuple(mixers), tuple(tensors)


def _attention(config: Config, hidden: int) -> Attention:
    heads = config.size("num_attention_heads")
    return Attention(
        heads=heads,
        kv_heads=config.size("num_key_value_heads", default=heads),
        head_dim=config.size("head_dim", default=max(1, hidden // heads)),
    )


def _mamba(config: Config, hidden: int) -> Mamba2:
    heads = config.size("mamba_n_heads", default=128)
    inner = int(config.number("mamba_expand", default=2) * hidden)
    given = config.raw.get("mamba_d_head") not in (None, "auto")
    return Mamba2(
        heads=heads,
        head_dim=config.size("mamba_d_head") if given else config.size("mamba_d_ssm", default=inner) // heads,
        groups=config.size("mamba_n_groups", default=1),
        state=config.size("mamba_d_state", default=256),
        conv=config.size("mamba_d_conv", default=4),
        chunk=config.size("mamba_chunk_size", default=256),
    )


def _mamba_tensors(config: Config, kind: Mamba2, hidden: int) -> tuple[Tensor, ...]:
    bias = config.flag("mamba_proj_bias", default=False)
    falcon = config.text("model_type") == "falcon_h1"
    return state_space.mamba2(
        kind,
        hidden,
        prefix="mamba.",
        bias=bias,
        out_bias=config.flag("projectors_bias", default=False) if falcon else bias,
        conv_bias=config.flag("mamba_conv_bias", default=True),
        norm=config.flag("mamba_rms_norm", default=False) if falcon else True,
    )


def _feed(config: Config, hidden: int) -> tuple[Dense, tuple[Tensor, ...]]:
    dense = Dense(intermediate=config.size("intermediate_size"), activation=config.text("hidden_act", default="silu"))
    return dense, parts.gated_mlp(dense, hidden, prefix="feed_forward.", bias=config.flag("mlp_bias", default=False))


def _granite_feed(config: Config, hidden: int) -> tuple[Dense | Experts, tuple[Tensor, ...]]:
    """A shared MLP in every layer, beside experts when there are any."""
    shared = Dense(intermediate=config.size("shared_intermediate_size", default=1024))
    role = "shared." if config.integer("num_local_experts", default=8) else ""
    shared_tensors = (
        *parts.linear("shared_mlp.input_linear", 2 * shared.intermediate, hidden, f"{role}gate_up", shard=0),
        *parts.linear("shared_mlp.output_linear", hidden, shared.intermediate, f"{role}down", shard=1),
    )
    if not role:
        return shared, shared_tensors
    mixed = _GRANITE.kind(config)
    kind = Experts(
        routed=mixed.routed, active=mixed.active, intermediate=mixed.intermediate, shared_intermediate=shared.intermediate
    )
    return kind, (*_GRANITE.tensors(config, mixed, hidden), *shared_tensors)
