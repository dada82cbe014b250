"""The arithmetic of one vLLM answer, from settings to ranks, cache plan and limits."""

from collections.abc import Iterator

import msgspec

from vramcast.ledger import Instant, RankMemory, Term
from vramcast.models.stages import Stage, distinct_stages, every_stage
from vramcast.serving.cache import CacheLayer, cache_layers, tower_layers
from vramcast.serving.engines.base import Answer, CachePlan, Resolved
from vramcast.serving.engines.versions import Version, at
from vramcast.serving.engines.vllm import versions
from vramcast.serving.engines.vllm.budget import Budget, budget_of, subtracts_graphs
from vramcast.serving.engines.vllm.fixed import Fixed, fixed_terms
from vramcast.serving.engines.vllm.messages import cache_error
from vramcast.serving.engines.vllm.pages import Plan, paged_layers, plan, state_bytes, token_bytes
from vramcast.serving.engines.vllm.settings import Settings, settings_of
from vramcast.serving.splits import even_split, middle_split

_PAGES = "vllm/v1/core/kv_cache_planning.py"
_POOL = "vllm/v1/worker/gpu_worker.py determine_available_memory"


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One distinct rank while it is worked out: its terms, its pages, and what it could hold (no card: nothing known)."""

    stage: Stage
    fixed: Fixed
    plan: Plan
    budget: Budget | None

    @property
    def pool_bytes(self) -> int:
        """What the rank sets aside for its cache."""
        return self.budget.pool_bytes if self.budget else 0

    @property
    def blocks(self) -> int:
        """Cache blocks the rank's own budget holds."""
        return max(0, self.pool_bytes) // self.plan.block_bytes if self.plan.block_bytes else 0


def answer(resolved: Resolved) -> Answer:
    """Memory of each distinct rank, the cache plan (the smallest over ranks), the limits and the start-up error."""
    settings = settings_of(resolved)
    split = middle_split if settings.version >= (0, 7) else even_split
    ranks = [_rank(resolved, settings, stage) for stage in distinct_stages(resolved.model, settings.pp, split)]
    narrow = min(ranks, key=lambda r: r.blocks) if resolved.card else max(ranks, key=lambda r: r.plan.block_bytes)
    request = narrow.plan.request_blocks(resolved.context, settings.demand)
    blocks = settings.blocks_override or (narrow.blocks if resolved.card else request * resolved.concurrency)
    longest = narrow.plan.longest(blocks, settings.demand, resolved.model.positions or 2**24)
    cache = _cache_plan(narrow, blocks, request, resolved, settings)
    return Answer(
        resolved=resolved,
        ranks=tuple(_memory(rank, blocks, request, resolved, settings) for rank in ranks),
        cache=cache,
        max_context=longest,
        max_concurrency=cache.concurrency,
        start_error=_error(settings, resolved, cache, narrow.pool_bytes, longest) if resolved.card else "",
    )


def _rank(resolved: Resolved, settings: Settings, stage: Stage) -> Rank:
    layers = paged_layers(_layers(resolved, settings, stage), settings.types, hybrid=settings.hybrid_manager)
    fixed = fixed_terms(resolved, settings, stage)
    pages = plan(layers, settings.version, block_tokens=settings.block_tokens)
    return Rank(stage=stage, fixed=fixed, plan=pages, budget=budget_of(settings, fixed) if resolved.card else None)


def _layers(resolved: Resolved, settings: Settings, stage: Stage) -> Iterator[tuple[CacheLayer, int]]:
    yield from cache_layers(stage, settings.tp)
    if settings.mtp and stage.last:
        yield from tower_layers(resolved.model.towers, "mtp", settings.tp)
    if settings.draft and stage.last:
        yield from cache_layers(every_stage(settings.draft, 1, even_split)[0], settings.tp)


def _cache_plan(rank: Rank, blocks: int, request: int, resolved: Resolved, settings: Settings) -> CachePlan:
    concurrency = blocks / request if request else float(resolved.concurrency)
    layers = list(_layers(resolved, settings, rank.stage))
    return CachePlan(
        bytes_per_token=sum(count * token_bytes(layer, settings.types) for layer, count in layers if layer.grows),
        request_bytes=request * rank.plan.block_bytes,
        pool_bytes=max(0, rank.pool_bytes) if rank.budget else blocks * rank.plan.block_bytes,
        tokens=printed_tokens(rank.plan, blocks, concurrency, resolved.context, settings.version),
        concurrency=concurrency,
        block_tokens=rank.plan.block_tokens,
        blocks=blocks,
        groups=tuple(group.layers for group in rank.plan.groups),
        state_bytes=sum(count * state_bytes(layer, settings.types) for layer, count in layers),
    )


