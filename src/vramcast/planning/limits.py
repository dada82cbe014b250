"""How far a serving question can be pushed: every limit is asked again before it is said, under every other setting.

A limit is exact by the forecast: what it names is served, one token (or sequence) more is not. It says nothing of the forecast's
own error, which the verdict tells.
"""

import msgspec

from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.largest import edge_near, largest_that_fits
from vramcast.ledger import Fit, Limits
from vramcast.planning.verdict import MOST_AT_ONCE, margin_of, serving_fit, worst_of
from vramcast.serving.engines.base import GGUF_ENGINES, Answer, answer_of
from vramcast.workload import Serving

_GGUF_STEP = 256  # llama.cpp pads a context to this many tokens
_LARGEST_BATCH = 4096


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A question held against a card, to be asked again with other values."""

    question: Serving
    answer: Answer
    card: Accelerator

    def fit(self, **fields: object) -> Fit:
        """The verdict with those fields in their place. Raises as the engine does."""
        return serving_fit(self.ask(**fields), self.card)

    def serves(self, **fields: object) -> bool:
        """Whether the engine starts and serves all of it by the forecast; False where it refuses."""
        try:
            tried = self.ask(**fields)
        except VramcastError:
            return False
        return not tried.start_error and margin_of(tried, worst_of(tried.ranks).needed_bytes, self.card) >= 0

    def ask(self, **fields: object) -> Answer:
        """The engine's answer with those fields in their place. Raises as the engine does."""
        asked = msgspec.structs.replace(self.question, **fields)
        return answer_of(asked, model=self.answer.resolved.model, card=self.card, limits=False)


def serving_limits(answer: Answer, card: Accelerator | None) -> Limits:
    """The limits on the card; none without one."""
    if card is None:
        return Limits()
    held = Held(question=answer.resolved.question, answer=answer, card=card)
    return Limits(
        max_context=longest_context(held),
        max_concurrency=_at_once(held),
        cache_tokens=answer.cache.tokens,
        cache_bytes=answer.cache.pool_bytes,
    )


def longest_context(held: Held, *, sure: bool = False, concurrency: int = 1) -> int:
    """Tokens of the longest sequence that so many at once can have; ``sure``: with the verdict ``fits``, not by margin alone."""
    answer, engine = held.answer, held.question.engine
    step = _GGUF_STEP if engine in GGUF_ENGINES else 1
    if engine == "transformers" and not sure:
        return answer.max_context

    def fits(steps: int) -> bool:
        fields = {"context": steps * step, "concurrency": concurrency, "prompt": None, "output": None}
        if engine in GGUF_ENGINES:
            fields = {"context": steps * step}
        return held.serves(**fields) and (not sure or held.fit(**fields).verdict == "fits")

    most = (answer.resolved.model.positions or 2**24) // step
    return edge_near(answer.max_context // step, fits, most=most) * step


def _at_once(held: Held) -> float | None:
    """Sequences of the asked context at once: the pool's, at most as many as the engine runs; None where a context is shared out.

    transformers has no pool: its largest batch is looked for.
    """
    answer, engine = held.answer, held.question.engine
    if engine in GGUF_ENGINES:
        return None
    if engine == "transformers":
        return float(largest_batch(held))
    most = answer.resolved.options.get(MOST_AT_ONCE[engine])
    return round(min(answer.max_concurrency, most) if most else answer.max_concurrency, 2)


def largest_batch(held: Held) -> int:
    """The largest batch of the asked length that a whole-batch engine holds."""

    def need(batch: int) -> float:
        try:
            return max(r.needed_bytes for r in held.ask(concurrency=batch).ranks)
        except VramcastError:
            return float("inf")

    return largest_that_fits(need, room=held.card.visible_bytes, most=_LARGEST_BATCH)
