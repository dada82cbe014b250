"""The front of serving: a question and what it is about, to the engine's answer."""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.serving.engines import engine
from vramcast.serving.engines.base import Answer
from vramcast.workload import Serving


def answer_of(question: Serving, *, model: Model | None = None, card: Accelerator | None = None, limits: bool = True) -> Answer:
    """Memory of every distinct rank, the cache plan and the limits of one serving question.

    ``model`` and ``card`` are looked up from the question when not given; without a card the answer holds what the asked
    context and concurrency need. ``limits``: whether the longest context is asked for too, where finding it takes many plans.
    Lengths, counts and shares (context, concurrency, an engine's numeric options) may be NumPy arrays, one element per layout:
    the answer's numbers are arrays then, and ``answer.at(i)`` is the answer of one. Raises QuestionError for an unknown engine,
    option or an impossible layout.
    """
    rules = engine(question.engine)
    resolved = rules.resolve(question, model or _model(question), card or _card(question))
    return rules.forecast(resolved if limits else msgspec.structs.replace(resolved, limits=False))


def _model(question: Serving) -> Model:
    from vramcast.models.reading import read_model

    return read_model(question.model)


def _card(question: Serving) -> Accelerator | None:
    if question.gpu is None:
        return None
    from vramcast.hardware.cards import least_card

    return least_card(question.gpu)
