"""The error bar of a training step: its states are arithmetic, what else it holds errs by bytes.

Weights, gradients and optimizer states of a known recipe are counted, not estimated: of 842 measured counters of training runs
all but two (of one source) lie above them. So no bar reaches below the states, and no card smaller than them may hold the step.
What lies above them (activations, gathered blocks, fragmentation, the context) errs by bytes, in the unit of ``step_scale``.
"""

from typing import TYPE_CHECKING

from vramcast.ledger import RankMemory
from vramcast.truth.bars import Spread
from vramcast.units import GiB

if TYPE_CHECKING:
    from vramcast.training.forecast import TrainingForecast

STATES = frozenset({"weights", "gradients", "optimizer", "master_weights"})


def step_scale(predicted: float, certain: float) -> float:
    """How many bytes a step's reserved or device memory may well miss by: the unit of its errors.

    A quarter of a GiB for the context and libraries of any process, as of one that serves; a tenth of what lies above the
    states, and a twentieth of the states, along which buckets, gathered blocks and fragmentation grow. Of 75 combinations of
    such weights this was among the narrowest that held nine of ten groups left out (docs/decisions.md).
    """
    return 0.25 * GiB + max(0.0, predicted - certain) / 10 + certain / 20


def certain_bytes(rank: RankMemory) -> int:
    """What a rank surely holds at some moment of its step: the most that its states come to together."""
    return max(sum(t.bytes for t in instant.terms if t.name in STATES) for instant in rank.instants)


def training_spread(answer: "TrainingForecast", rank: RankMemory) -> Spread:
    """A training rank's device memory: no less than its states, the rest as uncertain as its framework's cases and traces.

    What is known to be unknown (``novel``) may be a state: nothing of it is certain.
    """
    from vramcast.training.activations.choice import slack_bytes

    certain = 0 if answer.novel else certain_bytes(rank)
    return Spread(
        measure="device",
        exact_bytes=0,
        uncertain_bytes=rank.needed_bytes,
        keys=training_keys(answer),
        slack_bytes=slack_bytes(answer.recipe, rank),
        scale_bytes=step_scale(rank.needed_bytes, certain_bytes(rank)),
        certain_bytes=certain,
    )


def training_keys(answer: "TrainingForecast") -> dict[str, str]:
    """Framework, method and family; ``novel`` where a part of the model has no rule: its bar is that of the unmeasured."""
    novel = {"novel": "yes"} if answer.novel else {}
    return {"engine": answer.question.framework, "method": answer.question.method, "family": answer.family, **novel}
