"""The core of an answer, for those who ask many questions: the worst rank and its verdict, without limits, advice or cards."""

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Fit, RankMemory
from vramcast.models.inventory import Model
from vramcast.workload import Serving, Training


def core_of(
    question: Serving | Training, *, model: Model | None = None, card: Accelerator | None = None
) -> tuple[RankMemory, Fit]:
    """The rank that needs most and the verdict on the question's card (``unknown`` without one). Raises as a forecast."""
    if model is None:
        from vramcast.models.reading import read_model

        model = read_model(question.model)
    if card is None and question.gpu:
        from vramcast.hardware.cards import least_card

        card = least_card(question.gpu)
    return _serving(question, model, card) if isinstance(question, Serving) else _training(question, model, card)


def _serving(question: Serving, model: Model, card: Accelerator | None) -> tuple[RankMemory, Fit]:
    from vramcast.planning.serving import with_intervals
    from vramcast.planning.verdict import serving_fit
    from vramcast.serving.engines.base import answer_of

    answer = answer_of(question, model=model, card=card, limits=False)
    return max(with_intervals(answer), key=lambda r: r.needed_bytes), serving_fit(answer, card)


def _training(question: Training, model: Model, card: Accelerator | None) -> tuple[RankMemory, Fit]:
    from vramcast.planning.training import with_intervals
    from vramcast.planning.verdict import training_fit
    from vramcast.training.forecast import forecast_training

    answer = with_intervals(forecast_training(question, model=model, card=card, replays=True))
    return max(answer.ranks, key=lambda r: r.needed_bytes), training_fit(answer, card)
