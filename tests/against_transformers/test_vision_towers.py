"""One layer of transformers' vision towers, executed: what autograd saves of it beside what the tape says it does."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from vramcast.models.families import mllama, qwen_vl, vit
from vramcast.training.activations.choice import Style
from vramcast.training.activations.layer import layer_tape
from vramcast.training.recipe.parts import Kernels

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

HIDDEN, HEADS, PLAIN, GATED, SIDE = 64, 4, 256, 160, 16
STYLE = Style(kernels=Kernels(norm="eager", attention="flash", sdpa=True))
STATISTICS = 2  # torch's kernel on the CPU keeps the mean and deviation of a 16-bit row in 16 bits; on a card in 32
PICTURE = {"hidden_size": HIDDEN, "num_attention_heads": HEADS, "image_size": 14 * SIDE, "patch_size": 14}

Built = tuple[Any, Callable[[Any], Any]]


def _qwen(name: str, label: str, config: str, **sizes: Any) -> Callable[[int], Built]:
    def build(depth: int) -> Built:
        import importlib

        folder = f"transformers.models.{name}"
        module = importlib.import_module(f"{folder}.modeling_{name}")
        kind = getattr(importlib.import_module(f"{folder}.configuration_{name}"), config)
        model = _made(getattr(module, label), kind(depth=depth, num_heads=HEADS, **sizes))
        pixels = torch.randn(SIDE**2, 3 * 2 * 14 * 14, dtype=torch.bfloat16)
        return model, lambda m: m(pixels, grid_thw=torch.tensor([[1, SIDE, SIDE]]))

    return build


def _made(kind: Any, config: Any) -> Any:
    return kind._from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16)


def _stack(label: str, intermediate: int, **call: Any) -> Callable[[int], Built]:
    def build(depth: int) -> Built:
        import transformers

        config = getattr(transformers, f"{label}Config")(num_hidden_layers=depth, intermediate_size=intermediate, **PICTURE)
        picture = torch.randn(1, 3, 14 * SIDE, 14 * SIDE, dtype=torch.bfloat16)
        return _made(getattr(transformers, f"{label}Model"), config), lambda m: m(picture, **call)

    return build


def _mllama(depth: int) -> Built:
    from transformers.models.mllama.configuration_mllama import MllamaVisionConfig
    from transformers.models.mllama.modeling_mllama import MllamaVisionModel

    config = MllamaVisionConfig(
        num_hidden_layers=depth, num_global_layers=1, attention_heads=HEADS, intermediate_size=PLAIN, max_num_tiles=1,
        intermediate_layers_indices=[0], vision_output_dim=2 * HIDDEN, supported_aspect_ratios=[[1, 1]], **PICTURE,
    )  # fmt: skip
    picture = torch.randn(1, 1, 1, 3, 14 * SIDE, 14 * SIDE, dtype=torch.bfloat16)
    one = torch.ones(1, 1, dtype=torch.long)
    return _made(MllamaVisionModel, config), lambda m: m(picture, aspect_ratio_ids=one, aspect_ratio_mask=one[None])


def _saved_bytes(model: Any, run: Callable[[Any], Any]) -> int:
    """Bytes of the storages that a forward saves, parameters and buffers excluded."""
    held = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    alive: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: alive.append(t) or t, lambda t: t):
        out = run(model)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in alive}
    assert out is not None
    return sum(size for place, size in storages.items() if place not in held)


QWEN2 = _qwen("qwen2_vl", "Qwen2VisionTransformerPretrainedModel", "Qwen2VLVisionConfig", embed_dim=HIDDEN, hidden_size=96)
QWEN25 = _qwen(
    "qwen2_5_vl", "Qwen2_5_VisionTransformerPretrainedModel", "Qwen2_5_VLVisionConfig", hidden_size=HIDDEN, out_hidden_size=96,
    intermediate_size=GATED,
)  # fmt: skip
PIXTRAL = _stack("PixtralVision", GATED, image_sizes=[[14 * SIDE, 14 * SIDE]])
TOWERS = {
    "qwen2_vl": (QWEN2, qwen_vl._QWEN2, PLAIN, SIDE**2, True),
    "qwen2_5_vl": (QWEN25, qwen_vl._QWEN25, GATED, SIDE**2, True),
    "clip": (
        _stack("CLIPVision", PLAIN),
        vit.Style(activation="quick_gelu", rope=False),
        PLAIN,
        SIDE**2 + 1,
        False,
    ),
    "siglip": (_stack("SiglipVision", PLAIN), vit.Style(rope=False), PLAIN, SIDE**2, False),
    "pixtral": (PIXTRAL, vit.PIXTRAL, GATED, SIDE**2, False),
    "mllama": (_mllama, mllama._STYLE, PLAIN, 264, False),  # 257 padded to a multiple of 8
}


@pytest.mark.parametrize("name", TOWERS)
def test_one_layer_of_a_tower_saves_what_the_tape_says(name: str) -> None:
    build, style, intermediate, patches, joined = TOWERS[name]
    measured = _saved_bytes(*build(3)) - _saved_bytes(*build(2))
    block = vit.block("layers.{}.", 1, HIDDEN, HEADS, intermediate=intermediate, style=style)
    life = layer_tape(block, msgspec.structs.replace(STYLE, joined=joined), hidden=HIDDEN, tokens=patches, seq=patches).life()
    narrow = 2 * 2 * STATISTICS * patches if style.norm_bias else 0
    assert life.saved + life.input_saved - narrow == pytest.approx(measured, rel=0.001)
