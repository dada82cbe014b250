"""The arithmetic of one TensorRT-LLM answer: peak of the dummy run, free memory, blocks."""

import msgspec

from vramcast.hardware.runtime import engine_start_term
from vramcast.ledger import Instant, RankMemory, Term
from vramcast.models.sharding import Stage, cut, distinct_stages
from vramcast.quantity import Number, bytes_, floored, is_array, maximum, minimum, named, where, whole
from vramcast.serving.engines.base import Answer, CachePlan, Resolved, at, free_bytes, narrowest, parse_version
from vramcast.serving.engines.layouts import front_split, pad_of, spread_of, tensorrt_llm_kernel
from vramcast.serving.engines.pool import held_at_once
from vramcast.serving.engines.tensorrt_llm import versions
from vramcast.serving.layers import CacheLayer, cache_layers, widest_layer
from vramcast.serving.weights import Loading, loaded_dtype, same_as_model, scaled_bytes, storage_of, weights_term
from vramcast.units import element_bytes

_SOURCE = "tensorrt_llm/_torch/pyexecutor/_util.py"
_SAMPLER = "tensorrt_llm/_torch/pyexecutor/sampler.py greedy_search_sampling_batch"


class TrtllmTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of one rank beside its cache: weights, the dummy run's transient peak and logits, context."""

    weights: Term
    activations: Term
    logits: Term
    context: Term

    @property
    def bytes(self) -> Number:
        """What is taken before the cache."""
        return self.weights.bytes + self.activations.bytes + self.logits.bytes + self.context.bytes


class TrtllmRank(msgspec.Struct, frozen=True, kw_only=True):
    """One distinct rank: its terms beside the cache, bytes of one token and of one sequence's states, and its pool."""

    stage: Stage
    fixed: TrtllmTerms
    token_bytes: float
    state_bytes: float
    pool_bytes: Number


def answer(resolved: Resolved) -> Answer:
    """Memory of each distinct rank, the blocks (the fewest over ranks), the limits and the start-up error."""
    options = resolved.options
    ranks = [_rank(resolved, stage) for stage in distinct_stages(resolved.model, resolved.question.parallel.pp, front_split)]
    narrow = narrowest(ranks, lambda r: r.pool_bytes / max(1.0, r.token_bytes))
    block = options["tokens_per_block"]
    request, live, typical = (
        -(-tokens // block) * block * narrow.token_bytes + narrow.state_bytes
        for tokens in (resolved.context, resolved.live_tokens, resolved.typical_tokens)
    )
    wanted = whole(live * resolved.concurrency)
    pool = narrow.pool_bytes if resolved.card else wanted
    blocks = floored(maximum(0, pool) // (block * narrow.token_bytes)) if narrow.token_bytes else 0
    held, cap = blocks * block, options.get("max_tokens")
    tokens = held if cap is None else minimum(held, cap)
    return Answer(
        resolved=resolved,
        ranks=tuple(_memory(rank, resolved, tokens, wanted) for rank in ranks),
        cache=CachePlan(
            bytes_per_token=round(narrow.token_bytes),
            request_bytes=whole(request),
            pool_bytes=where(held == tokens, pool, whole(tokens * narrow.token_bytes)),
            tokens=tokens,
            concurrency=held_at_once(pool, request, resolved),
            block_tokens=block,
            blocks=tokens // block,
            state_bytes=round(narrow.state_bytes),
        ),
        max_context=minimum(tokens, resolved.model.positions or tokens) if resolved.card else resolved.context,
        max_concurrency=held_at_once(pool, request, resolved),
        at_once=held_at_once(pool, typical, resolved),
        wanted_bytes=wanted,
        start_error=_error(resolved, pool),
    )


def _rank(resolved: Resolved, stage: Stage) -> TrtllmRank:
    question, options = resolved.question, resolved.options
    dtype = loaded_dtype(resolved.model, question.dtype, resolved.card)
    element = element_bytes(dtype)
    kv = element if same_as_model(question.kv_dtype) else _cache_element(str(question.kv_dtype))
    layers = list(cache_layers(stage, question.parallel.tp))
    fixed = _fixed(resolved, stage, dtype)
    total = free_bytes(resolved.card, options.get("gpu_total_bytes")) if resolved.card else 0
    free = options.get("free_gpu_bytes")
    free = total - fixed.bytes if free is None else free
    return TrtllmRank(
        stage=stage,
        fixed=fixed,
        token_bytes=sum(count * layer.token_elements for layer, count in layers) * kv,
        state_bytes=sum(count * _state(layer, element) for layer, count in layers),
        pool_bytes=whole(free * options["free_gpu_memory_fraction"]) if resolved.card else 0,
    )


def _fixed(resolved: Resolved, stage: Stage, dtype: str) -> TrtllmTerms:
    question, options, model = resolved.question, resolved.options, resolved.model
    parallel, element = question.parallel, element_bytes(dtype)
    spread = spread_of("tensorrt_llm", parallel, options)
    storage = storage_of(model, quant=question.quant, dtype=dtype)
    pad = pad_of(tensorrt_llm_kernel(storage))
    loading = Loading(layout=cut(parallel.tp, ep=spread.experts, expert_tp=spread.each_expert, expert_pad=pad))
    width, tokens = widest_layer(stage, hidden=model.hidden, tp=parallel.tp), options["max_num_tokens"]
    rows = minimum(options["max_batch_size"], tokens) if stage.last else 0
    each = element + at(parse_version(resolved.version, "tensorrt_llm"), versions.LOGIT_BYTES)
    logits = named(rows, "rows") * named(model.vocab, "vocabulary") * bytes_(each)
    return TrtllmTerms(
        weights=weights_term(model, stage, loading, storage),
        activations=Term(name="activations", amount=named(tokens, "tokens") * width * bytes_(element), source=_SOURCE),
        logits=Term(name="logits", amount=logits, source=_SAMPLER),
        context=engine_start_term(resolved.card, parallel.model_ranks),
    )


def _memory(rank: TrtllmRank, resolved: Resolved, tokens: Number, wanted: Number) -> RankMemory:
    fixed = rank.fixed
    cache = Term(name="kv_cache", amount=named(tokens, "tokens") * bytes_(rank.token_bytes), source=_SOURCE)
    terms = (fixed.weights, cache, fixed.activations, fixed.logits, fixed.context)
    total = sum(term.bytes for term in terms)
    needed = total - cache.bytes + wanted
    return RankMemory(
        rank=rank.stage.name,
        instants=(Instant(name="serving", terms=terms),),
        allocated_bytes=total - fixed.context.bytes,
        reserved_bytes=total - fixed.context.bytes,
        device_bytes=total,
        needed_bytes=needed,
        claimed_bytes=total if resolved.card else needed,
    )


def _cache_element(name: str) -> float:
    return scaled_bytes(name) if name == "nvfp4" else element_bytes(name)


def _state(layer: CacheLayer, element: float) -> float:
    return layer.conv_elements * element + layer.state_elements * 4


def _error(resolved: Resolved, pool: Number) -> str:
    if resolved.card is None or is_array(pool) or pool > 0:
        return ""
    return "The available memory for the KV cache is negative: lower max_num_tokens or max_batch_size, or use more GPUs."
