"""Training some of the layers: which of them autograd reaches, and what the frozen ones among those still save.

A frozen layer that lies above a trained one passes gradients through: its matmuls save nothing of their inputs, its kernels,
norms and products save what they always do (torch, tools/autograd/derivatives.yaml). Below the lowest trained layer nothing
needs a gradient and nothing is saved, unless the embedding is trained.
"""

import msgspec

from vramcast.models.inventory import Model
from vramcast.models.stages import Stage
from vramcast.training.activations.policy import Layers, blend, layers_of
from vramcast.training.activations.style import Style
from vramcast.training.methods import Partial, last_layers
from vramcast.training.recipe.policy import Policy


def layers_of_part(
    policy: Policy, stage: Stage, style: Style, model: Model, *, partial: Partial | None, trained: int, tokens: float, seq: float
) -> Layers:
    """Activations of a stage of which ``trained`` layers are trained, in the step that needs most; of all without ``partial``."""
    if partial is None or not trained:
        return layers_of(policy, stage, style, model, tokens=tokens, seq=seq)
    reached = last_layers(stage, depth_reached(stage.layers, partial, trained))
    active = layers_of(policy, reached, style, model, tokens=tokens, seq=seq)
    if trained >= reached.layers:
        return active
    passing = layers_of(policy, reached, msgspec.structs.replace(style, trains=False), model, tokens=tokens, seq=seq)
    mixed = blend(active, passing, trained / reached.layers)
    return msgspec.structs.replace(mixed, working=max(active.working, passing.working))


def depth_reached(depth: int, partial: Partial, trained: int) -> int:
    """Layers from the last one down to the lowest that needs gradients."""
    if partial.whole_backward:
        return depth
    return depth - depth // trained + 1 if partial.spread else trained
