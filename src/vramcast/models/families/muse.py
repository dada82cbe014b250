"""Muse Glimmer and Muse Spark: a vision transformer whose patches are joined in squares; Spark also hears, by convolutions.

Source of names and shapes: transformers 5.23, modeling_muse_glimmer.py and modeling_muse_spark.py.
"""

from math import prod

from vramcast.errors import ConfigError
from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Dense

_STYLE = vit.Style(attention="attn.", out="proj", norms=("norm1", "norm2"))


def read(config: Config) -> Model:
    """A Muse Glimmer or Muse Spark model."""
    family = config.text("model_type")
    text = wrapper.text_of(config, f"{family}_text")
    hidden = text.size("hidden_size")
    towers = (
        _vision(wrapper.part(config, "vision_config", f"{family}_vision"), "model.vision_tower."),
        _projector(config, hidden),
        *(
            (_audio(wrapper.part(config, "audio_config", "muse_spark_audio"), "model.audio_tower."),)
            if family == "muse_spark"
            else ()
        ),
    )
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=towers, tied=False)


def _vision(config: Config, name: str) -> Tower:
    hidden, patch = config.size("hidden_size"), config.size("patch_size", default=14)
    frames, merge = config.size("patch_temporal", default=2), config.size("merge_size", default=2)
    places = config.size("pos_emb_height", default=32) * config.size("pos_emb_width", default=32)
    block = vit.block(
        f"{name}layers.{{}}.",
        config.size("num_hidden_layers"),
        hidden,
        config.size("num_attention_heads"),
        intermediate=config.size("intermediate_size"),
        style=_STYLE,
    )
    tensors = (
        *vit.patches(f"{name}patch_embedder.patch_embedding", hidden, 3 * frames * patch**2),
        vit.table(f"{name}patch_embedder.position_embedding_table.weight", places, hidden),
        *parts.norms(hidden, f"{name}ln_pre", f"{name}ln_post", bias=True),
    )
    facts: dict[str, float] = {"patch_size": patch, "merge": merge, "temporal_patch_size": frames}
    return Tower(name=name, kind="vision", hidden=hidden, blocks=(block,), tensors=tensors, facts=facts)


def _projector(config: Config, hidden: int) -> Tower:
    joined, inner = config.size("out_hidden_size", default=6144), config.size("projector_hidden_size", default=4096)
    tensors = (
        *parts.linear("model.vision_adapter.fc1", inner, joined, "projector", shard=None),
        *parts.linear("model.vision_adapter.fc2", inner, inner, "projector", shard=None),
        *parts.linear("model.vision_projection", hidden, inner, "projector", shard=None),
    )
    return Tower(name="model.vision_adapter.", kind="projector", tensors=tensors)


def _audio(config: Config, name: str) -> Tower:
    """Stages that join samples, then pass blocks of a convolution over time and an MLP; the first reads the waveform."""
    steps, widths, depths = (config.integers(field) for field in ("patch_sizes", "hidden_sizes", "depths"))
    if not len(steps) == len(widths) == len(depths) or not widths:
        raise ConfigError(
            f"{config.path}: patch_sizes, hidden_sizes and depths have {len(steps)}, {len(widths)} and {len(depths)} entries"
        )
    out = config.size("out_hidden_size")
    stages = zip(widths, depths, strict=True)
    blocks = tuple(_stage(config, f"{name}layers.{i}.", width, depth) for i, (width, depth) in enumerate(stages))
    joints = tuple(t for i in range(len(widths)) for t in _joint(f"{name}layers.{i}.patch_embedder.", steps, widths, i))
    last = (
        *parts.norms(widths[-1], f"{name}norm"),
        *parts.linear(f"{name}proj", out, widths[-1], "projector", shard=None, bias=True),
        *parts.norms(out, f"{name}post_proj_norm"),
    )
    facts: dict[str, float] = {"samples_per_token": prod(steps)}
    return Tower(name=name, kind="audio", hidden=widths[-1], blocks=blocks, tensors=(*joints, *last), facts=facts)


def _joint(name: str, steps: list[int], widths: list[int], place: int) -> tuple[Tensor, ...]:
    inputs = steps[place] * (widths[place - 1] if place else 1)
    projected = parts.linear(f"{name}proj", widths[place], inputs, "patch", shard=None, bias=True)
    return (*projected, *parts.norms(widths[place], f"{name}norm"))


def _stage(config: Config, name: str, width: int, depth: int) -> Block:
    kernel, inner = config.size("conv_kernel_size", default=7), int(width * config.number("mlp_ratio", default=4))
    feed = Dense(intermediate=inner, gated=False, activation="gelu")
    tensors = (
        Tensor(name="conv.weight", shape=(width, 1, kernel), role="conv"),
        Tensor(name="conv.bias", shape=(width,), role="conv"),
        *parts.norms(width, "norm"),
        *parts.plain_mlp(feed, width, "mlp.fc1", "mlp.fc2", bias=True),
    )
    return Block(name=f"{name}conv_blocks.{{}}.", indices=tuple(range(depth)), feedforward=feed, tensors=tensors)
