"""Gemma 4's vision and audio towers, and the projections that stand in for them in the unified model.

Source of names and shapes: transformers 5.23, modeling_gemma4.py and modeling_gemma4_unified.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, state_space, vit, wrapper
from vramcast.models.inventory import Block, Tensor, Tower
from vramcast.models.layers import Attention, Dense

_VISION = vit.Style(
    separate=("q_proj.linear", "k_proj.linear", "v_proj.linear"), out="o_proj.linear", bias=False, out_bias=False,
    mlp=("mlp.gate_proj.linear", "mlp.up_proj.linear", "mlp.down_proj.linear"), mlp_bias=False, norm_bias=False,
    norms=("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
    activation="gelu_pytorch_tanh",
)  # fmt: skip


def vision(config: Config, hidden: int) -> tuple[Tower, ...]:
    """The vision tower and its projection to the decoder's ``hidden``, none when the config has none."""
    if not config.has("vision_config"):
        return ()
    family = config.text("model_type")
    seen = wrapper.part(config, "vision_config", f"{family}_vision")
    return (_patches_only(seen, hidden),) if family == "gemma4_unified" else (_vision(seen, hidden),)


def audio(config: Config, hidden: int) -> tuple[Tower, ...]:
    """The audio tower likewise."""
    if not config.has("audio_config"):
        return ()
    family = config.text("model_type")
    heard = wrapper.part(config, "audio_config", f"{family}_audio")
    width = heard.size("output_proj_dims", "hidden_size")
    projection = parts.linear("model.embed_audio.embedding_projection", hidden, width, "projector", shard=None)
    if family == "gemma4_unified":
        return (Tower(name="model.embed_audio.", kind="projector", tensors=projection, hidden=width),)
    return (_audio(heard, projection),)


def _vision(config: Config, hidden: int) -> Tower:
    width, patch, head = config.size("hidden_size"), config.size("patch_size"), config.size("head_dim")
    name = "model.vision_tower."
    block = vit.block(
        f"{name}encoder.layers.{{}}.",
        config.size("num_hidden_layers"),
        width,
        config.size("num_attention_heads"),
        intermediate=config.size("intermediate_size"),
        style=_VISION,
        head_dim=head,
        extra=parts.norms(head, "self_attn.q_norm", "self_attn.k_norm"),
    )
    tensors = (
        vit.table(f"{name}patch_embedder.position_embedding_table", 2, config.size("position_embedding_size"), width),
        *parts.linear(f"{name}patch_embedder.input_proj", width, 3 * patch * patch, "patch", shard=None),
        *parts.linear("model.embed_vision.embedding_projection", hidden, width, "projector", shard=None),
    )
    facts: dict[str, float] = {"patch_size": patch, "merge": config.size("pooling_kernel_size", default=3)}
    return Tower(name=name, kind="vision", blocks=(block,), tensors=tensors, hidden=width, facts=facts)


def _patches_only(config: Config, hidden: int) -> Tower:
    """The unified model: patches are normalised, projected and given a position, nothing more."""
    width, patch, name = config.size("mm_embed_dim"), config.size("model_patch_size"), "model.embed_vision."
    pixels = 3 * patch * patch
    return Tower(
        name=name,
        kind="projector",
        hidden=width,
        tensors=(
            vit.table(f"{name}pos_embedding", config.size("mm_posemb_size"), 2, width),
            *parts.norms(pixels, f"{name}patch_ln1", bias=True),
            *parts.linear(f"{name}patch_dense", width, pixels, "patch", shard=None, bias=True),
            *parts.norms(width, f"{name}patch_ln2", f"{name}pos_norm", bias=True),
            *parts.linear(f"{name}multimodal_embedder.embedding_projection", hidden, width, "projector", shard=None),
        ),
        facts={"patch_size": patch, "tokens_per_image": config.integer("num_soft_tokens", default=0)},
    )


def _audio(config: Config, projection: tuple[Tensor, ...]) -> Tower:
    """A conformer over a spectrogram of 128 bands that two convolutions of stride 2 bring to 32."""
    width, name = config.size("hidden_size"), "model.audio_tower."
    first, second = (int(c) for c in config.list("subsampling_conv_channels", default=[128, 32]))
    start = f"{name}subsample_conv_projection."
    tensors = (
        Tensor(name=f"{start}layer0.conv.weight", shape=(first, 1, 3, 3), role="conv"),
        *parts.norms(first, f"{start}layer0.norm"),
        Tensor(name=f"{start}layer1.conv.weight", shape=(second, first, 3, 3), role="conv"),
        *parts.norms(second, f"{start}layer1.norm"),
        *parts.linear(f"{start}input_proj_linear", width, 32 * second, "projector", shard=None),
        *parts.linear(f"{name}output_proj", config.size("output_proj_dims"), width, "projector", shard=None, bias=True),
        *projection,
    )
    return Tower(name=name, kind="audio", blocks=(_conformer(config, width, name),), tensors=tensors, hidden=width)


def _conformer(config: Config, width: int, name: str) -> Block:
    heads = config.size("num_attention_heads")
    kind = Attention(heads=heads, kv_heads=heads, head_dim=width // heads, causal=False)
    square = [f"self_attn.{x}_proj.linear" for x in "qkv"] + ["self_attn.post.linear", "self_attn.relative_k_proj"]
    mlp = Dense(intermediate=4 * width, gated=False)
    halves = [
        tensor
        for half in ("feed_forward1.", "feed_forward2.")
        for tensor in (
            *parts.plain_mlp(mlp, width, f"{half}ffw_layer_1.linear", f"{half}ffw_layer_2.linear"),
            *parts.norms(width, f"{half}pre_layer_norm", f"{half}post_layer_norm"),
        )
    ]
    return Block(
        name=f"{name}layers.{{}}.",
        indices=tuple(range(config.size("num_hidden_layers"))),
        mixers=(kind,),
        feedforward=mlp,
        tensors=(
            *halves,
            Tensor(name="self_attn.per_dim_scale", shape=(kind.head_dim,), role="norm"),
            *(t for n in square for t in parts.linear(n, width, width, "mixer", shard=None)),
            *parts.linear("lconv1d.linear_start.linear", 2 * width, width, "mixer", shard=None),
            *parts.linear("lconv1d.linear_end.linear", width, width, "mixer", shard=None),
            *state_space.convolution("lconv1d.depthwise_conv1d", width, config.size("conv_kernel_size", default=5), bias=False),
            *parts.norms(width, "lconv1d.pre_layer_norm", "lconv1d.conv_norm", "norm_pre_attn", "norm_post_attn", "norm_out"),
        ),
    )
