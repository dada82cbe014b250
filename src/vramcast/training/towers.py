"""What stands beside the decoder in a step: vision towers over the patches of images, or the text encoder it attends to.

A tower's blocks are layers of the same kinds, so they save what those save, with patches for tokens. A frozen tower below every
trained parameter saves nothing: only its live layer's forward is seen (torch, tools/autograd/derivatives.yaml). What an encoder
saves stays until the decoder's backward is over; its own backward is the last of the step (transformers 5.23,
models/t5/modeling_t5.py, T5Model.forward; adapters and recomputation reach both stacks alike).
"""

from math import prod

import msgspec

from vramcast.errors import QuestionError
from vramcast.ledger import Term, Unmodelled
from vramcast.models.inventory import Model, Tower
from vramcast.models.layers import Attention, Dense
from vramcast.models.sharding import Stage
from vramcast.quantity import Number, maximum, whole
from vramcast.training.activations.choice import Style
from vramcast.training.activations.layers import StageLayers, layers_of
from vramcast.training.activations.sizes import Shape
from vramcast.training.recipe.parts import Policy, Recipe

# Patches of a tile and its class token are padded to a multiple of this (transformers 5.23, modeling_mllama.py, forward).
MLLAMA_PADDING = 8
ENCODER = "encoder"
PIXEL_WIDTH = 4  # image processors give float32 pixels, which the batch holds for the whole step


