"""The arithmetic of one SGLang answer: free memory, budget, pools, ranks."""

from collections.abc import Iterator

import msgspec

from vramcast.hardware.runtime import engine_start_bytes, engine_start_term
from vramcast.ledger import Instant, RankMemory, Term
from vramcast.models.classes import model_class
from vramcast.models.inventory import Block, Model
from vramcast.models.layers import Experts, Mamba2
from vramcast.models.sharding import Stage, cut, distinct_stages, is_routed, share
from vramcast.quantity import Number, bytes_, is_array, is_nothing, maximum, minimum, named, whole
from vramcast.serving.engines.base import Answer, CachePlan, Fitted, Resolved, Version, at, free_bytes, narrowest, parse_version
from vramcast.serving.engines.layouts import SGLANG_NVFP4, front_split, generation_of, pad_of, sglang_kernel, spread_of
from vramcast.serving.engines.sglang import versions
from vramcast.serving.engines.sglang.drafts import draft_beside, drafts_itself
from vramcast.serving.engines.sglang.fraction import LEAST_CHUNK, PREFILL_TOKEN_BYTES
from vramcast.serving.engines.sglang.graphs import graphs_term
from vramcast.serving.engines.sglang.messages import no_room
from vramcast.serving.engines.sglang.pools import Cells, Pools, Types, cells_of, divide
from vramcast.serving.layers import INDEX_SCALE_BYTES, SPARSE_LATENT_BYTES, CacheLayer, cache_layers
from vramcast.serving.weights import (
    VOCAB_MULTIPLE,
    Loading,
    Storage,
    loaded_dtype,
    same_as_model,
    scaled_bytes,
    storage_of,
    weights_term,
)
from vramcast.units import MiB, element_bytes, gib

_SOURCE = "sglang/srt/mem_cache/kv_cache_configurator.py"
_SAMPLER = "sglang/srt/layers/sampler.py: the model's logits and an fp32 copy"
_RESERVE = "sglang/srt/arg_groups/memory_hook.py"
PER_LOGIT_BYTES = 6
# kernels first met and ends of the allocator's segments
LOADING_MIB = Fitted(90, 11, "starts of 0.5 to 32 B parameters in 16 bits, 30 to 150 MiB")


class SglangRank(msgspec.Struct, frozen=True, kw_only=True):
    """One distinct rank while it is worked out. Free memory in bytes before and after the weights; budget of its pools."""

    stage: Stage
    weights: Term
    cells: Cells
    free_before: Number
    budget: Number
    pools: Pools


class OutsidePool(msgspec.Struct, frozen=True, kw_only=True):
    """What lives in the share left free: a prefill chunk's activations, logits, graphs, the context with its collectives."""

    activations: Term
    logits: Term
    graphs: Term
    context: Term


def answer(resolved: Resolved) -> Answer:
    """Memory of each distinct rank, the pools (the smallest over ranks), the limits and the start-up error."""
    ranks = [_rank(resolved, stage) for stage in distinct_stages(resolved.model, resolved.question.parallel.pp, front_split)]
    narrow = narrowest(ranks, lambda r: r.pools.tokens) if resolved.card else ranks[0]
    request = _request_bytes(narrow, resolved.context)
    wanted = _request_bytes(narrow, resolved.live_tokens) * resolved.concurrency
    tokens = narrow.pools.tokens
    longest = minimum(tokens, resolved.model.positions or tokens) if resolved.card else resolved.context
    return Answer(
        resolved=resolved,
        ranks=tuple(_memory(rank, resolved) for rank in ranks),
        cache=CachePlan(
            bytes_per_token=round(narrow.cells.full + narrow.cells.sliding),
            request_bytes=request,
            pool_bytes=narrow.pools.cache_bytes,
            tokens=tokens,
            concurrency=tokens / resolved.context,
            block_tokens=resolved.options["page_size"],
            blocks=tokens // resolved.options["page_size"],
            state_bytes=round(narrow.cells.slot),
            state_sequences=narrow.pools.slots // _slots_per_request(resolved) if narrow.cells.slot else 0,
        ),
        max_context=longest,
        max_concurrency=_concurrency(narrow, resolved.context, resolved),
        at_once=_concurrency(narrow, resolved.typical_tokens, resolved),
        wanted_bytes=wanted,
        start_error=_error(narrow, resolved),
    )


