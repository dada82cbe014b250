"""What fusing a compiled step may spare beyond what its layers' partitioner leaves to save (frameworks/common.py)."""

from collections.abc import Iterable, Iterator

from vramcast.ledger import Unmodelled
from vramcast.training.recipe.parts import width
from vramcast.training.scene import Scene

WHOLE_LOGITS = ("eager", "plain")


def may_be_spared(scenes: Iterable[Scene]) -> Iterator[Unmodelled]:
    """Float copies of the logits that a compiled loss never makes, as a bound: whether the graph reaches it is not known."""
    spared = max((_float_copies(scene) for scene in scenes), default=0.0)
    if spared > 0:
        yield Unmodelled(
            "torch.compile: float copies of the logits are counted, a loss in the same graph makes none", round(spared)
        )


def _float_copies(scene: Scene) -> float:
    recipe, loss = scene.recipe, scene.loss
    if not recipe.kernels.compiled or recipe.loss.kind not in WHOLE_LOGITS or not scene.stage.last:
        return 0.0
    return max(loss.forward, loss.backward) - 2 * scene.tokens * scene.model.vocab * width(recipe.precision.compute)
