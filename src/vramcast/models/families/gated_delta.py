"""Qwen3-Next and Qwen3.5: gated delta net layers with gated attention every fourth, dense or sparse.

Source of names and shapes: transformers 5.23, modeling_qwen3_next.py, modeling_qwen3_5.py and modeling_qwen3_5_moe.py; names of
the multi-token-prediction layers, which transformers does not build: vLLM, models/qwen3_next_mtp.py and qwen3_5_mtp.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import mixtures, parts, state_space
from vramcast.models.families.mixtures import Mixture
from vramcast.models.families.state_space import LINEAR_OR_FULL
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense, Experts, GatedDeltaNet

_MIXTURE = Mixture(
    sparse=mixtures.stepped,
    shared=mixtures.shared_field("shared_expert_intermediate_size"),
    shared_prefix="mlp.shared_expert.",
    shared_gate="mlp.shared_expert_gate",
)


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A Qwen3-Next or Qwen3.5 text model; its MTP layer is stored but not loaded."""
    hidden = config.size("hidden_size")
    blocks = parts.stack(_pattern(config), lambda key: _layer(config, hidden, key, f"{prefix}layers.{{}}."))
    mtp = _mtp(config, hidden)
    return parts.decoder(config, hidden=hidden, prefix=prefix, blocks=blocks, towers=(mtp,) if mtp else ())


def _pattern(config: Config) -> list[tuple[str, bool]]:
    """(kind, sparse) of each layer; every ``full_attention_interval``-th attends unless ``layer_types`` says otherwise."""
    count, every = config.size("num_hidden_layers"), config.size("full_attention_interval", default=4)
    listed = state_space.layer_kinds(config, "layer_types", LINEAR_OR_FULL)[:count]
    kinds = listed or [LINEAR_OR_FULL[(i + 1) % every == 0] for i in range(count)]
    sparse = _MIXTURE.sparse(config, count) if _mixed(config) else [False] * count
    return [*zip(kinds, sparse, strict=True)]


def _mixed(config: Config) -> bool:
    return config.integer("num_experts", default=0) > 0


def _layer(config: Config, hidden: int, key: tuple[str, bool], name: str) -> Block:
    mixer, mixer_tensors = delta(config, hidden) if key[0] == "linear_attention" else attention(config, hidden)
    feed, feed_tensors = feed_forward(config, hidden, sparse=key[1])
    norms = parts.norms(hidden, "input_layernorm", "post_attention_layernorm")
    tensors = (*mixer_tensors, *feed_tensors, *norms)
    return Block(name=name, indices=(), mixers=(mixer,), feedforward=feed, tensors=tensors)


def attention(config: Config, hidden: int) -> tuple[Attention, tuple[Tensor, ...]]:
    """Attention whose query projection also yields an output gate."""
    heads = config.size("num_attention_heads")
    kind = Attention(
        heads=heads,
        kv_heads=config.size("num_key_value_heads", default=heads),
        head_dim=config.size("head_dim", default=256),
        gated=True,
        qk_norm=True,
    )
    projections = parts.attention(kind, hidden, bias=config.flag("attention_bias", default=False))
    return kind, (*projections, *parts.norms(kind.head_dim, "self_attn.q_norm", "self_attn.k_norm"))


def delta(config: Config, hidden: int) -> tuple[GatedDeltaNet, tuple[Tensor, ...]]:
    """A gated delta net layer."""
    kind = GatedDeltaNet(
        key_heads=config.size("linear_num_key_heads", default=16),
        value_heads=config.size("linear_num_value_heads", default=32),
        key_dim=config.size("linear_key_head_dim", default=128),
        value_dim=config.size("linear_value_head_dim", default=128),
        conv=config.size("linear_conv_kernel_dim", default=4),
    )
    values = kind.value_heads * kind.value_dim
    return kind, (
        *_delta_inputs(kind, hidden, fused=config.text("model_type") == "qwen3_next"),
        *state_space.convolution("linear_attn.conv1d", kind.conv_width, kind.conv, bias=False),
        state_space.state("linear_attn.dt_bias", kind.value_heads),
        state_space.state("linear_attn.A_log", kind.value_heads),
        *parts.norms(kind.value_dim, "linear_attn.norm"),
        *parts.linear("linear_attn.out_proj", hidden, values, "mixer", shard=1, groups=kind.value_heads),
    )


def _delta_inputs(kind: GatedDeltaNet, hidden: int, *, fused: bool) -> tuple[Tensor, ...]:
    """Queries, keys, values and output gate z; gates b and a. Qwen3-Next fuses them in two, Qwen3.5 keeps four."""
    values, gates = kind.value_heads * kind.value_dim, kind.value_heads
    widths = {"qkvz": kind.conv_width + values, "ba": 2 * gates} if fused else {}
    widths = widths or {"qkv": kind.conv_width, "z": values, "b": gates, "a": gates}
    return tuple(t for n, w in widths.items() for t in parts.linear(f"linear_attn.in_proj_{n}", w, hidden, "mixer", shard=0))


def feed_forward(config: Config, hidden: int, *, sparse: bool) -> tuple[Dense | Experts, tuple[Tensor, ...]]:
    """The MLP or the mixture of one layer."""
    if sparse:
        mixed = _MIXTURE.kind(config)
        return mixed, _MIXTURE.tensors(config, mixed, hidden)
    kind = Dense(intermediate=config.size("intermediate_size"), activation=config.text("hidden_act", default="silu"))
    return kind, parts.gated_mlp(kind, hidden)


def _mtp(config: Config, hidden: int) -> Tower | None:
    """One attention layer of the decoder's own shape, joined to it by a projection."""
    default = 1 if config.text("model_type") == "qwen3_next" else 0
    count = config.integer("mtp_num_hidden_layers", "num_nextn_predict_layers", default=default)
    if not count:
        return None
    key = ("full_attention", _mixed(config))
    joint = (
        *parts.linear("mtp.fc", hidden, 2 * hidden, "mixer", shard=None),
        *parts.norms(hidden, "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"),
    )
    blocks = parts.stack([key] * count, lambda k: _layer(config, hidden, k, "mtp.layers.{}."))
    return Tower(name="mtp", kind="mtp", blocks=blocks, tensors=joint, hidden=hidden, stored_only=True)