def _rank(resolved: Resolved, stage: Stage) -> SglangRank:
    options, parallel = resolved.options, resolved.question.parallel
    version = parse_version(resolved.version, "sglang")
    dtype = loaded_dtype(resolved.model, resolved.question.dtype, resolved.card)
    weights = _weights(resolved, stage, dtype)
    ratio = options.get("swa_full_tokens_ratio") or model_class(resolved.model.text_class).served.window_pool
    held = Stage(name=stage.name, first=stage.first, last=stage.last, blocks=_cached_blocks(resolved, stage, version))
    layers = (*cache_layers(held, _attention_ranks(resolved)), *_draft_layers(resolved, stage, version))
    cells = cells_of(layers, _types(resolved, dtype), ratio)
    context = engine_start_bytes(resolved.card, parallel.model_ranks)
    free = 1.0 * (free_bytes(resolved.card, options.get("gpu_total_bytes")) - context) if resolved.card else 0.0
    budget = free - (weights.bytes - _loaded_later(weights, version)) - free * (1 - options["mem_fraction_static"])
    if resolved.card is None:
        asked = resolved.concurrency * (cells.token_bytes() * resolved.context + _slots_per_request(resolved) * cells.slot)
        free, budget = 0.0, asked
    pools = divide(
        budget,
        cells,
        page=options["page_size"],
        slots=_asked_slots(resolved),
        cap=options.get("max_total_tokens"),
        share=options.get("mamba_full_memory_ratio") or versions.STATE_SHARE,
    )
    return SglangRank(stage=stage, weights=weights, cells=cells, free_before=free, budget=budget, pools=pools)


def _asked_slots(resolved: Resolved) -> Number | None:
    """State slots as asked, those of the requests where no card bounds them, None where the budget decides."""
    asked = resolved.options.get("max_mamba_cache_size")
    if asked is not None or resolved.card is not None:
        return asked
    return resolved.concurrency * _slots_per_request(resolved)


def _on_host(resolved: Resolved, stage: Stage, loading: Loading, storage: Storage) -> Iterator[Term]:
    """Routed experts that KTransformers' kernels keep in host memory: the card makes weights for the first ones only.

    Source: sglang/srt/layers/moe/kt_ep_wrapper.py create_weights (num_experts=num_gpu_experts, the rest to kt_kernel).
    """
    kept = resolved.options.get("kt_num_gpu_experts")
    if kept is None:
        return
    for block, count in stage.blocks:
        kind = block.feedforward
        if isinstance(kind, Experts) and kept < kind.routed:
            whole = sum(
                storage.share_bytes(tensor, share(tensor, loading.layout), block=block)
                for tensor in block.tensors
                if is_routed(tensor)
            )
            size = round(count * whole * (1 - kept / kind.routed))
            why = (
                f"{kind.routed - kept} of {kind.routed} experts of {count} layers stay in host memory: {gib(size)} of this rank's"
            )
            yield Term(name="experts on the host", bytes=-size, why=why, source="sglang/srt/layers/moe/kt_ep_wrapper.py")


def _weights(resolved: Resolved, stage: Stage, dtype: str) -> Term:
    parallel, options = resolved.question.parallel, resolved.options
    spread = spread_of("sglang", parallel, options)
    storage = storage_of(resolved.model, quant=resolved.question.quant, dtype=dtype)
    nvfp4 = storage.expert_format(resolved.model) == "nvfp4"
    loading = Loading(
        layout=cut(
            parallel.tp,
            attention_tp=spread.attention,
            ep=spread.experts,
            expert_tp=spread.each_expert,
            vocab_multiple=VOCAB_MULTIPLE,
            expert_pad=pad_of(SGLANG_NVFP4 if nvfp4 else sglang_kernel(storage, resolved.card, options)),
        ),
        rotary_bytes=element_bytes(dtype) if dtype == "float32" else 4,
        mtp=drafts_itself(resolved.model, options),
        splits_towers=model_class(resolved.model.family).served.sglang_cuts_towers,
        speaks=False,
    )
    term = weights_term(resolved.model, stage, loading, storage)
    copies = [latent_copies(stage, loading, storage), _lost_while_loading(resolved), *_draft_term(resolved, stage, dtype)]
    if nvfp4 and _copies_scales(resolved):
        copies.append(swizzled_scales(stage, loading))
    more = [copy for copy in (*copies, *_on_host(resolved, stage, loading, storage)) if copy.bytes]
    return Term.total("weights", (*term.terms, *more), why=term.why, source=term.source) if more else term


def _draft_term(resolved: Resolved, stage: Stage, dtype: str) -> tuple[Term, ...]:
    """Weights of the draft model, cut over the same tensor-parallel ranks (sglang/srt/speculative/eagle_worker.py)."""
    draft = draft_beside(resolved.model, resolved.options) if stage.last else None
    if draft is None:
        return ()
    loading = Loading(layout=cut(resolved.question.parallel.tp, vocab_multiple=VOCAB_MULTIPLE), rotary_bytes=element_bytes(dtype))
    term = weights_term(draft.model, _whole(draft.model), loading, storage_of(draft.model, quant=None, dtype=dtype))
    return (term.renamed("draft_model"),)


