"""vLLM's answers: defaults filled in, then the budget of each rank, its cache plan, the limits, and the refusal vLLM would print.

Sources: vllm/worker/worker.py (V0), vllm/v1/worker/gpu_worker.py determine_available_memory, vllm/utils/mem_utils.py;
vllm/v1/core/kv_cache_utils.py check_enough_kv_cache_memory, vllm/worker/worker.py raise_if_cache_size_invalid.
"""

from collections.abc import Iterator, Sequence

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption, Instant, RankMemory, Term
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention, LatentAttention
from vramcast.models.sharding import Stage, distinct_stages, every_stage
from vramcast.quantity import Number, ceiling, floored, is_array, is_nothing, maximum, minimum, named, where, whole
from vramcast.serving.engines.base import Answer, CachePlan, Resolved, Version, at, held_at_once, narrowest
from vramcast.serving.engines.drafts import way_of_draft
from vramcast.serving.engines.layouts import (
    check_context_ranks,
    even_split,
    expert_group,
    middle_split,
    named_kernel,
    vllm_kernel,
)
from vramcast.serving.engines.options import Option
from vramcast.serving.engines.resolving import Defaults, context_of, opened, resolved
from vramcast.serving.engines.vllm import versions
from vramcast.serving.engines.vllm.fixed import DEFAULT_RANK, VllmTerms, fixed_terms
from vramcast.serving.engines.vllm.options import OPTIONS
from vramcast.serving.engines.vllm.pages import PagePlan, paged_layers, plan, state_bytes, token_bytes, whole_heads
from vramcast.serving.engines.vllm.profile import unsized_images
from vramcast.serving.engines.vllm.settings import VllmSettings, draft_beside, settings_of, subtracts_graphs, uncounted_draft
from vramcast.serving.layers import CacheLayer, cache_layers, encodes_only, tower_layers
from vramcast.serving.weights import loaded_dtype, storage_of
from vramcast.units import GiB, gib
from vramcast.workload import Parallel, Serving

_PAGES = "vllm/v1/core/kv_cache_planning.py"
_MORE = 2**62  # more than any pool
_POOL = "vllm/v1/worker/gpu_worker.py determine_available_memory"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """``requested_bytes``: utilization times the card; ``pool_bytes``: what is left for the cache (negative when nothing is).

    ``used``: what was taken off, by name; None where the pool was given.
    """

    requested_bytes: Number
    pool_bytes: Number
    settings: VllmSettings
    used: dict[str, Number] | None = None

    @property
    def why(self) -> str:
        """The subtraction with its numbers."""
        if self.used is None:
            return "kv_cache_memory_bytes as asked"
        less = ", ".join(f"{name} {gib(size)}" for name, size in self.used.items())
        share = f"{self.settings.utilization:g} x {gib(self.settings.total_bytes)} of the card"
        return f"{share} = {gib(self.requested_bytes)}, less {less}"


class VllmRank(msgspec.Struct, frozen=True, kw_only=True):
    """One distinct rank while it is worked out: its terms, its pages, and what it could hold (no card: nothing known)."""

    stage: Stage
    fixed: VllmTerms
    plan: PagePlan
    budget: Budget | None

    @property
    def pool_bytes(self) -> Number:
        """What the rank sets aside for its cache."""
        return self.budget.pool_bytes if self.budget else 0

    @property
    def blocks(self) -> Number:
        """Cache blocks the rank's own budget holds."""
        return maximum(0, self.pool_bytes) // self.plan.block_bytes if self.plan.block_bytes else 0


