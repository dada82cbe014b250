"""VideoChat-Flash and InternLM-XComposer 2: towers that only their code describes, before a Qwen2 and an InternLM2.

Source of names and shapes: modeling_videochat_flash.py, vision_tower_builder.py and mm_projector_builder.py beside
OpenGVLab/VideoChat-Flash; modeling_internlm_xcomposer2.py, modeling_internlm2.py and build_mlp.py beside
internlm/internlm-xcomposer2-4khd-7b. VideoChat-Flash-Qwen2-7B equals its weight index (15,845,235,712 bytes); XComposer 2 has
every tensor that its index names and 0.9 % more bytes than the index states.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower

_UMT = vit.Style(attention="attn.", qkv="qkv", out="proj", bias=False, norms=("norm1", "norm2"), rope=False)
_UMT_LARGE = {"width": 1024, "heads": 16, "layers": 23, "mlp": 4096, "patch": 16}
"""The last of 24 layers is dropped, as the projector reads the one before it."""
_CLIP = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "patch_size": 14, "image_size": 336,
}  # fmt: skip
_RANK = 256
_BESIDE = ("wqkv", "wo", "w1", "w2", "w3")


def read(config: Config) -> Model:
    """A VideoChat-Flash or an InternLM-XComposer 2 model."""
    return _xcomposer(config) if config.text("model_type") == "internlmxcomposer2" else _videochat(config)


def _videochat(config: Config) -> Model:
    text = wrapper.text_of(config, "qwen2")
    named = config.text("mm_vision_tower", default="")
    if named not in ("umt-hd-large", "umt-large"):
        model = wrapper.wrap(config, text, prefix="model.", towers=(), tied=False)
        return wrapper.without_tower(model, f"vision tower {named}".strip())
    tower, hidden = _umt(), text.size("hidden_size")
    tensors = (
        *parts.linear("model.mm_projector.mlp.0", hidden, tower.hidden, "projector", shard=None, bias=True),
        *parts.linear("model.mm_projector.mlp.2", hidden, hidden, "projector", shard=None, bias=True),
    )
    projector = Tower(name="model.mm_projector.", kind="projector", tensors=tensors)
    return wrapper.wrap(config, text, prefix="model.", towers=(tower, projector), tied=False)


def _umt() -> Tower:
    """UMT-L: queries and values have biases of their own beside one product; its positions are computed."""
    width, name = _UMT_LARGE["width"], "model.vision_tower.vision_tower.encoder."
    biases = tuple(Tensor(name=f"attn.{each}_bias", shape=(width,), role="bias") for each in "qv")
    block = vit.block(
        f"{name}blocks.{{}}.", _UMT_LARGE["layers"], width, _UMT_LARGE["heads"], intermediate=_UMT_LARGE["mlp"], style=_UMT,
        extra=biases,
    )  # fmt: skip
    patch = _UMT_LARGE["patch"]
    tensors = (
        *vit.patches(f"{name}patch_embed.proj", width, 3, 1, patch, patch, bias=True),
        *parts.norms(width, f"{name}vision_layernorm", bias=True),
    )
    return Tower(name=name, kind="vision", hidden=width, blocks=(block,), tensors=tensors, facts={"patch_size": patch})


def _xcomposer(config: Config) -> Model:
    """CLIP's tower, four of its patches joined; beside each product of the decoder stands a pair of rank 256 for images."""
    text = wrapper.text_of(config, "internlm2")
    hidden = text.size("hidden_size")
    seen = vit.tower(Config(_CLIP, f"{config.path}: the tower of its code"), "vit.vision_tower.")
    tower = msgspec.structs.replace(seen, tensors=tuple(t for t in seen.tensors if ".post_layernorm." not in t.name))
    joined = (
        *parts.linear("vision_proj.0", hidden, 4 * tower.hidden, "projector", shard=None, bias=True),
        *parts.linear("vision_proj.2", hidden, hidden, "projector", shard=None, bias=True),
        vit.table("plora_glb_GN", 1, 1, 4 * tower.hidden),
        vit.table("plora_sub_GN", 1, 1, 1, 4 * tower.hidden),
    )
    projector = Tower(name="vision_proj.", kind="projector", tensors=joined)
    plain = Config({**config.raw, "architectures": ["InternLMXComposer2ForCausalLM"]}, config.path)
    model = wrapper.wrap(plain, text, prefix="model.", towers=(tower, projector), tied=False)
    model = msgspec.structs.replace(model, blocks=tuple(_beside(block) for block in model.blocks))
    return wrapper.without_tower(model, "pairs of rank 256, whose bytes its weight index states 0.9 % lower")


def _beside(block: Block) -> Block:
    """The block with a pair of rank 256 beside each of its products."""
    pairs: list[Tensor] = []
    for tensor in block.tensors:
        name = tensor.name.removesuffix(".weight")
        if name.rpartition(".")[2] in _BESIDE:
            outputs, inputs = tensor.shape
            pairs += parts.linear(f"{name}.Plora_A", _RANK, inputs, "other", shard=None)
            pairs += parts.linear(f"{name}.Plora_B", outputs, _RANK, "other", shard=None)
    return msgspec.structs.replace(block, tensors=(*block.tensors, *pairs))
