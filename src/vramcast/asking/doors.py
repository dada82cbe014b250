"""``serve``, ``train`` and ``forecast``: the command line's questions as functions with its names, each with the whole answer."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from vramcast.asking.asked import Asked, answer_serving, answer_training, named_cards
from vramcast.errors import QuestionError, unknown_name
from vramcast.ledger import Assumption, Forecast
from vramcast.workload import Parallel, Serving, Training

if TYPE_CHECKING:
    from vramcast.asking.serving import ServingWords
    from vramcast.asking.training import TrainingWords
    from vramcast.planning.plans.serving import ServingPlan
    from vramcast.planning.plans.training import TrainingPlan


def serve(
    model: str, *, flags: Sequence[str] = (), options: Mapping[str, Any] | None = None, **words: "Unpack[ServingWords]"
) -> Forecast:
    """What ``vramcast serve`` answers: ``serve("Qwen/Qwen2.5-7B-Instruct", gpu="H100x2", context="128k")``.

    Arguments and errors as ``asking.serving_question``; MissingError for what is not at hand (an extra, the network).
    """
    from vramcast.asking.serving import serving_question

    return answer_serving(serving_question(model, flags=flags, options=options, **words))


def train(model: str | None = None, *, files: Sequence[str | PathLike[str]] = (), **words: "Unpack[TrainingWords]") -> Forecast:
    """What ``vramcast train`` answers: ``train("meta-llama/Llama-3.1-8B", gpu="H100x8", fsdp=2, seq="8k")``.

    Arguments and errors as ``asking.training_question``; MissingError for what is not at hand (an extra, the network).
    """
    from vramcast.asking.training import training_question

    return answer_training(training_question(model, files=files, **words))


def plan(task: str, model: str, **words: Any) -> "ServingPlan | TrainingPlan":
    """What ``vramcast plan`` answers: ``plan("serve", "Qwen/Qwen3-32B", gpu="H100x8", users=20, context="32k").ranked[0]``.

    Raises QuestionError for another task than serve or train, or words that cannot be, MissingError without NumPy.
    """
    if task == "train":
        from vramcast.asking.plan_training import plan_train

        return plan_train(model, **words)
    if task == "serve":
        from vramcast.asking.plan import plan_serve

        return plan_serve(model, **words)
    raise unknown_name("plan", task, ("serve", "train"))


def forecast(question: Serving | Training) -> Forecast:
    """Answer a question by arithmetic alone: no GPU, no torch, and no network for a bundled model.

    Raises QuestionError (the question is wrong), UnmodelledError (no rule covers it) or MissingError (an extra or the network).
    """
    counted, assumed = _cards_counted(question)
    if isinstance(counted, Serving):
        from vramcast.serving.engines.base import canonical_name

        named = msgspec.structs.replace(counted, engine=canonical_name(counted.engine))
        return answer_serving(Asked(question=named, assumed=assumed))
    return answer_training(Asked(question=counted, assumed=assumed))


def _cards_counted(question: Serving | Training) -> tuple[Serving | Training, tuple[Assumption, ...]]:
    """The question with ``gpu="H100x8"`` as eight cards, spread as the command line would, and what reading it assumed.

    Raises QuestionError when ``gpus`` says another number.
    """
    cards = named_cards(question.gpu)
    if cards.count < 2 or question.gpu == "local":
        return question, cards.assumed
    if question.gpus not in (1, cards.count):
        raise QuestionError(f"gpu {question.gpu!r} names {cards.count} cards and gpus is {question.gpus}: say it once")
    spread = Parallel(tp=cards.count) if isinstance(question, Serving) else Parallel(dp=cards.count)
    layout = spread if question.parallel == Parallel() else question.parallel
    counted = msgspec.structs.replace(question, gpu=cards.gpu, gpus=cards.count, parallel=layout)
    return counted, cards.assumed
