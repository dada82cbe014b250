"""The encoder of an encoder-decoder in a step: its layers run over a text as long as the decoder's, before and after it.

What it saves stays until the decoder's backward is over; its own backward is the last of the step (transformers 5.23,
models/t5/modeling_t5.py, T5Model.forward; adapters and recomputation reach both stacks alike).
"""

import msgspec

from vramcast.models.inventory import Model, Tower
from vramcast.models.stages import Stage
from vramcast.training.activations.policy import layers_of
from vramcast.training.activations.style import Style
from vramcast.training.recipe.policy import Policy
from vramcast.training.towers import Sight


def is_encoder(tower: Tower) -> bool:
    """Whether the tower reads text for a decoder that attends to it."""
    return tower.kind == "encoder" and not tower.stored_only and bool(tower.blocks)


def encoded(model: Model, stage: Stage, policy: Policy, *, style: Style, tokens: float, seq: float) -> Sight:
    """The text encoder's cost on the rank that holds the embedding; nothing where the model has none."""
    towers = [tower for tower in model.towers if is_encoder(tower)]
    if not towers or not stage.first:
        return Sight()
    tower = towers[0]
    blocks = tuple((block, block.count) for block in tower.blocks)
    own = Stage(name=tower.name, blocks=blocks, first=False, last=False, in_flight=stage.in_flight)
    layers = layers_of(policy, own, style, msgspec.structs.replace(model, hidden=tower.hidden), tokens=tokens, seq=seq)
    return Sight(
        name="encoder",
        saved=layers.waiting,
        forward=layers.forward,
        working=layers.working,
        why=f"{tower.name.rstrip('.')}: {tokens:,.0f} tokens through {sum(n for _, n in blocks)} layers of {tower.hidden}",
    )
