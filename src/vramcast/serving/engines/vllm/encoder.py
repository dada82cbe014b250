"""The multimodal part of the profile run: images up to the step's token budget are encoded, and their outputs and pixels kept.

Read from vllm/v1/worker/gpu_model_runner.py (profile_run fills the encoder cache before the decoder's dummy run) and
vllm/multimodal/encoder_budget.py (as many of the largest items as the budget holds, at least one).
"""

from math import ceil

import msgspec

from vramcast.ledger import Term
from vramcast.models.feedforward import Dense
from vramcast.models.inventory import Model, Tower

CHANNELS = 3
# patches pooled into one token where the tower's own facts do not say: 4096 patches become mm_tokens_per_image = 256
POOLED = {"gemma3": 16}
# tokens of the largest image a preprocessor lets through, by family, where images have any size: 12,845,056 pixels in cells of
# 28 x 28, and from Qwen3-VL on 16,777,216 in cells of 32 x 32 (max_pixels and longest_edge of preprocessor_config.json)
LARGEST_IMAGE = {
    "qwen2_vl": 16384, "qwen2_5_vl": 16384, "qwen3_vl": 16384, "qwen3_vl_moe": 16384, "qwen3_5": 16384, "qwen3_5_moe": 16384,
}  # fmt: skip


# towers that transformers builds, whose linear layers vLLM replaces by replicated ones (models/gemma4_mm.py, gemma3n_mm.py)
REPLICATED_TOWERS = frozenset({"gemma4", "gemma3n"})
# models whose V0 forward kept the images it had joined beside those it was given (models/qwen2_vl.py, qwen2_5_vl.py:
# _validate_and_reshape_mm_tensor concatenates a batch, and the parsed input lives as long as the forward)
PARSED_APART = frozenset({"qwen2_vl", "qwen2_5_vl"})


class Images(msgspec.Struct, frozen=True):
    """What the profile run encodes: tokens handed to the decoder and patches they are made from."""

    tokens: int
    patches: int
    patch_elements: int


def images_of(model: Model, tower: Tower, budget: int) -> Images:
    """The images of one tower's profile run."""
    facts = tower.facts
    merge = facts.get("merge", 1) ** 2 * POOLED.get(model.family, 1)
    per_image = _per_image(model, facts, merge)
    tokens = max(1, budget // per_image) * per_image
    return Images(tokens, round(tokens * merge), round(CHANNELS * facts["patch_size"] ** 2 * facts.get("temporal_patch_size", 1)))


def profiled_tokens(model: Model, towers: tuple[Tower, ...], tokens: int, *, whole_image: bool) -> int:
    """Tokens of the dummy step: the V0 engine never cut an image, so its step was at least the largest one."""
    tower = _vision(towers)
    return max(tokens, images_of(model, tower, tokens).tokens) if whole_image and tower else tokens


def kept_outputs(model: Model, towers: tuple[Tower, ...], budget: int, element: float, pixel: float) -> list[Term]:
    """Encoder outputs and pixel values of ``pixel`` bytes, which stay allocated while the decoder is profiled."""
    tower = _vision(towers)
    if tower is None:
        return []
    images = images_of(model, tower, budget)
    outputs = images.tokens * model.hidden * element
    pixels = images.patches * images.patch_elements * pixel
    return [
        Term(name="encoder_outputs", bytes=round(outputs), why=f"{images.tokens:,} tokens x {model.hidden:,} x {element:g} B"),
        Term(name="pixels", bytes=round(pixels), why=f"{images.patches:,} patches x {images.patch_elements:,} x {pixel:g} B"),
    ]


def encoder_term(
    model: Model, towers: tuple[Tower, ...], budget: int, element: float, pixel: float, *, tp: int = 1
) -> Term | None:
    """The encoder's own peak: its widest layer over all patches, with pixels and outputs; None without a vision tower.

    Tensor parallelism cuts layers of vLLM's own towers as it cuts the decoder's (``mm_encoder_tp_mode`` weights).
    """
    tower = _vision(towers)
    if tower is None:
        return None
    tp = tp if splits_towers(model) else 1
    images = images_of(model, tower, budget)
    width = max((4 * tower.hidden + _wide(block.feedforward) // tp for block in tower.blocks), default=4 * tower.hidden)
    why = f"{images.patches:,} patches x {width:,} x {element:g} B"
    widest = Term(name="encoder_layer", bytes=round(images.patches * width * element), why=why)
    return Term.total("activations", (widest, *kept_outputs(model, towers, budget, element, pixel)))


def splits_towers(model: Model) -> bool:
    """Whether tensor parallelism cuts the towers' weights."""
    return model.family not in REPLICATED_TOWERS


def _per_image(model: Model, facts: dict[str, float], merge: float) -> int:
    if "image_size" in facts:
        return max(1, ceil((facts["image_size"] / facts["patch_size"]) ** 2 / merge))
    return LARGEST_IMAGE.get(model.family, 1)


def _vision(towers: tuple[Tower, ...]) -> Tower | None:
    return next((t for t in towers if t.kind == "vision" and "patch_size" in t.facts), None)


def _wide(kind: object) -> int:
    return kind.intermediate * (3 if kind.gated else 2) if isinstance(kind, Dense) else 0
