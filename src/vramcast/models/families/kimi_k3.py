"""Kimi K3: the decoder of Kimi Linear with MoonViT of one norm form, whose patches a projector merges in squares.

Source of shapes: vllm/models/kimi_k3 and the fields of its published vision_config (queries, keys and values are wider than the
hidden size; no layer has a bias).
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Model, Tower

_STYLE = vit.Style(
    attention="", qkv="wqkv", out="wo", mlp=("mlp.fc0", "mlp.fc1"), norms=("norm0", "norm1"),
    bias=False, out_bias=False, mlp_bias=False, norm_bias=False, activation="gelu_pytorch_tanh",
)  # fmt: skip


def read(config: Config) -> Model:
    """A Kimi K3 model; a copy without the tower's config is the decoder alone, and says so."""
    text = wrapper.text_of(config, "kimi_linear")
    if not config.optional_child("vision_config"):
        alone = wrapper.wrap(config, text, prefix="language_model.model.", towers=(), tied=False)
        return wrapper.without_tower(alone, "the vision tower and its projector")
    seen = config.child("vision_config")
    towers = (_vision(seen), _projector(seen, text.size("hidden_size")))
    return wrapper.wrap(config, text, prefix="language_model.model.", towers=towers, tied=False)


def _vision(config: Config) -> Tower:
    width, name = config.size("vt_hidden_size", default=1024), "vision_tower."
    heads, patch = config.size("vt_num_attention_heads", default=12), config.size("patch_size", default=14)
    high, across = (config.size(f"init_pos_emb_{side}", default=64) for side in ("height", "width"))
    block = vit.block(
        f"{name}encoder.blocks.{{}}.",
        config.size("vt_num_hidden_layers", default=27),
        width,
        heads,
        head_dim=config.size("qkv_hidden_size", default=1536) // heads,
        intermediate=config.size("vt_intermediate_size", default=4096),
        style=_STYLE,
    )
    around = (
        *vit.patches(f"{name}patch_embed.proj", width, 3, patch, patch),
        vit.table(f"{name}patch_embed.pos_emb.weight", high, across, width),
        *parts.norms(width, f"{name}encoder.final_layernorm"),
    )
    merge = wrapper.side(config, "merge_kernel_size", default=2)
    facts: dict[str, float] = {"patch_size": patch, "merge": merge}
    return Tower(name=name, kind="vision", hidden=width, blocks=(block,), tensors=around, facts=facts)


def _projector(config: Config, hidden: int) -> Tower:
    joined = config.size("vt_hidden_size", default=1024) * wrapper.side(config, "merge_kernel_size", default=2) ** 2
    tensors = (
        *parts.linear("mm_projector.proj.0", joined, joined, "projector", shard=None),
        *parts.linear("mm_projector.proj.2", hidden, joined, "projector", shard=None),
        *parts.norms(hidden, "mm_projector.post_norm"),
    )
    return Tower(name="mm_projector.", kind="projector", tensors=tensors)