def _draft_layers(resolved: Resolved, stage: Stage, version: Version) -> Iterator[tuple[CacheLayer, int]]:
    """The draft's cached layers, in releases that size the pool for both: cells grow by them (pool_configurator.py, #28219).

    Earlier ones keep a flat reserve for the draft and its cache (versions.DRAFT_MIB).
    """
    draft = draft_beside(resolved.model, resolved.options) if stage.last else None
    if draft is not None and _sizes_for_both(version):
        yield from cache_layers(_whole(draft.model), _attention_ranks(resolved))


def _sizes_for_both(version: Version) -> bool:
    """Whether the draft is loaded before the pool is sized."""
    return at(version, versions.FRACTION) == "reserve" and not at(version, versions.DRAFT_MIB)


def _loaded_later(weights: Term, version: Version) -> int:
    """The draft's weights, in releases that load them into what the pool left free."""
    return 0 if _sizes_for_both(version) else sum(term.bytes for term in weights.terms if term.name == "draft_model")


def _lost_while_loading(resolved: Resolved) -> Term:
    """What the card loses besides the weights while they load: SGLang prints, and budgets by, the card's free memory.

    Source: sglang/srt/model_executor/model_runner.py load_model (before_avail_memory - after_avail_memory).
    """
    size = 0 if resolved.card is None else LOADING_MIB.value * MiB
    return Term(name="lost_while_loading", bytes=round(size), why=LOADING_MIB.why)


# kernels that order the loaded scales themselves, in place (modelopt_quant.py process_weights_after_loading)
_IN_PLACE = ("flashinfer_trtllm", "flashinfer_trtllm_routed", "marlin")


def _copies_scales(resolved: Resolved) -> bool:
    """Whether the kernels of NVFP4 experts keep a second copy of their scales; data-centre Blackwell takes TensorRT-LLM's."""
    backend = str(resolved.options.get("moe_runner_backend") or "auto")
    return backend not in _IN_PLACE and not (backend == "auto" and generation_of(resolved.card) == 10)


def swizzled_scales(stage: Stage, loading: Loading) -> Term:
    """Block scales of NVFP4 experts in the order the kernels read, made beside the loaded ones: one byte for 16 weights.

    Source: sglang/srt/layers/quantization/modelopt_quant.py ModelOptNvFp4FusedMoEMethod.create_weights (w13_blockscale_swizzled).
    """
    elements = sum(
        share(tensor, loading.layout) * count
        for block, count in stage.blocks
        for tensor in block.tensors
        if is_routed(tensor) and len(tensor.shape) > 1
    )
    why = f"{elements:,} weights of experts on this rank / 16, a second copy of their block scales"
    return Term(name="swizzled_scales", bytes=round(elements / 16), why=why)


def latent_copies(stage: Stage, loading: Loading, storage: Storage) -> Term:
    """Keys' and values' halves of the latent's expansion, each copied into the layout it is multiplied in.

    Source: sglang/srt/models/deepseek_v2.py post_load_weights (w_kc, w_vc beside kv_b_proj).
    """
    size = sum(
        storage.share_bytes(tensor, share(tensor, loading.layout), block=block) * count
        for block, count in stage.blocks
        for tensor in block.tensors
        if tensor.name.endswith("kv_b_proj.weight")
    )
    return Term(name="absorbed", bytes=round(size), why="halves of kv_b_proj, copied for absorbed attention")


def _attention_ranks(resolved: Resolved) -> int:
    """Ranks that share one sequence's heads: DP attention gives each data-parallel group its own cache."""
    return spread_of("sglang", resolved.question.parallel, resolved.options).attention


def _cached_blocks(resolved: Resolved, stage: Stage, version: Version) -> tuple[tuple[Block, int], ...]:
    """Layers whose cache a stage allocates: before 0.5.10 every stage allocated all of them (start-up logs of 0.5.9)."""
    if resolved.question.parallel.pp > 1 and at(version, versions.STAGES_HOLD_ALL):
        return tuple((block, block.count) for block in resolved.model.blocks)
    return stage.blocks


def _types(resolved: Resolved, dtype: str) -> Types:
    plain, name = element_bytes(dtype), resolved.question.kv_dtype
    state = element_bytes(str(resolved.options.get("mamba_ssm_dtype") or "float32"))
    if same_as_model(name):
        return Types(kv=plain, conv=plain, state=state, index_scale=INDEX_SCALE_BYTES)
    if name in ("nvfp4", "fp4_e2m1", "mxfp8"):
        return Types(kv=scaled_bytes("mxfp8" if name == "mxfp8" else "nvfp4"), conv=plain, state=state)
    sparse = any(layer.index_elements for layer, _ in cache_layers(_whole(resolved.model), 1))
    packed = SPARSE_LATENT_BYTES if sparse else 0
    return Types(kv=element_bytes(str(name)), conv=plain, state=state, latent_token=packed, index_scale=INDEX_SCALE_BYTES)


