"""torch.compile of transformers' layers: what the partitioner leaves to save, and what fusing may spare beyond it.

Source: torch 2.13, _functorch/partitioners.py, min_cut_rematerialization_partition: what is elementwise is computed again from
the nearest matmul, so a norm leaves its input, rotary embeddings nothing of their own, a gated MLP its two projections. One Llama
layer cut by that function keeps 1 % more than the tape says (``vramcast trace --compile``).
"""

from collections.abc import Iterable, Iterator

from vramcast.ledger import Unmodelled
from vramcast.training.recipe.recipe import Draft, width
from vramcast.training.scene import Scene

WHOLE_LOGITS = ("eager", "plain")


def compiled_layers(draft: Draft) -> None:
    """The parts of a compiled layer, where nothing else was asked for."""
    if draft.get("compiled"):
        draft.default(
            "torch.compile: the min-cut partitioner saves inputs of matmuls", norm="fused", rope="fused", glu="recomputed"
        )


def may_be_spared(scenes: Iterable[Scene]) -> Iterator[Unmodelled]:
    """Float copies of the logits that a compiled loss never makes, as a bound: whether the graph reaches it is not known."""
    spared = max((_float_copies(scene) for scene in scenes), default=0.0)
    if spared > 0:
        yield Unmodelled(
            "torch.compile: float copies of the logits are counted, a loss in the same graph makes none", round(spared)
        )


def _float_copies(scene: Scene) -> float:
    recipe, loss = scene.recipe, scene.loss
    if not recipe.compiled or recipe.loss not in WHOLE_LOGITS or not scene.stage.last:
        return 0.0
    return max(loss.forward, loss.backward) - 2 * scene.tokens * scene.model.vocab * width(recipe.compute)
