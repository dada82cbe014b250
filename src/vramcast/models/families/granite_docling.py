"""Granite Docling: SigLIP whose patches one coarse and one fine path join in squares, into several layers of the decoder.

Source of names and shapes: transformers 5.23, modeling_granite_docling.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower


def read(config: Config) -> Model:
    """A Granite Docling model."""
    text = wrapper.text_of(config, "granite_docling_text")
    seen, name = wrapper.part(config, "vision_config", "granite_docling_vision"), "model.vision_model."
    towers = (_vision(seen, name), _connector(config, seen, text.size("hidden_size"), f"{name}connector."))
    return wrapper.wrap(config, text, prefix="model.text_model.", towers=towers, tied=True)


def _vision(config: Config, name: str) -> Tower:
    hidden, patch, image = config.size("hidden_size"), wrapper.side(config, "patch_size"), wrapper.side(config, "image_size")
    heads, layers, inner = (config.size(n) for n in ("num_attention_heads", "num_hidden_layers", "intermediate_size"))
    channels, style = config.size("num_channels", default=3), vit.Style(activation="gelu_pytorch_tanh", rope=False)
    tensors = (
        *vit.patches(f"{name}embeddings.patch_embedding", hidden, channels, patch, patch, bias=True),
        vit.table(f"{name}embeddings.position_embedding.weight", (image // patch) ** 2, hidden),
        *parts.norms(hidden, f"{name}post_layernorm", bias=True),
    )
    block = vit.block(f"{name}encoder.layers.{{}}.", layers, hidden, heads, intermediate=inner, style=style)
    facts: dict[str, float] = {"patch_size": patch, "image_size": image}
    return Tower(name=name, kind="vision", hidden=hidden, blocks=(block,), tensors=tensors, facts=facts)


def _connector(config: Config, seen: Config, hidden: int, name: str) -> Tower:
    width, scale = seen.size("hidden_size"), seen.size("scale_factor", default=4)
    deep = len(seen.list("deepstack_visual_indexes", default=[3, 7, 10]))
    fine = seen.flag("use_fine_route", default=True)
    tensors = (
        *parts.norms(width, f"{name}ln_in", bias=True),
        *_path(f"{name}coarse.", width * scale**2, hidden, deep),
        *(_path(f"{name}fine.", width * (scale // 2) ** 2, hidden, deep) if fine else ()),
        *parts.norms(hidden, f"{name}ln_mid", f"{name}ln_out", bias=True),
        *parts.linear(f"{name}mlp_fc2", hidden, hidden, "projector", shard=None),
        *_router(width, config.integer("density_router_hidden_size", default=0)),
    )
    return Tower(name=name, kind="projector", tensors=tensors)


def _path(name: str, wide: int, hidden: int, deep: int) -> tuple[Tensor, ...]:
    """A projection of joined patches, and one more with its norm for each layer whose output joins the decoder's."""
    mergers = [f"{name}deepstack_mergers.{i}." for i in range(deep)]
    return (
        *parts.linear(f"{name}projection", hidden, wide, "projector", shard=None),
        *(t for m in mergers for t in parts.norms(wide, f"{m}layer_norm", bias=True)),
        *(t for m in mergers for t in parts.linear(f"{m}linear_1", hidden, wide, "projector", shard=None, bias=True)),
        *(t for m in mergers for t in parts.linear(f"{m}linear_2", hidden, hidden, "projector", shard=None, bias=True)),
    )


def _router(width: int, inner: int) -> tuple[Tensor, ...]:
    """What chooses the path by how dense a page is, where the config gives it a width."""
    if not inner:
        return ()
    name = "model.density_router."
    return (
        *parts.linear(f"{name}att", 1, width, "projector", shard=None, bias=True),
        *parts.norms(width, f"{name}norm", bias=True),
        *parts.linear(f"{name}fc1", inner, width, "projector", shard=None, bias=True),
        *parts.linear(f"{name}fc2", 1, inner, "projector", shard=None, bias=True),
    )