def answer(resolved: Resolved) -> Answer:
    """Memory of each distinct rank, the cache plan (the smallest over ranks), the limits and the start-up error.

    Lengths, counts and shares of the question may be arrays, one element per layout; what is answered are arrays then, and no
    start-up error is written.
    """
    settings = settings_of(resolved)
    ranks = [_rank(resolved, settings, stage) for stage in _stages(resolved, settings)]
    narrow = narrowest(ranks, lambda r: r.blocks) if resolved.card else max(ranks, key=lambda r: r.plan.block_bytes)
    lengths = (resolved.context, resolved.live_tokens, resolved.typical_tokens)
    request, live, typical = (narrow.plan.request_blocks(tokens, settings.demand) for tokens in lengths)
    # vLLM asks at start for room for one request of the whole context (v1/core/kv_cache_utils.py check_enough_kv_cache_memory)
    wanted = maximum(request, live * resolved.concurrency)
    blocks = settings.blocks_override or (narrow.blocks if resolved.card else wanted)
    limit = resolved.model.positions or 2**24
    longest = narrow.plan.longest(blocks, settings.demand, limit) if resolved.limits else resolved.context
    pool = _pool_bytes(ranks, narrow) if resolved.card and settings.caches else blocks * narrow.plan.block_bytes
    cache = _cache_plan(narrow, (pool, blocks, request), resolved, settings)
    return Answer(
        resolved=_with_held_back(resolved, settings, narrow.fixed) if resolved.card else resolved,
        ranks=tuple(_memory(rank, blocks, wanted, resolved, settings) for rank in ranks),
        cache=cache,
        max_context=longest,
        max_concurrency=cache.concurrency,
        at_once=held_at_once(blocks, typical, resolved),
        wanted_bytes=wanted * narrow.plan.block_bytes,
        start_error=_error(settings, resolved, cache, narrow.pool_bytes, longest) if resolved.card else "",
    )


def _stages(resolved: Resolved, settings: VllmSettings) -> Sequence[Stage]:
    split = middle_split if at(settings.version, versions.MIDDLE_SPLIT) else even_split
    return distinct_stages(resolved.model, settings.pp, split)


def _pool_bytes(ranks: list[VllmRank], narrow: VllmRank) -> Number:
    """The pool of the rank that holds the fewest blocks, the smallest of several such ranks."""
    if len(ranks) == 1:
        return maximum(0, narrow.pool_bytes)
    return maximum(0, minimum(*(where(rank.blocks == narrow.blocks, rank.pool_bytes, _MORE) for rank in ranks)))


def _rank(resolved: Resolved, settings: VllmSettings, stage: Stage) -> VllmRank:
    fixed = fixed_terms(resolved, settings, stage)
    layers = paged_layers(_layers(resolved, settings, stage), settings.types, hybrid=settings.hybrid_manager)
    pages = plan(layers, settings.version, block_tokens=settings.block_tokens)
    return VllmRank(stage=stage, fixed=fixed, plan=pages, budget=budget_of(settings, fixed) if resolved.card else None)


def _layers(resolved: Resolved, settings: VllmSettings, stage: Stage) -> Iterator[tuple[CacheLayer, int]]:
    if not settings.caches:
        return
    yield from cache_layers(stage, settings.tp) if settings.caches_latent else whole_heads(stage, settings.tp)
    if settings.mtp and stage.last:
        yield from tower_layers(resolved.model.towers, "mtp", settings.tp)
    if settings.draft and stage.last:
        yield from cache_layers(every_stage(settings.draft, 1, even_split)[0], settings.tp)


def _cache_plan(rank: VllmRank, sizes: tuple[Number, Number, Number], resolved: Resolved, settings: VllmSettings) -> CachePlan:
    pool, blocks, request = sizes
    concurrency = held_at_once(blocks, request, resolved) if settings.caches else settings.max_seqs  # nothing else bounds it
    layers = list(_layers(resolved, settings, rank.stage))
    return CachePlan(
        bytes_per_token=sum(count * token_bytes(layer, settings.types) for layer, count in layers if layer.grows)
        // settings.demand.context_ranks,
        request_bytes=request * rank.plan.block_bytes,
        pool_bytes=pool,
        tokens=printed_tokens(rank.plan, blocks, concurrency, resolved.context, settings),
        concurrency=concurrency,
        block_tokens=rank.plan.block_tokens,
        blocks=blocks,
        groups=tuple(group.layers for group in rank.plan.groups),
        state_bytes=sum(count * state_bytes(layer, settings.types) for layer, count in layers),
    )


