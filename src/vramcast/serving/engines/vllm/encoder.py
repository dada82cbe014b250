"""The multimodal part of the profile run: images up to the step's token budget are encoded, and their outputs and pixels kept.

Read from vllm/v1/worker/gpu_model_runner.py (profile_run fills the encoder cache before the decoder's dummy run) and
vllm/multimodal/encoder_budget.py (as many of the largest items as the budget holds, at least one).
"""

from math import ceil

import msgspec

from vramcast.ledger import Term, Unmodelled
from vramcast.models.classes import model_class
from vramcast.models.feedforward import Dense
from vramcast.models.inventory import Model, Tower
from vramcast.quantity import Number, bytes_, maximum, named, whole

CHANNELS = 3


class Images(msgspec.Struct, frozen=True):
    """What the profile run encodes: tokens handed to the decoder and patches they are made from."""

    tokens: Number
    patches: Number
    patch_elements: int


def images_of(model: Model, tower: Tower, budget: Number) -> Images:
    """The images of one tower's profile run."""
    facts = tower.facts
    merge = facts.get("merge", 1) ** 2 * model_class(model.family).served.pooled_patches
    per_image = _per_image(model, facts, merge)
    tokens = maximum(1, budget // per_image) * per_image
    return Images(tokens, whole(tokens * merge), round(CHANNELS * facts["patch_size"] ** 2 * facts.get("temporal_patch_size", 1)))


def profiled_tokens(model: Model, towers: tuple[Tower, ...], tokens: Number, *, whole_image: bool) -> Number:
    """Tokens of the dummy step: the V0 engine never cut an image, so its step was at least the largest one."""
    tower = _vision(towers)
    return maximum(tokens, images_of(model, tower, tokens).tokens) if whole_image and tower else tokens


def kept_outputs(model: Model, towers: tuple[Tower, ...], budget: Number, element: float, pixel: float) -> list[Term]:
    """Encoder outputs and pixel values of ``pixel`` bytes, which stay allocated while the decoder is profiled."""
    tower = _vision(towers)
    if tower is None:
        return []
    images = images_of(model, tower, budget)
    outputs = named(images.tokens, "tokens") * named(model.hidden, "hidden") * bytes_(element)
    pixels = named(images.patches, "patches") * named(images.patch_elements, "values") * bytes_(pixel)
    return [Term(name="encoder_outputs", amount=outputs), Term(name="pixels", amount=pixels)]


def encoder_term(
    model: Model, towers: tuple[Tower, ...], budget: Number, element: float, pixel: float, *, tp: int = 1
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
    widest = Term(name="encoder_layer", amount=named(images.patches, "patches") * named(width, "wide") * bytes_(element))
    return Term.total("activations", (widest, *kept_outputs(model, towers, budget, element, pixel)))


def unsized_images(model: Model) -> tuple[Unmodelled, ...]:
    """What the answer says where images have any size and nobody noted the largest that the preprocessor lets through."""
    tower = _vision(model.towers)
    if tower is None or "image_size" in tower.facts or model_class(model.family).served.image_tokens:
        return ()
    return (Unmodelled(f"the largest image of {model.family} is not known: its profile run encodes the step's tokens"),)


def splits_towers(model: Model) -> bool:
    """Whether tensor parallelism cuts the towers' weights."""
    return not model_class(model.family).served.replicated_towers


def _per_image(model: Model, facts: dict[str, float], merge: float) -> int:
    if "image_size" in facts:
        return max(1, ceil((facts["image_size"] / facts["patch_size"]) ** 2 / merge))
    return max(1, model_class(model.family).served.image_tokens)


def _vision(towers: tuple[Tower, ...]) -> Tower | None:
    return next((t for t in towers if t.kind == "vision" and "patch_size" in t.facts), None)


def _wide(kind: object) -> int:
    return kind.intermediate * (3 if kind.gated else 2) if isinstance(kind, Dense) else 0
