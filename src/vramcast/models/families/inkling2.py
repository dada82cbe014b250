"""Inkling 2: the decoder of ``inkling_text`` with a vision transformer whose squares of patches two layers project.

Source of names and shapes: transformers 5.23, modeling_inkling2.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import inkling_text, parts, vit, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_STYLE = vit.Style(norms=("layernorm_before", "layernorm_after"))


def read(config: Config, *, prefix: str = "model.") -> Model:
    """An Inkling 2 model, or its decoder alone."""
    if config.text("model_type") == "inkling2_text":
        return inkling_text.read(config, prefix=prefix)
    text = wrapper.text_of(config, "inkling2_text")
    seen = wrapper.part(config, "vision_config", "inkling2_vision")
    towers = (_vision(seen, text.size("hidden_size"), "model.vision_tower."),)
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=towers, tied=False)


def _vision(config: Config, out: int, name: str) -> Tower:
    hidden, patch = config.size("hidden_size"), config.size("native_patch_size", "patch_size", default=20)
    merge, inner = config.size("adapter_merge_size", "spatial_merge_size", default=2), config.size("projection_hidden_dim")
    channels, bias = config.size("num_channels", default=3), config.flag("projector_bias", default=False)
    scales = tuple(Tensor(name=each, shape=(hidden,), role="norm") for each in ("lambda_1", "lambda_2"))
    block = vit.block(
        f"{name}layers.{{}}.",
        config.size("num_hidden_layers"),
        hidden,
        config.size("num_attention_heads"),
        intermediate=config.size("intermediate_size", default=int(hidden * config.number("mlp_ratio", default=4))),
        style=_STYLE,
        extra=scales,
    )
    tensors = (
        vit.table(f"{name}embeddings.class_embedding", hidden),
        vit.table(f"{name}embeddings.cls_position_embedding", hidden),
        *vit.patches(f"{name}embeddings.patch_embedding", hidden, channels * patch**2),
        vit.table(f"{name}embeddings.position_embedding.weight", config.size("posemb_grid_size", default=32) ** 2, hidden),
        *parts.norms(hidden, f"{name}pre_layernorm", bias=True),
        *parts.linear(f"{name}merger.linear_1", inner, merge**2 * hidden, "projector", shard=None, bias=bias),
        *parts.linear(f"{name}merger.linear_2", out, inner, "projector", shard=None, bias=bias),
    )
    facts: dict[str, float] = {"patch_size": patch, "merge": merge}
    return Tower(name=name, kind="vision", hidden=hidden, blocks=(block,), tensors=tensors, facts=facts)
