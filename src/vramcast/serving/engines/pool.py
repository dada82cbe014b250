"""The arithmetic of engines that cut one pool of whole blocks from what a card has left: a rank's terms, its pool, the answer.

An engine says what is taken beside the cache (``Fixed``), how many bytes a token and a sequence's states take, and how many bytes
become the pool; the rank with the fewest blocks decides. Nothing is shared among requests and nothing slides.
"""

from collections.abc import Callable

import msgspec

from vramcast.ledger import Instant, RankMemory, Term
from vramcast.models.sharding import Stage, distinct_stages
from vramcast.quantity import Number, bytes_, floored, is_array, maximum, minimum, named, where, whole
from vramcast.serving.engines.base import Answer, CachePlan, Resolved, held_at_once, narrowest
from vramcast.serving.engines.layouts import front_split
from vramcast.serving.layers import CacheLayer, cache_layers


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """One rank: its terms beside the cache (``terms``), bytes of a token and of one sequence's states, and bytes of its pool."""

    stage: Stage
    terms: tuple[Term, ...]
    token_bytes: float
    state_bytes: float
    pool_bytes: Number


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine says of its pool.

    ``rank``: one rank's; ``block``: tokens of a block; ``most``: tokens it is held to, or None; ``source``: where the pool's
    formula stands; ``refusal``: what it prints where nothing is left.
    """

    rank: Callable[[Resolved, Stage], Pool]
    block: int
    most: Number | None
    source: str
    refusal: str


def answered(resolved: Resolved, rules: Rules) -> Answer:
    """Memory of each distinct rank, the blocks (the fewest over ranks), the limits and the start-up error."""
    ranks = [rules.rank(resolved, s) for s in distinct_stages(resolved.model, resolved.question.parallel.pp, front_split)]
    narrow = narrowest(ranks, lambda r: r.pool_bytes / max(1.0, r.token_bytes))
    lengths = (resolved.context, resolved.live_tokens, resolved.typical_tokens)
    request, live, typical = (_request(narrow, rules.block, tokens) for tokens in lengths)
    wanted = whole(live * resolved.concurrency)
    pool = narrow.pool_bytes if resolved.card else wanted
    each = rules.block * narrow.token_bytes
    held = (floored(maximum(0, pool) // each) if narrow.token_bytes else 0) * rules.block
    tokens = held if rules.most is None else minimum(held, rules.most)
    return Answer(
        resolved=resolved,
        ranks=tuple(_memory(rank, resolved, tokens, wanted, rules.source) for rank in ranks),
        cache=CachePlan(
            bytes_per_token=round(narrow.token_bytes),
            request_bytes=whole(request),
            pool_bytes=where(held == tokens, pool, whole(tokens * narrow.token_bytes)),
            tokens=tokens,
            concurrency=held_at_once(pool, request, resolved),
            block_tokens=rules.block,
            blocks=tokens // rules.block,
            state_bytes=round(narrow.state_bytes),
        ),
        max_context=minimum(tokens, resolved.model.positions or tokens) if resolved.card else resolved.context,
        max_concurrency=held_at_once(pool, request, resolved),
        at_once=held_at_once(pool, typical, resolved),
        wanted_bytes=wanted,
        start_error="" if resolved.card is None or is_array(pool) or pool > 0 else rules.refusal,
    )


def _request(rank: Pool, block: int, tokens: Number) -> Number:
    """Bytes of one request of that many tokens, in whole blocks."""
    return -(-tokens // block) * block * rank.token_bytes + rank.state_bytes


def _memory(rank: Pool, resolved: Resolved, tokens: Number, wanted: Number, source: str) -> RankMemory:
    cache = Term(name="kv_cache", amount=named(tokens, "tokens") * bytes_(rank.token_bytes), source=source)
    terms = (rank.terms[0], cache, *rank.terms[1:])
    context = sum(term.bytes for term in rank.terms if term.name == "context")
    total = sum(term.bytes for term in terms)
    needed = total - cache.bytes + wanted
    return RankMemory(
        rank=rank.stage.name,
        instants=(Instant(name="serving", terms=terms),),
        allocated_bytes=total - context,
        reserved_bytes=total - context,
        device_bytes=total,
        needed_bytes=needed,
        claimed_bytes=total if resolved.card else needed,
    )


def per_token(stage: Stage, tp: int, element: float, *, scales: float = 0.0) -> float:
    """Bytes of one token on a rank; ``scales``: bytes beside each head's key and each head's value of a quantised cache."""
    layers = list(cache_layers(stage, tp))
    return sum(count * (layer.token_elements * element + _vectors(layer) * scales) for layer, count in layers)


def _vectors(layer: CacheLayer) -> int:
    return layer.heads * (bool(layer.key_elements) + bool(layer.value_elements))


def of_states(stage: Stage, tp: int, element: float) -> float:
    """Bytes of one sequence's recurrent states, those in float32 beside windows in the model's own type."""
    return sum(count * (layer.conv_elements * element + layer.state_elements * 4) for layer, count in cache_layers(stage, tp))