class TowerCost(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside the decoder costs one rank for one batch, bytes.

    ``pixels`` of a batch's images, what is ``saved`` for backward, and the live layer in each direction; ``gradients`` of its
    weights, which its backward makes. ``name``: in the words of an instant; ``why`` holds the numbers.
    """

    name: str = "vision tower"
    pixels: Number = 0.0
    saved: Number = 0.0
    forward: Number = 0.0
    working: Number = 0.0
    gradients: Number = 0.0
    why: str = ""

    @property
    def held(self) -> Number:
        """Alive from the tower's forward to its backward, the last of the step."""
        return self.pixels + self.saved


class TowerLayers(msgspec.Struct, frozen=True, kw_only=True):
    """One tower, for every batch. ``images`` of a sequence, of ``patches`` each; 0 for an encoder, which reads the text.

    ``outputs``: copies of an encoder's result that recomputed decoder layers and its own last norm keep.
    """

    name: str
    layers: StageLayers
    depth: int
    state: str
    hidden: int
    images: int = 0
    patches: int = 0
    pixel_bytes: int = 0
    outputs: int = 0

    def at(self, text: Shape, *, rows: Number, in_flight: Number) -> TowerCost:
        """The cost of a batch of ``rows`` sequences."""
        tokens = rows * self.images * self.patches if self.images else text.tokens
        seq = self.patches if self.images else text.seq
        layers = self.layers.at(Shape(tokens=tokens, seq=seq), in_flight)
        read = f"{rows * self.images} images x {self.patches:,} patches" if self.images else f"{tokens} tokens"
        return TowerCost(
            name="vision tower" if self.images else ENCODER,
            pixels=tokens * self.pixel_bytes,
            saved=layers.waiting + (0 if self.images else self.outputs * layers.boundary),
            forward=layers.forward,
            working=layers.working,
            gradients=layers.gradients,
            why=f"{self.name}: {read} through {self.depth} {self.state} layers of {self.hidden}",
        )


def cost_of(towers: tuple[TowerLayers, ...], text: Shape, *, rows: Number, in_flight: Number) -> TowerCost:
    """All towers of a rank together: what they hold, and the largest live layer of any."""
    if not towers:
        return TowerCost()
    each = [tower.at(text, rows=rows, in_flight=in_flight) for tower in towers]
    return TowerCost(
        name=each[0].name,
        pixels=sum(cost.pixels for cost in each),
        saved=sum(cost.saved for cost in each),
        forward=maximum(*(cost.forward for cost in each)),
        working=maximum(*(cost.working for cost in each)),
        gradients=each[0].gradients,
        why="; ".join(cost.why for cost in each),
    )


def towers_of(
    model: Model, recipe: Recipe, stage: Stage, policy: Policy, style: Style, *, reached: frozenset[int]
) -> tuple[TowerLayers, ...]:
    """What stands beside the decoder on the rank that embeds: the towers of a question's images, or a text encoder.

    Raises QuestionError for images without a tower, or of a size that only the data knows.
    """
    if not recipe.task.images:
        encoders = [tower for tower in model.towers if is_encoder(tower)] if stage.first else []
        return tuple(_encoder(tower, policy, style, reached) for tower in encoders[:1])
    seeing = [tower for tower in model.towers if is_modelled(tower)]
    if not seeing:
        images = recipe.task.images
        raise QuestionError(f"{images} images for {model.id}, which has no vision tower of a known kind: use --images 0")
    each = tuple(_vision(tower, recipe, policy, style) for tower in seeing)
    return each if stage.first else ()


def is_encoder(tower: Tower) -> bool:
    """Whether the tower reads text for a decoder that attends to it."""
    return tower.kind == "encoder" and not tower.stored_only and bool(tower.blocks)


def is_modelled(tower: Tower) -> bool:
    """Whether a tower's blocks are attention and plain or gated MLPs over patches."""
    mixers = [m for b in tower.blocks for m in b.mixers]
    plain = all(isinstance(m, Attention) for m in mixers) and all(isinstance(b.feedforward, Dense) for b in tower.blocks)
    return tower.kind == "vision" and not tower.stored_only and bool(mixers) and plain


def patches_of(tower: Tower, recipe: Recipe) -> int:
    """Patches of one image in the tower: as asked, or of an image as large as the tower's config says.

    Raises QuestionError where images keep their own size (Qwen-VL, GLM-4V, Kimi).
    """
    facts = tower.facts
    if recipe.task.image_patches:
        return recipe.task.image_patches
    if "image_size" not in facts or "patch_size" not in facts or "merge" in facts:
        patch = f"{facts['patch_size']:g}" if "patch_size" in facts else "?"
        raise QuestionError(
            f"{tower.name} takes images of any size: say how many patches of {patch} x {patch} pixels one makes, "
            "as --image-patches 1024"
        )
    patches = int(facts["image_size"] // facts["patch_size"]) ** 2 + any("class_embedding" in t.name for t in tower.tensors)
    if "tiles" in facts:
        return int(facts["tiles"]) * -(-patches // MLLAMA_PADDING) * MLLAMA_PADDING
    return patches


def _encoder(tower: Tower, policy: Policy, style: Style, reached: frozenset[int]) -> TowerLayers:
    """The text encoder, whose sequences are as long as the decoder's."""
    stage = msgspec.structs.replace(_stage(tower), first=True)  # with an embedding of its own
    layers = layers_of(policy, stage, style, hidden=tower.hidden, reached=reached)
    depth = sum(b.count for b in tower.blocks)
    normed = any(t.role == "norm" and "embed" not in t.name for t in tower.tensors)
    return TowerLayers(
        name=tower.name.rstrip("."),
        layers=layers,
        depth=depth,
        state="text",
        hidden=tower.hidden,
        outputs=(1 + normed) * policy.recomputes_layers,
    )


def _vision(tower: Tower, recipe: Recipe, policy: Policy, style: Style) -> TowerLayers:
    """A vision tower; a frozen one is not recomputed, as it saves nothing."""
    patches, own = patches_of(tower, recipe), _style(tower, style, recipe)
    windows = {w for b in tower.blocks for m in b.mixers for w in (getattr(m, "window", 0), getattr(m, "chunk", 0))}
    reached = frozenset(w for w in windows if 0 < w <= patches)
    return TowerLayers(
        name=tower.name.rstrip("."),
        layers=layers_of(policy if own.reached else Policy(), _stage(tower), own, hidden=tower.hidden, reached=reached),
        depth=sum(b.count for b in tower.blocks),
        state="trained" if own.trains else "adapted" if own.adapter else "frozen",
        hidden=tower.hidden,
        images=recipe.task.images,
        patches=patches,
        pixel_bytes=_pixels(tower) * PIXEL_WIDTH,
    )


def _stage(tower: Tower) -> Stage:
    """The tower's blocks as the layers of a stage without ends."""
    return Stage(name=tower.name, blocks=tuple((b, b.count) for b in tower.blocks), first=False, last=False)


def _style(tower: Tower, style: Style, recipe: Recipe) -> Style:
    """The decoder's style with the adapter on the tower's own matrices alone, by the names that they have.

    Towers that pack images of any size in one row (Qwen-VL, GLM-4V) split it for every kernel but flash-attention's own and join
    the results (transformers 5.23, modeling_qwen2_vl.py, VisionAttention.forward).
    """
    free = not recipe.task.freezes_towers
    trained = free and (recipe.task.method == "full" or (recipe.task.method == "partial" and recipe.task.trains_ends))
    roles = {t.role for b in tower.blocks for t in b.tensors}
    ranks = {role: r for role, r in style.adapter.ranks.items() if role in roles} if style.adapter and free else {}
    adapter = msgspec.structs.replace(style.adapter, ranks=ranks) if style.adapter and any(ranks.values()) else None
    return msgspec.structs.replace(
        style.under(hidden_dropout=0.0),
        trains=trained,
        adapter=adapter,
        reached=trained or adapter is not None,
        joined="temporal_patch_size" in tower.facts and (style.kernels.sdpa or style.kernels.attention != "flash"),
        sp=False,
    )


def _pixels(tower: Tower) -> int:
    """Numbers of one patch: channels, frames, height and width of the kernel that cuts it out."""
    kernel = next((t for t in tower.tensors if t.role == "patch" and len(t.shape) > 1), None)
    return prod(kernel.shape[1:]) if kernel else 0


def opened_by(cost: TowerCost, opened: tuple[Term, ...], *, text: int, tower: int) -> tuple[Term, ...]:
    """The terms of the decoder's ``text`` bytes, ``opened`` or whole, and of the ``tower`` bytes that images left beside them."""
    decoder = opened or (Term(name="saved.decoder", bytes=text, why="the decoder's layers"),)
    pixels = Term(name="saved.pixels", bytes=min(tower, whole(cost.pixels)), why="the batch's images in float32")
    seen = Term(name=f"saved.{cost.name.replace(' ', '_')}", bytes=tower - pixels.bytes, why=cost.why)
    return tuple(t for t in (*decoder, pixels, seen) if t.bytes)


def unmodelled(model: Model, recipe: Recipe) -> tuple[Unmodelled, ...]:
    """The parts beside the decoder whose activations the forecast leaves out, by name, and how to ask for those it can give."""
    towers = [t for t in model.towers if not t.stored_only and t.kind not in ("mtp", "encoder")]
    return tuple(Unmodelled(_left_out(t)) for t in towers if not (recipe.task.images and is_modelled(t)))


def _left_out(tower: Tower) -> str:
    because = "text alone is assumed, add --images N" if is_modelled(tower) else "their size follows the inputs, not the text"
    return f"activations of {tower.name} ({tower.kind}): {because}"