def printed_tokens(pages: Plan, blocks: int, concurrency: float, context: int, version: Version) -> int:
    """The "GPU KV cache size" as that version prints it (v1/core/kv_cache_utils.py): its meaning changed in 0.21."""
    if at(version, versions.PRINTS_EFFECTIVE_TOKENS):
        return int(concurrency * context)
    return blocks // max(1, len(pages.groups)) * pages.block_tokens


def _memory(rank: Rank, blocks: int, request: int, resolved: Resolved, settings: Settings) -> RankMemory:
    fixed = rank.fixed
    held = blocks * rank.plan.block_bytes
    cache = _cache_terms(rank, held, resolved, settings)
    around = (*((fixed.unseen,) if fixed.unseen else ()), fixed.graphs, fixed.communication, fixed.context)
    instants = [Instant(name="forward", terms=(fixed.weights, *cache, fixed.activations, *around))]
    if fixed.encoder:
        instants.append(Instant(name="encoder", terms=(fixed.weights, *cache, fixed.encoder, *around)))
    if fixed.logits:
        instants.append(Instant(name="sampling", terms=(fixed.weights, *cache, fixed.logits, *around)))
    loaded = fixed.weights.bytes + (fixed.unseen.bytes if fixed.unseen else 0)
    allocated = loaded + held + fixed.peak_bytes
    outside = sum(term.bytes for term in (fixed.graphs, fixed.communication, fixed.context))
    needed = loaded + request * resolved.concurrency * rank.plan.block_bytes + fixed.peak_bytes + outside
    device = allocated + outside
    return RankMemory(
        rank=rank.stage.name,
        instants=tuple(instants),
        allocated_bytes=allocated,
        reserved_bytes=allocated,
        device_bytes=device,
        needed_bytes=needed,
        claimed_bytes=_claimed(rank, settings, device) if rank.budget else needed,
    )


def _claimed(rank: Rank, settings: Settings, device: int) -> int:
    """The share of the card the flag asks for, and what stands outside it: the context, and graphs before 0.21."""
    if rank.budget is None or settings.pool_override is not None or settings.blocks_override:
        return device
    outside = 0 if subtracts_graphs(settings) else rank.fixed.graphs.bytes
    outside += rank.fixed.unseen.bytes if rank.fixed.unseen else 0
    return rank.budget.requested_bytes + rank.fixed.context.bytes + outside


def _cache_terms(rank: Rank, held: int, resolved: Resolved, settings: Settings) -> tuple[Term, ...]:
    pages = rank.plan
    per_request = [(group, group.blocks(resolved.context, settings.demand)) for group in pages.groups]
    request = sum(blocks for _, blocks in per_request) or 1
    states = round(held * sum(blocks for group, blocks in per_request if group.kind == "state") / request)
    layout = f"{held // max(1, pages.block_bytes):,} blocks of {pages.block_tokens} tokens, {pages.block_bytes:,} B each"
    groups = ", ".join(f"{group.layers} {group.kind}" for group in pages.groups)
    groups += f", {pages.padded_layers} padding layers" * bool(pages.padded_layers)
    pool = rank.budget.why if rank.budget else f"{resolved.concurrency} x {request:,} blocks of {resolved.context:,} tokens"
    parts = (Term(name="pool", bytes=held - states, why=pool, source=_POOL),)
    terms = [Term(name="kv_cache", bytes=held - states, why=f"{layout}; groups: {groups}", source=_PAGES, terms=parts)]
    if states:
        own = sum(blocks for group, blocks in per_request if group.kind == "state")
        why = f"{own} of every {request:,} blocks of a request hold recurrent states"
        terms.append(Term(name="state", bytes=states, why=why, source=_PAGES))
    return tuple(terms)


def _error(settings: Settings, resolved: Resolved, cache: CachePlan, pool_bytes: int, longest: int) -> str:
    return cache_error(
        settings.version,
        settings.core,
        context=resolved.context,
        needed_bytes=cache.request_bytes,
        pool_bytes=pool_bytes,
        tokens=cache.tokens,
        longest=longest,
    )
