"""PLaMo 1 to 3: attention and MLP beside each other, then Mamba 2 with attention every other layer, then windows.

Source of names and shapes: modeling_plamo.py beside pfnet/plamo-13b, vLLM's plamo2.py and plamo3.py. The first counts
13.1 B as its card says; all three count what mlx-lm 0.32.2 builds of the same config.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, spans, state_space
from vramcast.models.inventory import Block, Mixer, Model, Tensor
from vramcast.models.layers import Attention, Dense, Mamba2

_NORMS = ("pre_mixer_norm", "post_mixer_norm", "pre_mlp_norm", "post_mlp_norm")
_LEAST_RANK = 64


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A PLaMo model of any generation."""
    family, name = config.text("model_type"), f"{prefix}layers.layers.{{}}."
    hidden, count = config.size("hidden_size"), config.size("num_hidden_layers")
    if family == "plamo":
        blocks = parts.stack([0] * count, lambda _: _first(config, name, hidden))
    elif family == "plamo2":
        blocks = parts.stack(_mambas(config, count), lambda mamba: _second(config, name, hidden, mamba))
    else:
        blocks = parts.stack(_windows(config, count), lambda span: _third(config, name, hidden, span))
    return parts.decoder(
        config,
        hidden=hidden,
        prefix=prefix,
        blocks=blocks,
        tied=family != "plamo",
    )


def _first(config: Config, name: str, hidden: int) -> Block:
    """One norm for attention and MLP; ``n_shared_head`` query heads share a key head."""
    heads = config.size("num_attention_heads")
    shared = config.size("n_shared_head", default=1)
    kind = Attention(heads=heads, kv_heads=-(-heads // shared), head_dim=max(1, hidden // heads))
    mlp = Dense(intermediate=config.size("intermediate_size"))
    tensors = (*parts.attention(kind, hidden), *parts.gated_mlp(mlp, hidden), *parts.norms(hidden, "norm"))
    return Block(name=name, indices=(), mixers=(kind,), feedforward=mlp, tensors=tensors, parallel=True)


def _mambas(config: Config, count: int) -> list[bool]:
    """Whether each layer is Mamba: all but the middle one of every ``mamba_step``."""
    step = config.size("mamba_step", default=2)
    if not config.flag("mamba_enabled", default=True):
        return [False] * count
    if count <= step // 2:
        return [i != count - 1 for i in range(count)]
    return [i % step != step // 2 for i in range(count)]


def _second(config: Config, name: str, hidden: int, mamba: bool) -> Block:
    width = config.size("hidden_size_per_head")
    mixer: Mixer
    if mamba:
        mixer = Mamba2(
            heads=config.size("mamba_num_heads"),
            head_dim=width,
            groups=0,
            state=config.size("mamba_d_state"),
            conv=config.size("mamba_d_conv"),
            chunk=config.size("mamba_chunk_size", default=256),
        )
        return _layer(config, name, hidden, mixer, _mamba(mixer, hidden))
    heads = config.size("num_attention_heads")
    mixer = Attention(heads=heads, kv_heads=config.size("num_key_value_heads", default=heads), head_dim=width, qk_norm=True)
    scales = tuple(
        Tensor(name=f"mixer.{n}_weight", shape=(each, width), role="norm", shard=0, groups=each)
        for n, each in (("q", mixer.heads), ("k", mixer.kv_heads))
    )
    return _layer(config, name, hidden, mixer, (*_projections(mixer, hidden), *scales))


def _mamba(kind: Mamba2, hidden: int) -> tuple[Tensor, ...]:
    """B, C and the time step are made of the convolved input, all heads share B and C."""
    rank, prefix = max(_LEAST_RANK, hidden // 16), "mixer."
    return (
        *parts.linear(f"{prefix}in_proj", 2 * kind.inner, hidden, "mixer", shard=0),
        *state_space.convolution(f"{prefix}conv1d", kind.inner, kind.conv, bias=False),
        *parts.linear(f"{prefix}bcdt_proj", rank + 2 * kind.state, kind.inner, "mixer", shard=1),
        *parts.linear(f"{prefix}dt_proj", kind.heads, rank, "mixer", shard=0),
        *(state_space.state(f"{prefix}{n}", kind.heads) for n in ("A_log", "D", "dt_bias")),
        *(Tensor(name=f"{prefix}{n}_norm_weight", shape=(kind.state,), role="norm") for n in "BC"),
        Tensor(name=f"{prefix}dt_norm_weight", shape=(rank,), role="norm"),
        *parts.linear(f"{prefix}out_proj", hidden, kind.inner, "mixer", shard=1),
    )


def _windows(config: Config, count: int) -> list[spans.Span]:
    """Windows as ``layer_types`` has them, a list with one entry for each layer, or seven of eight."""
    if isinstance(config.raw.get("sliding_window"), list):
        given = [0 if each is None else each for each in config.per_layer("sliding_window", count)]
        return [spans.Span(window=Config({"w": each}, config.path).integer("w")) for each in given]
    return spans.of(config, count, spans.every(8))


def _third(config: Config, name: str, hidden: int, span: spans.Span) -> Block:
    heads = config.size("num_attention_heads")
    kind = Attention(
        heads=heads,
        kv_heads=config.size("num_key_value_heads", default=heads),
        head_dim=config.size("head_dim", default=max(1, hidden // heads)),
        window=span.window,
        qk_norm=True,
    )
    norms = parts.norms(kind.head_dim, "mixer.q_norm", "mixer.k_norm")
    return _layer(config, name, hidden, kind, (*_projections(kind, hidden), *norms))


def _projections(kind: Attention, hidden: int) -> tuple[Tensor, ...]:
    return parts.fused_attention(kind, hidden, qkv="mixer.qkv_proj", out="mixer.o_proj")


def _layer(config: Config, name: str, hidden: int, mixer: Mixer, tensors: tuple[Tensor, ...]) -> Block:
    mlp = Dense(intermediate=config.size("intermediate_size"))
    return Block(
        name=name,
        indices=(),
        mixers=(mixer,),
        feedforward=mlp,
        tensors=(*tensors, *parts.fused_mlp(mlp, hidden), *parts.norms(hidden, *_NORMS)),
    )
