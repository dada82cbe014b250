"""Vision towers in a step: the tape of the decoder's layers run over an image's patches, where a question has images.

A tower's blocks are layers of the same kinds, so they save what those save, with patches for tokens. A frozen tower below every
trained parameter saves nothing: only its live layer's forward is seen (torch, tools/autograd/derivatives.yaml).
"""

from math import prod

import msgspec

from vramcast.errors import QuestionError
from vramcast.ledger import Term, Unmodelled
from vramcast.models.attention import Attention
from vramcast.models.feedforward import Dense
from vramcast.models.inventory import Model, Tower
from vramcast.models.stages import Stage
from vramcast.training.activations.policy import Layers, layers_of
from vramcast.training.activations.style import Style
from vramcast.training.recipe.parts import Recipe
from vramcast.training.recipe.policy import Policy

# Patches of a tile and its class token are padded to a multiple of this (transformers 5.23, modeling_mllama.py, forward).
MLLAMA_PADDING = 8
PIXEL_WIDTH = 4  # image processors give float32 pixels, which the batch holds for the whole step


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What a stack beside the decoder costs one rank, bytes.

    ``pixels`` of a batch's images, what is ``saved`` for backward, and the live layer in each direction. ``name``: the stack, in
    the words of an instant; ``why`` holds the numbers.
    """

    name: str = "vision tower"
    pixels: float = 0.0
    saved: float = 0.0
    forward: float = 0.0
    working: float = 0.0
    why: str = ""

    @property
    def held(self) -> float:
        """Alive from the tower's forward to its backward, the last of the step."""
        return self.pixels + self.saved


def sight_of(model: Model, recipe: Recipe, stage: Stage, policy: Policy, *, style: Style, sequences: int) -> Sight:
    """The vision towers under ``policy`` on the rank that holds the embedding; nothing elsewhere, and nothing without images.

    Raises QuestionError for images without a tower, or of a size that only the data knows.
    """
    if not recipe.task.images:
        return Sight()
    seeing = [tower for tower in model.towers if is_modelled(tower)]
    if not seeing:
        raise QuestionError(
            f"{recipe.task.images} images for {model.id}, which has no vision tower of a known kind: use --images 0"
        )
    images = recipe.task.images * sequences
    each = [_one(model, tower, recipe, stage, policy, style=style, images=images) for tower in seeing]
    if not stage.first:
        return Sight()
    return Sight(
        pixels=sum(s.pixels for s in each),
        saved=sum(s.saved for s in each),
        forward=max(s.forward for s in each),
        working=max(s.working for s in each),
        why="; ".join(s.why for s in each),
    )


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


def _one(model: Model, tower: Tower, recipe: Recipe, stage: Stage, policy: Policy, *, style: Style, images: int) -> Sight:
    patches = patches_of(tower, recipe)
    tokens = float(images * patches)
    style = _style(tower, style, recipe)
    layers = _layers(model, tower, stage, policy, style=style, tokens=tokens, seq=patches)
    depth = sum(b.count for b in tower.blocks)
    state = "trained" if style.trains else "adapted" if style.adapter else "frozen"
    return Sight(
        pixels=tokens * _pixels(tower) * PIXEL_WIDTH,
        saved=layers.waiting,
        forward=layers.forward,
        working=layers.working,
        why=f"{tower.name.rstrip('.')}: {images} images x {patches:,} patches through {depth} {state} layers of {tower.hidden}",
    )


def _layers(model: Model, tower: Tower, stage: Stage, policy: Policy, *, style: Style, tokens: float, seq: float) -> Layers:
    """The tower's blocks as the layers of a stage of its own width; a frozen tower is not recomputed, as it saves nothing."""
    blocks = tuple((b, b.count) for b in tower.blocks)
    own = Stage(name=tower.name, blocks=blocks, first=False, last=False, in_flight=stage.in_flight)
    wide = msgspec.structs.replace(model, hidden=tower.hidden)
    return layers_of(policy if style.reached else Policy(), own, style, wide, tokens=tokens, seq=seq)


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
        style,
        trains=trained,
        adapter=adapter,
        reached=trained or adapter is not None,
        joined="temporal_patch_size" in tower.facts and (style.sdpa or style.attention != "flash"),
        sp=False,
        hidden_dropout=0.0,
    )


def _pixels(tower: Tower) -> int:
    """Numbers of one patch: channels, frames, height and width of the kernel that cuts it out."""
    kernel = next((t for t in tower.tensors if t.role == "patch" and len(t.shape) > 1), None)
    return prod(kernel.shape[1:]) if kernel else 0


def opened_by(sight: Sight, opened: tuple[Term, ...], *, text: float, tower: float) -> tuple[Term, ...]:
    """The terms of the decoder's ``text`` bytes, ``opened`` or whole, and of the ``tower`` bytes that images left beside them."""
    if not tower:
        return opened
    decoder = opened or (Term(name="saved.decoder", bytes=round(text), why="the decoder's layers"),)
    pixels = Term(name="saved.pixels", bytes=round(min(tower, sight.pixels)), why="the batch's images in float32")
    seen = Term(name=f"saved.{sight.name.replace(' ', '_')}", bytes=round(tower) - pixels.bytes, why=sight.why)
    return tuple(t for t in (*decoder, pixels, seen) if t.bytes)


def unmodelled(model: Model, recipe: Recipe) -> tuple[Unmodelled, ...]:
    """The parts beside the decoder whose activations the forecast leaves out, by name, and how to ask for those it can give."""
    towers = [t for t in model.towers if not t.stored_only and t.kind not in ("mtp", "encoder")]
    return tuple(Unmodelled(_left_out(t)) for t in towers if not (recipe.task.images and is_modelled(t)))


def _left_out(tower: Tower) -> str:
    because = "text alone is assumed, add --images N" if is_modelled(tower) else "their size follows the inputs, not the text"
    return f"activations of {tower.name} ({tower.kind}): {because}"
