"""``--context auto``: the longest context that a question's cards serve for sure, everything else as asked."""

import msgspec

from vramcast.errors import QuestionError
from vramcast.ledger import Assumption
from vramcast.workload import Serving


def longest_sure(question: Serving) -> tuple[Serving, Assumption]:
    """The question with the longest context whose verdict is ``fits``, for all its sequences at once; and how it was found.

    Where not even a short one surely fits it is asked about, so that advice can be given. Raises QuestionError without a card.
    """
    from vramcast.hardware.cards import least_card
    from vramcast.models.reading import read_model
    from vramcast.planning.most import probed
    from vramcast.planning.serving import ServingOnCard, longest_context
    from vramcast.serving.engines.base import answer_of

    if question.gpu is None:
        raise QuestionError("--context auto needs the card that it is the most of: add --gpu, for example --gpu 4090")
    card, model = least_card(question.gpu), read_model(question.model)
    probe = probed(question, model)
    held = ServingOnCard(question=probe, answer=answer_of(probe, model=model, card=card), card=card)
    longest = longest_context(held, sure=True, concurrency=held.answer.resolved.requests)
    because = "the longest that surely fits these cards with everything else as asked"
    least = probe.context or 1
    if longest < least:
        longest, because = least, "no context surely fits these cards: a short one is asked about"
    return msgspec.structs.replace(question, context=longest), Assumption("context", longest, because)
