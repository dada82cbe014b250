"""Kimi Linear, Kimi K3 and Ling 3: delta attention with a forget gate per channel (KDA), latent attention, experts.

Kimi K3 gates latent attention's output, keeps the output gate of delta attention whole, lets routed experts work in a
narrower space, and mixes the outputs of earlier blocks of layers by learned scores (attention residuals).

Source of names and shapes: transformers 5.23, modeling_kimi_linear.py and modeling_bailing_hybrid.py; for Kimi K3 vllm/models/
kimi_k3 and the tensors of its published checkpoint.
"""

import msgspec

from vramcast.errors import ConfigError
from vramcast.models.config import Config
from vramcast.models.families import mixtures, parts, state_space
from vramcast.models.families.latent import latent_kind, latent_tensors
from vramcast.models.families.mixtures import Mixture
from vramcast.models.families.state_space import LINEAR_OR_FULL
from vramcast.models.inventory import Block, Mixer, Model, Tensor
from vramcast.models.layers import Dense, Experts, GatedDeltaNet


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A Kimi Linear or Ling 3 model."""
    hidden = config.size("hidden_size")
    keys = zip(_pattern(config), _sparse(config), strict=True)
    blocks = parts.stack(keys, lambda key: _layer(config, hidden, *key, name=f"{prefix}layers.{{}}."))
    untied = Config({**config.raw, "tie_word_embeddings": False}, config.path)  # the class ties nothing
    last = _residual(config, hidden, f"{prefix}output_attn")
    return parts.decoder(untied, hidden=hidden, prefix=prefix, blocks=blocks, extra=last)


def _pattern(config: Config) -> list[str]:
    """What each layer mixes with; the checkpoint lists both kinds of layers, counted from 1."""
    count, listed = config.size("num_hidden_layers"), config.optional_child("linear_attn_config")
    if listed and listed.has("full_attn_layers"):
        full = set(listed.list("full_attn_layers"))
        return [LINEAR_OR_FULL[i + 1 in full] for i in range(count)]
    if listed and listed.has("kda_layers"):
        linear = set(listed.list("kda_layers"))
        return [LINEAR_OR_FULL[i + 1 not in linear] for i in range(count)]
    named = state_space.layer_kinds(config, "layer_types", LINEAR_OR_FULL)[:count]
    if named or not _is_ling(config):
        return named or [LINEAR_OR_FULL[i > 0 and i % 4 == 0] for i in range(count)]
    group = config.size("layer_group_size", default=6)
    return [LINEAR_OR_FULL[(i + 1) % group == 0] for i in range(count)]


def _is_ling(config: Config) -> bool:
    return config.text("model_type") == "bailing_hybrid"


def _sparse(config: Config) -> list[bool]:
    count = config.size("num_hidden_layers")
    named = mixtures.listed(config, count)
    return named or [i >= config.integer("first_k_dense_replace", default=1) for i in range(count)]


def _layer(config: Config, hidden: int, kind: str, sparse: bool, *, name: str) -> Block:
    mixer, mixer_tensors = _delta(config, hidden) if kind == "linear_attention" else _latent(config, hidden)
    feed, feed_tensors = _feed_forward(config, hidden, sparse=sparse)
    norms = parts.norms(hidden, "input_layernorm", "post_attention_layernorm")
    mixed = (t for half in ("self_attention", "mlp") for t in _residual(config, hidden, half))
    return Block(
        name=name, indices=(), mixers=(mixer,), feedforward=feed, tensors=(*mixer_tensors, *feed_tensors, *norms, *mixed)
    )


def _residual(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    """Kimi K3's scores over the outputs of earlier blocks of layers: a norm and one row, before each half and at the end."""
    if not config.integer("attn_res_block_size", default=0):
        return ()
    return (*parts.norms(hidden, f"{name}_res_norm"), *parts.linear(f"{name}_res_proj", 1, hidden, "mixer", shard=None))


def _latent(config: Config, hidden: int) -> tuple[Mixer, tuple[Tensor, ...]]:
    kind = latent_kind(config)
    gate: tuple[Tensor, ...] = ()
    if _is_ling(config):
        gate = parts.linear("self_attn.g_proj", kind.heads, hidden, "mixer", shard=0)
    elif config.flag("mla_use_output_gate", default=False):
        gate = parts.linear("self_attn.g_proj", kind.heads * kind.value_dim, hidden, "q", shard=0, groups=kind.heads)
    return kind, (*latent_tensors(kind, hidden, bias=config.flag("attention_bias", default=False)), *gate)


