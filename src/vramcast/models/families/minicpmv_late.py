"""MiniCPM-V 4.6 and 4.7 and MiniCPM-OCR: SigLIP that merges windows half way, layers that merge again, a Qwen3.5 decoder.

Source of names and shapes: transformers 5.23, modeling_minicpmv4_6.py, modeling_minicpmv4_7.py and modeling_minicpm_ocr.py.
"""

from math import prod

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower
from vramcast.models.layers import Attention


def read(config: Config) -> Model:
    """A MiniCPM-V of these generations."""
    family = config.text("model_type")
    text = wrapper.text_of(config, "qwen3_5_text")
    seen = wrapper.part(config, "vision_config", f"{family}_vision")
    towers = (_vision(seen, "model.vision_tower."), _merger(config, seen.size("hidden_size"), text.size("hidden_size")))
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=towers, tied=family == "minicpm_ocr")


def _vision(config: Config, name: str) -> Tower:
    hidden, patch, image = config.size("hidden_size"), wrapper.side(config, "patch_size"), wrapper.side(config, "image_size")
    heads, inner = config.size("num_attention_heads"), config.size("intermediate_size")
    style = vit.Style(activation=config.text("hidden_act", default="gelu_pytorch_tanh"), rope=False)
    layers = config.size("num_hidden_layers")
    channels = config.size("num_channels", default=3)
    tensors = (
        *vit.patches(f"{name}embeddings.patch_embedding", hidden, channels, patch, patch, bias=True),
        vit.table(f"{name}embeddings.position_embedding.weight", (image // patch) ** 2, hidden),
        *parts.norms(hidden, f"{name}post_layernorm", bias=True),
        *_window_merger(config, hidden, style, f"{name}vit_merger."),
    )
    block = vit.block(f"{name}encoder.layers.{{}}.", layers, hidden, heads, intermediate=inner, style=style)
    return Tower(name=name, kind="vision", hidden=hidden, blocks=(block,), tensors=tensors, facts={"patch_size": patch})


def _window_merger(config: Config, hidden: int, style: vit.Style, name: str) -> tuple[Tensor, ...]:
    """Attention within a window, then two layers that make one patch of it."""
    joined = prod(config.integers("window_kernel_size", default=[2, 2]))
    heads, inner = config.size("num_attention_heads"), config.size("intermediate_size") * joined
    kind = Attention(heads=heads, kv_heads=heads, head_dim=max(1, hidden // heads), causal=False, rope_dim=0)
    attention = vit.projections(kind, hidden, vit.Style(attention=f"{name}self_attn.", rope=style.rope))
    return (
        *attention,
        *parts.norms(hidden, f"{name}layer_norm1", bias=True),
        *parts.norms(joined * hidden, f"{name}pre_norm", bias=True),
        *parts.linear(f"{name}linear_1", inner, joined * hidden, "projector", shard=None, bias=True),
        *parts.linear(f"{name}linear_2", hidden, inner, "projector", shard=None, bias=True),
    )


def _merger(config: Config, width: int, hidden: int) -> Tower:
    """``merger_times`` layers, each of which joins four patches; the last projects to the decoder's width."""
    times, wide = config.size("merger_times", default=1), 4 * width
    names = [f"model.merger.mlp.{i}." for i in range(times)]
    tensors = (
        *(t for n in names for t in parts.norms(wide, f"{n}pre_norm", bias=True)),
        *(t for n in names for t in parts.linear(f"{n}linear_1", wide, wide, "projector", shard=None, bias=True)),
        *(
            t
            for i, n in enumerate(names)
            for t in parts.linear(f"{n}linear_2", width if i < times - 1 else hidden, wide, "projector", shard=None, bias=True)
        ),
    )
    return Tower(name="model.merger.", kind="projector", tensors=tensors)