def printed_tokens(pages: PagePlan, blocks: Number, concurrency: Number, context: Number, settings: VllmSettings) -> Number:
    """The "GPU KV cache size" as that version prints it (v1/core/kv_cache_utils.py): its meaning changed in 0.21.

    Before, blocks times tokens of one block, and times the ranks of decode context parallelism.
    """
    if not settings.caches:
        return 0
    if at(settings.version, versions.PRINTS_EFFECTIVE_TOKENS):
        return floored(concurrency * context)
    return blocks // max(1, len(pages.groups)) * pages.block_tokens * settings.demand.context_ranks


def _memory(rank: VllmRank, blocks: Number, wanted: Number, resolved: Resolved, settings: VllmSettings) -> RankMemory:
    fixed = rank.fixed
    held = blocks * rank.plan.block_bytes
    cache = _cache_terms(rank, held, resolved, settings)
    kept = tuple(term for term in (fixed.unseen, fixed.states) if term)
    around = (*kept, fixed.graphs, fixed.communication, fixed.context)
    instants = [Instant(name="forward", terms=(fixed.weights, *cache, fixed.activations, *around))]
    if fixed.encoder:
        instants.append(Instant(name="encoder", terms=(fixed.weights, *cache, fixed.encoder, *around)))
    if fixed.logits:
        instants.append(Instant(name="sampling", terms=(fixed.weights, *cache, fixed.logits, *around)))
    loaded = fixed.weights.bytes + sum(term.bytes for term in kept)
    allocated = loaded + held + fixed.peak_bytes
    outside = fixed.communication.bytes + fixed.context.bytes
    needed = loaded + wanted * rank.plan.block_bytes + fixed.peak_bytes + outside + _graphs(fixed, settings).bytes
    device = allocated + outside + fixed.graphs.bytes
    return RankMemory(
        rank=rank.stage.name,
        instants=tuple(instants),
        allocated_bytes=allocated,
        reserved_bytes=allocated,
        device_bytes=device,
        needed_bytes=needed,
        claimed_bytes=_claimed(rank, settings, device) if rank.budget else needed,
    )


def _graphs(fixed: VllmTerms, settings: VllmSettings) -> Term:
    """The graphs as the budget needs room for them: what is held back for them, where something is."""
    return fixed.reserve if subtracts_graphs(settings) else fixed.graphs


def _with_held_back(resolved: Resolved, settings: VllmSettings, fixed: VllmTerms) -> Resolved:
    """The question with a word on what is held back for graphs, where they leave some of it empty: no term shows that part."""
    held, filled = fixed.reserve.bytes, fixed.graphs.bytes
    if not subtracts_graphs(settings) or is_array(held) or is_array(filled) or held <= filled:
        return resolved
    told = f"held back for graphs by this release; they fill {gib(filled)}, the rest stays empty and is needed all the same"
    return msgspec.structs.replace(resolved, assumed=(*resolved.assumed, Assumption("graphs_held_back", gib(held), told)))


def _claimed(rank: VllmRank, settings: VllmSettings, device: Number) -> Number:
    """The share of the card the flag asks for, and what stands outside it: the context, and graphs before 0.21.

    What is held back for graphs and not filled by them stays free.
    """
    if rank.budget is None or settings.pool_override is not None or settings.blocks_override or not settings.caches:
        return device
    held_back = rank.fixed.reserve.bytes if subtracts_graphs(settings) else 0
    outside = rank.fixed.graphs.bytes - held_back
    outside += rank.fixed.unseen.bytes if rank.fixed.unseen else 0
    return rank.budget.requested_bytes + rank.fixed.context.bytes + outside


