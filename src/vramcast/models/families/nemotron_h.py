"""Nemotron-H and Nemotron 3: each layer is one thing alone (Mamba 2, attention, MLP or experts), in the order of a pattern.

Source of names and shapes: transformers 5.23, modeling_nemotron_h.py; names of the multi-token-prediction layers, which
transformers does not build: vLLM, models/nemotron_h_mtp.py.
"""

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts, state_space
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense, Experts, Mamba2

_LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}


def read(config: Config, *, prefix: str = "backbone.") -> Model:
    """A Nemotron-H model; its MTP layers are stored but not loaded, and its head is never tied (the class has no such key)."""
    hidden = config.size("hidden_size")
    pattern = pattern_of(config, "layers_block_type", "hybrid_override_pattern")
    mtp = _mtp(config, hidden)
    return parts.decoder(
        Config({**config.raw, "tie_word_embeddings": False}, config.path),
        hidden=hidden,
        blocks=parts.stack(pattern, lambda kind: _layer(config, hidden, kind, f"{prefix}layers.{{}}.")),
        embedding=f"{prefix}embeddings.weight",
        norm=parts.norms(hidden, f"{prefix}norm_f"),
        head="lm_head.weight",
        towers=(mtp,) if mtp else (),
    )


def pattern_of(config: Config, listed: str, lettered: str) -> list[str]:
    """What each layer is: a list of names, or a string of M, E, * and -."""
    if config.has(listed):
        return state_space.layer_kinds(config, listed, tuple(_LETTERS.values()))
    letters = config.text(lettered)
    if strange := set(letters) - set(_LETTERS):
        raise UnmodelledError(f"{config.path}: {lettered} holds {''.join(sorted(strange))[:20]!r}, known are M, E, * and -")
    return [_LETTERS[letter] for letter in letters]


def _layer(config: Config, hidden: int, kind: str, name: str) -> Block:
    build = {"linear_attention": _mamba, "full_attention": _attention, "mlp": _mlp, "moe": _experts}[kind]
    mixer, feed, tensors = build(config, hidden)
    own = (*tensors, *parts.norms(hidden, "norm"))
    return Block(name=name, indices=(), mixers=(mixer,) if mixer else (), feedforward=feed, tensors=own)


Layer = tuple[Attention | Mamba2 | None, Dense | Experts | None, tuple[Tensor, ...]]


def _mamba(config: Config, hidden: int) -> Layer:
    kind = Mamba2(
        heads=config.size("mamba_num_heads"),
        head_dim=config.size("mamba_head_dim"),
        groups=config.size("mamba_n_groups", "n_groups", default=8),
        state=config.size("ssm_state_size", default=128),
        conv=config.size("mamba_d_conv", "conv_kernel", default=4),
        chunk=config.size("mamba_chunk_size", "chunk_size", default=128),
    )
    bias, conv_bias = config.flag("use_bias", default=False), config.flag("mamba_conv_bias", "use_conv_bias", default=True)
    return kind, None, state_space.mamba2(kind, hidden, prefix="mixer.", bias=bias, conv_bias=conv_bias)


def _attention(config: Config, hidden: int) -> Layer:
    heads = config.size("num_attention_heads")
    kind = Attention(
        heads=heads,
        kv_heads=config.size("num_key_value_heads", default=heads),
        head_dim=config.size("head_dim", "attention_head_dim", default=128),
        rope_dim=0,
    )
    return kind, None, parts.attention(kind, hidden, prefix="mixer.")  # without biases, whatever ``attention_bias`` says


def _mlp(config: Config, hidden: int) -> Layer:
    kind = Dense(
        intermediate=config.size("intermediate_size"), gated=False, activation=config.text("mlp_hidden_act", default="relu2")
    )
    bias = config.flag("mlp_bias", default=False)
    return None, kind, parts.plain_mlp(kind, hidden, "mixer.up_proj", "mixer.down_proj", bias=bias)


def _experts(config: Config, hidden: int) -> Layer:
    """Experts without a gate, in a latent space when ``moe_latent_size`` is set."""
    kind = Experts(
        routed=config.size("n_routed_experts"),
        active=config.size("num_experts_per_tok"),
        intermediate=config.size("moe_intermediate_size"),
        shared_intermediate=config.size("moe_shared_expert_intermediate_size"),
        gated=False,
        activation=config.text("mlp_hidden_act", default="relu2"),
        latent=config.integer("moe_latent_size", default=0),
    )
    bias, shared = config.flag("mlp_bias", default=False), Dense(intermediate=kind.shared_intermediate, gated=False)
    latent = (
        *parts.linear("mixer.fc1_latent_proj", kind.latent, hidden, "latent", shard=None, bias=bias),
        *parts.linear("mixer.fc2_latent_proj", hidden, kind.latent, "latent", shard=None, bias=bias),
    )
    names = ("mixer.shared_experts.up_proj", "mixer.shared_experts.down_proj")
    return (
        None,
        kind,
        (
            *parts.router(kind, hidden, "mixer.gate"),
            *parts.correction(kind, "mixer.gate.e_score_correction_bias"),
            *parts.experts(kind, hidden, prefix="mixer.experts."),
            *parts.plain_mlp(shared, hidden, *names, bias=bias, role="shared."),
            *(latent if kind.latent else ()),
        ),
    )


def _mtp(config: Config, hidden: int) -> Tower | None:
    """The prediction layers: the pattern's layers, joined to the decoder by a projection before the first."""
    if not config.integer("num_nextn_predict_layers", default=0):
        return None
    if config.has("mtp_layers_block_type") or config.has("mtp_hybrid_override_pattern"):
        pattern = pattern_of(config, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    else:
        pattern = ["full_attention", "moe"]
    joint = (
        *parts.norms(hidden, "mtp.layers.0.enorm", "mtp.layers.0.hnorm"),
        *parts.linear("mtp.layers.0.eh_proj", hidden, 2 * hidden, "mixer", shard=None),
        *parts.norms(hidden, f"mtp.layers.{len(pattern) - 1}.final_layernorm"),
    )
    blocks = parts.stack(pattern, lambda kind: _layer(config, hidden, kind, "mtp.layers.{}."))
    return Tower(name="mtp", kind="mtp", blocks=blocks, tensors=joint, hidden=hidden, stored_only=True)
