"""DeepSeek-OCR 2 and Unlimited-OCR as transformers has them: SAM, shrunk by two convolutions, before an encoder over its maps.

The encoder is CLIP's in Unlimited-OCR, a Qwen2 decoder with learned queries in DeepSeek-OCR 2. Source of names and shapes:
transformers 5.23, modeling_unlimited_ocr.py and modeling_deepseek_ocr2.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, read_text, sam, vit, wrapper
from vramcast.models.families.class_defaults import completed
from vramcast.models.inventory import Model, Tensor, Tower

_QUERIES = {"query_768_resolution": 144, "query_1024_resolution": 256}


def read(config: Config) -> Model:
    """A DeepSeek-OCR 2 or Unlimited-OCR model."""
    family = config.text("model_type")
    text = wrapper.text_of(config, f"{family}_text")
    hidden, second = text.size("hidden_size"), family == "deepseek_ocr2"
    seen = config.optional_child("vision_config") or Config({}, f"{config.path}: vision_config")
    fine = _fine(wrapper.part(seen, "sam_config", f"{family}_sam_vision_model"))
    towers = (fine, _queried(seen) if second else _clip(wrapper.part(seen, "encoder_config", f"{family}_vision_encoder")))
    linear = parts.linear(
        "model.multi_modal_projector", hidden, towers[1].hidden * (1 if second else 2), "projector", shard=None, bias=True
    )
    marks = ("model.view_separator",) if second else ("model.view_separator", "model.image_newline")
    projector = Tower(
        name="model.multi_modal_projector.", kind="projector", tensors=(*linear, *(vit.table(mark, hidden) for mark in marks))
    )
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=(*towers, projector), tied=False)


def _fine(config: Config) -> Tower:
    name = "model.vision_tower.sam_encoder."
    tower = sam.tower(config, name)
    widths = config.integers("downsample_channels", default=[512, 896])
    shrunk = (
        *vit.patches(f"{name}proj.conv1", widths[0], tower.hidden, 3, 3),
        *vit.patches(f"{name}proj.conv2", widths[1], widths[0], 3, 3),
    )
    return Tower(
        name=name, kind="vision", hidden=widths[1], blocks=tower.blocks, tensors=(*tower.tensors, *shrunk), facts=tower.facts
    )


def _clip(config: Config) -> Tower:
    """CLIP without its own patches or its last norm: it reads SAM's maps."""
    hidden, name = config.size("hidden_size"), "model.vision_tower.vision_encoder."
    heads, layers, inner = (config.size(n) for n in ("num_attention_heads", "num_hidden_layers", "intermediate_size"))
    places = (wrapper.side(config, "image_size") // wrapper.side(config, "patch_size")) ** 2 + 1
    block = vit.block(f"{name}encoder.layers.{{}}.", layers, hidden, heads, intermediate=inner, style=vit.Style(rope=False))
    tensors = (
        vit.table(f"{name}embeddings.class_embedding", hidden),
        vit.table(f"{name}embeddings.position_embedding.weight", places, hidden),
        *parts.norms(hidden, f"{name}pre_layrnorm", bias=True),
    )
    return Tower(name=name, kind="vision", hidden=hidden, blocks=(block,), tensors=tensors)


def _queried(seen: Config) -> Tower:
    """A Qwen2 decoder without embeddings, and the queries of both resolutions that it answers."""
    name = "model.vision_tower.vision_encoder."
    config = completed(wrapper.part(seen, "encoder_config", "deepseek_ocr2_encoder"), "qwen2")
    inner = read_text(Config({**config.raw, "model_type": "qwen2"}, config.path), prefix=name)
    norm = tuple(t for t in inner.tensors if t.role == "norm")
    queries = tuple(
        Tensor(name=f"model.vision_tower.{each}.weight", shape=(count, inner.hidden), role="position")
        for each, count in _QUERIES.items()
    )
    return Tower(name=name, kind="vision", hidden=inner.hidden, blocks=inner.blocks, tensors=(*norm, *queries))