def _cache_terms(rank: VllmRank, held: Number, resolved: Resolved, settings: VllmSettings) -> tuple[Term, ...]:
    pages = rank.plan
    per_request = [(group, group.blocks(resolved.context, settings.demand)) for group in pages.groups]
    request, own = (sum(n for group, n in per_request if kind in ("", group.kind)) for kind in ("", "state"))
    states = 0 if is_nothing(own) else whole(held * own / request)
    pool = Term(name="pool", bytes=held - states, why=lambda: _pool_why(rank, resolved, request), source=_POOL)
    terms = [
        Term(name="kv_cache", bytes=held - states, why=lambda: _pages_why(pages, held), source=_PAGES, terms=(pool,)),
    ]
    if not is_nothing(states):
        why = named(held, "B") * named(own, "blocks of states") / named(request, "blocks of a request")
        terms.append(Term(name="state", bytes=states, why=why, source=_PAGES))
    return tuple(terms)


def _pages_why(pages: PagePlan, held: Number) -> str:
    layout = f"{held // max(1, pages.block_bytes):,} blocks of {pages.block_tokens} tokens, {pages.block_bytes:,} B each"
    groups = ", ".join(f"{group.layers} {group.kind}" for group in pages.groups)
    return f"{layout}; groups: {groups}" + f", {pages.padded_layers} padding layers" * bool(pages.padded_layers)


def _pool_why(rank: VllmRank, resolved: Resolved, request: Number) -> str:
    if rank.budget:
        return rank.budget.why
    return f"blocks of {resolved.concurrency} x {resolved.live_tokens:,} tokens, at least {request or 1:,} of a whole context"


def _error(settings: VllmSettings, resolved: Resolved, cache: CachePlan, pool_bytes: Number, longest: Number) -> str:
    if is_array(cache.request_bytes) or is_array(pool_bytes):
        return ""
    return cache_error(
        settings.version,
        settings.core,
        context=resolved.context,
        needed_bytes=cache.request_bytes,
        pool_bytes=pool_bytes,
        tokens=cache.tokens,
        longest=longest,
    )


def budget_of(settings: VllmSettings, fixed: VllmTerms) -> Budget:
    """The budget of one rank: total * utilization - weights - peak - libraries, and - graphs since 0.21."""
    requested = ceiling(settings.total_bytes * settings.utilization)
    if settings.pool_override is not None:
        return Budget(requested_bytes=requested, pool_bytes=settings.pool_override, settings=settings)
    used = {"weights": fixed.weights.bytes, "peak": fixed.peak_bytes, "libraries": fixed.communication.bytes}
    if fixed.states:
        used["states of the sampler"] = fixed.states.bytes
    if subtracts_graphs(settings):
        used["graphs"] = fixed.reserve.bytes
    if settings.core == "V1" and at(settings.version, versions.COUNTS_CONTEXT):
        used["context"] = fixed.context.bytes
    return Budget(requested_bytes=requested, pool_bytes=requested - sum(used.values()), settings=settings, used=used)


def printed_peak(resolved: Resolved, peak: Number) -> Number:
    """The "peak activation" a start prints: since 0.27 with what is held back for graphs (v1/worker/gpu_worker.py)."""
    settings = settings_of(resolved)
    if not (at(settings.version, versions.COUNTS_ALL_USED) and subtracts_graphs(settings)):
        return peak
    return peak + fixed_terms(resolved, settings, _stages(resolved, settings)[0]).reserve.bytes


NO_BLOCKS = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."


def cache_error(
    version: Version, core: str, *, context: int, needed_bytes: int, pool_bytes: int, tokens: int, longest: int
) -> str:
    """The engine's refusal, or an empty string when one request of ``context`` tokens fits."""
    if pool_bytes <= 0:
        return NO_BLOCKS
    if core == "V0":
        return _v0(context, tokens) if tokens < context else ""
    return _v1(version, context, needed_bytes, pool_bytes, longest) if needed_bytes > pool_bytes else ""


