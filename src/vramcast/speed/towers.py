"""Seconds of a vision tower for the images of one prompt: patches through its layers, merged tokens through the projector.

The tower runs outside a graph before the prompt's first step, on every rank (``splits_towers``: cut by tensor parallelism). Its
tokens then stand in the prompt like any other.
"""

import msgspec

from vramcast.errors import QuestionError
from vramcast.ledger import Assumption, Term
from vramcast.models.inventory import Model, Tower
from vramcast.models.operations import Batch, Linear, Numbers, Operation, Scores, Split, tower_operations
from vramcast.serving.engines.vllm.profile import images_of, largest_tiles, splits_towers, vision_tower
from vramcast.speed.step import Step
from vramcast.units import time_text
from vramcast.workload import Traffic

# Pixels of a side where images have any size and nobody said how large theirs are.
_SIDE = 1024
# Layers of a tower with windows that see the whole image: 4 of 32 (Qwen2.5-VL, vision_config.fullatt_block_indexes).
_WHOLE = 1 / 8


class Images(msgspec.Struct, frozen=True, kw_only=True):
    """The images of one prompt: how many, patches of each, and tokens that each becomes."""

    count: int
    patches: int
    tokens: int


def images_in(model: Model, traffic: Traffic) -> tuple[Images | None, tuple[Assumption, ...]]:
    """What ``--images`` asks of this model, and what was assumed of it. Raises QuestionError for a model without a tower."""
    if not traffic.images:
        return None, ()
    tower = vision_tower(model.towers)
    if tower is None:
        raise QuestionError(f"{model.id} has no vision tower: leave --images out")
    one = images_of(model, tower, 1)
    if "image_size" in tower.facts and not traffic.image_patches:
        tiles = int(largest_tiles(model, tower.facts))
        tokens = min(one.tokens, tiles * tower.facts["tokens_per_image"]) if "tokens_per_image" in tower.facts else one.tokens
        return Images(count=traffic.images, patches=int(one.patches), tokens=int(tokens)), _as_large(int(one.patches), tiles)
    merge = max(1, round(one.patches / one.tokens))
    patches = traffic.image_patches or round((_SIDE / tower.facts["patch_size"]) ** 2)
    assumed: tuple[Assumption, ...] = ()
    if not traffic.image_patches:
        assumed = (Assumption("image_patches", patches, f"images of {_SIDE:,} x {_SIDE:,} pixels: the answer depends on it"),)
    return Images(count=traffic.images, patches=patches, tokens=max(1, -(-patches // merge))), assumed


def _as_large(patches: int, tiles: int) -> tuple[Assumption, ...]:
    """What is told of images that are cut into tiles: how many follows from their size, which nobody said."""
    why = f"the largest image, {tiles} tiles: the answer depends on it"
    return (Assumption("image_patches", patches, why),) if tiles > 1 else ()


def tower_term(step: Step, images: Images) -> Term:
    """Seconds of encoding a prompt's images."""
    model = step.on.model
    tower = vision_tower(model.towers)
    assert tower is not None
    split = Split(tp=step.on.split.tp) if splits_towers(model) else Split()
    parts = [_seconds(step, tower, images, split)]
    parts += [_seconds(step, other, images, split) for other in model.towers if other.kind == "projector"]
    why = f"{images.count} images x {images.patches:,} patches through {tower.name.rstrip('.')}: {time_text(sum(parts))}"
    return Term(name="images", seconds=sum(parts), why=why, source="speed/towers.py")


def _seconds(step: Step, tower: Tower, images: Images, split: Split) -> float:
    """Of one tower: its layers see patches, the projector sees merged tokens."""
    rows = Batch(prefills=images.count, prefill_tokens=images.patches)
    merged = Batch(prefills=images.count, prefill_tokens=images.tokens)
    found = tower_operations(step.on.model, tower, scheme=step.on.scheme, split=split, numbers=Numbers(kv=2.0))
    after = [one for one in found if isinstance(one, Linear) and (one.name == "projector" or tower.kind == "projector")]
    before = [_as_product(one, tower) for one in found if one not in after]
    windowed = [one for one in before if isinstance(one, Scores)] if "window_size" in tower.facts else []
    seconds = step.seconds_of([one for one in before if one not in windowed], rows) + step.seconds_of(after, merged)
    if not windowed:
        return seconds
    window = max(1, round((tower.facts["window_size"] / tower.facts["patch_size"]) ** 2))
    inside = Batch(prefills=images.count * -(-images.patches // window), prefill_tokens=window)
    return seconds + _WHOLE * step.seconds_of(windowed, rows) + (1 - _WHOLE) * step.seconds_of(windowed, inside)


def _as_product(one: Operation, tower: Tower) -> Operation:
    """The patch embedding, a convolution without overlap, as the product that it is."""
    if not isinstance(one, Linear) or one.name != "patch" or not tower.hidden:
        return one
    return msgspec.structs.replace(one, outputs=tower.hidden, inputs=max(1, one.outputs * one.inputs // tower.hidden))