def _whole(model: Model) -> Stage:
    return Stage(name="", first=True, last=True, blocks=tuple((b, b.count) for b in model.blocks))


def _slots_per_request(resolved: Resolved) -> int:
    if resolved.options.get("disable_radix_cache"):
        return 1
    mamba2 = any(isinstance(mixer, Mamba2) for block in resolved.model.blocks for mixer in block.mixers)
    return at(parse_version(resolved.version, "sglang"), versions.STATE_SLOTS_MAMBA2 if mamba2 else versions.STATE_SLOTS)


def _request_bytes(rank: SglangRank, tokens: Number) -> Number:
    return whole(rank.cells.token_bytes() * tokens + rank.cells.slot)


def _concurrency(rank: SglangRank, each: Number, resolved: Resolved) -> Number:
    """Requests of so many tokens that the pools hold."""
    by_tokens = rank.pools.tokens / each
    return minimum(by_tokens, rank.pools.slots / _slots_per_request(resolved)) if rank.cells.slot else by_tokens


def _memory(rank: SglangRank, resolved: Resolved) -> RankMemory:
    pools, beside = rank.pools, _outside_pool(resolved)
    pool = Term(name="pool", bytes=pools.cache_bytes, why=lambda: _budget_text(rank, resolved), source=_SOURCE)
    cache = Term(name="kv_cache", bytes=pools.cache_bytes, why=lambda: _pool_text(rank), source=_SOURCE, terms=(pool,))
    slots = named(pools.slots + 1, "slots, one of them for padding") * bytes_(rank.cells.slot)
    states = () if is_nothing(pools.state_bytes) else (Term(name="state", bytes=pools.state_bytes, why=slots, source=_SOURCE),)
    terms = (rank.weights, cache, *states, beside.activations, beside.logits, beside.graphs, beside.context)
    held = pools.cache_bytes + pools.state_bytes
    total = sum(term.bytes for term in terms)
    allocated = rank.weights.bytes + held + beside.activations.bytes
    needed = total - held + _request_bytes(rank, resolved.live_tokens) * resolved.concurrency
    return RankMemory(
        rank=rank.stage.name,
        instants=(Instant(name="serving", terms=terms),),
        allocated_bytes=allocated,
        reserved_bytes=allocated,
        device_bytes=total,
        needed_bytes=needed,
        claimed_bytes=total if resolved.card else needed,
    )


def _budget_text(rank: SglangRank, resolved: Resolved) -> str:
    """The budget as the engine works it out: what was free, less the weights, less the share kept for all else."""
    if resolved.card is None:
        return f"{resolved.concurrency} x {resolved.context:,} tokens"
    kept = f"{1 - resolved.options['mem_fraction_static']:.3g} of it for all else"
    free, weights, budget = (gib(whole(b)) for b in (rank.free_before, rank.weights.bytes, maximum(0, rank.budget)))
    return f"{free} free, less weights {weights} and {kept} = {budget}"


def _pool_text(rank: SglangRank) -> str:
    one = f"{rank.pools.tokens:,} tokens x {rank.cells.full:,.0f} B"
    return one + (
        f" + {rank.pools.sliding_tokens:,} tokens x {rank.cells.sliding:,.0f} B of sliding layers" if rank.cells.ratio else ""
    )


def _outside_pool(resolved: Resolved) -> OutsidePool:
    options = resolved.options
    chunk = named(maximum(options["chunked_prefill_size"], LEAST_CHUNK), "tokens of a chunk")
    logits = named(options["cuda_graph_max_bs"], "rows") * named(resolved.model.vocab, "vocabulary")
    return OutsidePool(
        activations=Term(name="activations", amount=chunk * bytes_(PREFILL_TOKEN_BYTES), source=_RESERVE),
        logits=Term(name="logits", amount=logits * bytes_(PER_LOGIT_BYTES), source=_SAMPLER),
        graphs=graphs_term(resolved),
        context=engine_start_term(resolved.card, resolved.question.parallel.model_ranks),
    )


def _error(rank: SglangRank, resolved: Resolved) -> str:
    if resolved.card is None or is_array(rank.pools.tokens) or rank.pools.tokens > 0:
        return ""
    return no_room(resolved.options["mem_fraction_static"], rank.free_before, rank.free_before - rank.weights.bytes)