def sizes(config: Config) -> tuple[int, int, int]:
    """Heads, their width and the convolution's length; Ling's heads are those of its attention."""
    if _is_ling(config):
        width = config.size("linear_head_dim", "head_dim", default=128)
        return config.size("num_attention_heads"), width, config.size("short_conv_kernel_size", default=4)
    listed = config.optional_child("linear_attn_config") or Config({}, config.path)
    heads = listed.size("num_heads", default=config.size("linear_num_heads", default=32))
    width = listed.size("head_dim", default=config.size("linear_head_dim", default=128))
    return heads, width, listed.size("short_conv_kernel_size", default=config.size("linear_conv_kernel_dim", default=4))


def _delta(config: Config, hidden: int) -> tuple[Mixer, tuple[Tensor, ...]]:
    heads, width, conv = sizes(config)
    kind = GatedDeltaNet(key_heads=heads, value_heads=heads, key_dim=width, value_dim=width, conv=conv)
    name, inner = "self_attn.", heads * width
    return kind, (
        *(t for x in "qkv" for t in parts.linear(f"{name}{x}_proj", inner, hidden, x, shard=0, groups=heads)),
        *(t for x in "qkv" for t in state_space.convolution(f"{name}{x}_conv1d", inner, conv, bias=False)),
        state_space.state(f"{name}dt_bias", inner),
        _decay(config, heads, width, f"{name}A_log"),
        *parts.linear(f"{name}b_proj", heads, hidden, "mixer", shard=0),
        *_gates(config, hidden, (inner, width), name),
        *parts.norms(width, f"{name}o_norm"),
        *parts.linear(f"{name}o_proj", hidden, inner, "o", shard=1, groups=heads),
    )


def _whole_gate(config: Config) -> bool:
    listed = config.optional_child("linear_attn_config")
    return listed is not None and listed.flag("use_full_rank_gate", default=False)


def _decay(config: Config, heads: int, width: int, name: str) -> Tensor:
    """Each head's rate of forgetting; each channel's, shared by the heads, in Kimi K3's checkpoint."""
    if _whole_gate(config):
        return Tensor(name=name, shape=(width,), role="state")
    return Tensor(name=name, shape=(1, 1, heads, 1), role="state", shard=2)


def _gates(config: Config, hidden: int, widths: tuple[int, int], name: str) -> tuple[Tensor, ...]:
    """The forget and the output gate: of low rank in Kimi Linear, whole in Ling, the output's alone whole in Kimi K3."""
    inner, width = widths
    whole = "fg" if _is_ling(config) else "g" if _whole_gate(config) else ""
    low = [x for x in "fg" if x not in whole]
    return (
        *(t for x in whole for t in parts.linear(f"{name}{x}_proj", inner, hidden, "mixer", shard=0)),
        *(t for x in low for t in parts.linear(f"{name}{x}_a_proj", width, hidden, "mixer", shard=None)),
        *(t for x in low for t in parts.linear(f"{name}{x}_b_proj", inner, width, "mixer", shard=0)),
    )


def _mixture(config: Config) -> Mixture:
    """The mixture; its fields have one name in the checkpoint, another in transformers."""
    routed = next((f for f in ("num_experts", "num_local_experts", "n_routed_experts") if config.has(f)), "")
    active = "num_experts_per_token" if config.has("num_experts_per_token") else "num_experts_per_tok"
    shared = "num_shared_experts" if config.has("num_shared_experts") else "n_shared_experts"
    if not routed:
        raise ConfigError(f"{config.path} has no num_experts: is this the config.json of a complete model?")
    correction = "mlp.gate.e_score_correction_bias"
    return Mixture(routed=routed, active=active, shared=mixtures.shared_count(shared), correction=correction)


def _narrowing(config: Config, hidden: int, narrow: int) -> tuple[Tensor, ...]:
    """The way into the space that routed experts work in, and back (Kimi K3)."""
    if not narrow:
        return ()
    return (
        *parts.linear("mlp.routed_expert_down_proj", narrow, hidden, "latent", shard=None),
        *parts.linear("mlp.routed_expert_up_proj", hidden, narrow, "latent", shard=None),
        *(parts.norms(narrow, "mlp.routed_expert_norm") if config.flag("latent_moe_use_norm", default=False) else ()),
    )


def _feed_forward(config: Config, hidden: int, *, sparse: bool) -> tuple[Dense | Experts, tuple[Tensor, ...]]:
    if sparse:
        mixture = _mixture(config)
        narrow = config.integer("routed_expert_hidden_size", default=0)
        mixed = msgspec.structs.replace(mixture.kind(config), latent=narrow)
        return mixed, (*mixture.tensors(config, mixed, hidden), *_narrowing(config, hidden, narrow))
    kind = Dense(intermediate=config.size("intermediate_size"), activation=config.text("hidden_act", default="silu"))
    return kind, parts.gated_mlp(kind, hidden)