def _v0(context: int, tokens: int) -> str:
    return (
        f"The model's max seq len ({context}) is larger than the maximum number of tokens that can be stored in KV cache "
        f"({tokens}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )


def _v1(version: Version, context: int, needed_bytes: int, pool_bytes: int, longest: int) -> str:
    whose = at(version, versions.WHOSE)
    estimate = f" Based on the available memory, the estimated maximum model length is {longest}." if longest > 0 else ""
    return (
        f"To serve at least one request with the {whose} max seq len ({context}), ({needed_bytes / GiB:.2f} GiB KV cache is "
        f"needed, which is larger than the available KV cache memory ({pool_bytes / GiB:.2f} GiB).{estimate} "
        "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )


class Vllm(msgspec.Struct, frozen=True):
    """The engine; see base.Engine for the two questions it answers."""

    name: str = "vllm"
    versions: tuple[str, ...] = versions.VERSIONS
    options: tuple[Option, ...] = OPTIONS

    def resolve(self, question: Serving, model: Model, card: Accelerator | None) -> Resolved:
        """The question with vLLM's defaults for the version, the card and the entry point filled in."""
        defaults, version, number = opened(self, question, model)
        _note_group(defaults, question.parallel)
        check_context_ranks(model, defaults.values.get("decode_context_parallel_size") or 1, question.parallel.tp)
        context = context_of(question, model, defaults)
        _fill(defaults, number, card, context, whole=encodes_only(model))
        defaults.take("block_size", _block(model), "default of CUDA backends")
        drafter = defaults.values.get("speculative_model")
        if drafter and (way := way_of_draft(drafter, model)):
            defaults.take("speculative_method", way, "the draft's name says so (vllm/config/speculative.py)")
        if defaults.values.get("enable_lora"):
            defaults.take("max_lora_rank", DEFAULT_RANK, "default of vllm/config/lora.py; slots grow with it")
        found = resolved(question, model, card, defaults, version=version, context=context)
        storage = storage_of(model, quant=question.quant, dtype=loaded_dtype(model, question.dtype, card))
        kernel, other = vllm_kernel(model, storage, card, number, defaults.values)
        said = named_kernel(model, storage, kernel, other, expert_group(question.parallel, defaults.values))
        draft = draft_beside(model, defaults.values)
        said = (*said, *(draft.assumed if draft else ()))
        more = (*unsized_images(model), *uncounted_draft(model, defaults.values))
        if not (said or more):
            return found
        return msgspec.structs.replace(found, assumed=(*found.assumed, *said), unmodelled=(*found.unmodelled, *more))

    def forecast(self, resolved: Resolved) -> Answer:
        """Memory of each distinct rank, the cache plan (the smallest over ranks), the limits and the start-up error."""
        return answer(resolved)


def _note_group(defaults: Defaults, parallel: Parallel) -> None:
    """An ``--ep`` that is not the size of the group: vLLM only takes it as the switch."""
    group = expert_group(parallel, defaults.values)
    if parallel.ep not in (1, group):
        defaults.note("ep", group, f"--enable-expert-parallel deals experts out over all tp x dp = {group} ranks")


def _fill(defaults: Defaults, version: Version, card: Accelerator | None, context: Number, *, whole: bool) -> None:
    """``whole``: an encoder reads a text in one step, so that a step holds the longest (config/scheduler.py)."""
    core = defaults.take("engine_core", at(version, versions.ENGINE_CORE), "default of that version")
    server = defaults.take("entry", "server", "vllm serve rather than the offline LLM class") == "server"
    seqs = defaults.take("max_num_seqs", versions.sequences(version, card), "default of that version and card")
    tokens = versions.batched_tokens(version, core, card, server=server, context=context)
    tokens = maximum(tokens, context) if whole else tokens
    capped = minimum(tokens, seqs * context) if at(version, versions.CAPS_STEP) else tokens
    tokens = defaults.take("max_num_batched_tokens", capped, "default of that version and card")
    defaults.values["max_num_seqs"] = minimum(seqs, tokens)
    defaults.take("gpu_memory_utilization", versions.utilization(version), "default of that version")


def _block(model: Model) -> int:
    """Tokens per block of the attention kernels: 16, or 32 for latent attention beside states (platforms/interface.py)."""
    mixers = [mixer for block in model.blocks for mixer in block.mixers]
    latent = any(isinstance(mixer, LatentAttention) for mixer in mixers)
    return 32 if latent and any(not isinstance(mixer, Attention | LatentAttention) for mixer in mixers) else 16
