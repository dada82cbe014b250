"""The arithmetic of one TensorRT-LLM answer: peak of the dummy run, free memory, blocks."""

import msgspec

from vramcast.hardware.runtime import engine_start_term
from vramcast.ledger import Instant, RankMemory, Term
from vramcast.models.sharding import cut
from vramcast.models.stages import Stage, distinct_stages
from vramcast.quantity import bytes_, named
from vramcast.serving.activations import widest_layer
from vramcast.serving.cache import CacheLayer, cache_layers
from vramcast.serving.engines.base import Answer, CachePlan, Resolved
from vramcast.serving.engines.layouts import spread_of
from vramcast.serving.engines.versions import Table, at, parse_version
from vramcast.serving.host import free_bytes
from vramcast.serving.precision import element_bytes, same_as_model
from vramcast.serving.splits import front_split
from vramcast.serving.storage import storage_of
from vramcast.serving.weights import Loading, weights_term

_SOURCE = "tensorrt_llm/_torch/pyexecutor/_util.py"
# fp32 logits beside the model's own, and the sampler's probabilities, which greedy requests such as the dummy ones need no longer
LOGIT_BYTES: Table[int] = (((0,), 8), ((1,), 4))


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One distinct rank: its terms beside the cache, bytes of one token and of one sequence's states, and its pool."""

    stage: Stage
    fixed: tuple[Term, ...]
    token_bytes: float
    state_bytes: float
    pool_bytes: int


def answer(resolved: Resolved) -> Answer:
    """Memory of each distinct rank, the blocks (the fewest over ranks), the limits and the start-up error."""
    options = resolved.options
    ranks = [_rank(resolved, stage) for stage in distinct_stages(resolved.model, resolved.question.parallel.pp, front_split)]
    narrow = min(ranks, key=lambda r: r.pool_bytes / max(1.0, r.token_bytes))
    block = options["tokens_per_block"]
    request = -(-resolved.context // block) * block * narrow.token_bytes + narrow.state_bytes
    pool = narrow.pool_bytes if resolved.card else round(request * resolved.concurrency)
    blocks = int(max(0, pool) // (block * narrow.token_bytes)) if narrow.token_bytes else 0
    tokens = min(blocks * block, options.get("max_tokens") or blocks * block)
    return Answer(
        resolved=resolved,
        ranks=tuple(_memory(rank, resolved, tokens, request) for rank in ranks),
        cache=CachePlan(
            bytes_per_token=round(narrow.token_bytes),
            request_bytes=round(request),
            pool_bytes=pool if blocks * block == tokens else round(tokens * narrow.token_bytes),
            tokens=tokens,
            concurrency=pool / request if request else float(resolved.concurrency),
            block_tokens=block,
            blocks=tokens // block,
            state_bytes=round(narrow.state_bytes),
        ),
        max_context=min(tokens, resolved.model.positions or tokens) if resolved.card else resolved.context,
        max_concurrency=pool / request if request else float(resolved.concurrency),
        start_error=_error(resolved, pool),
    )


def _rank(resolved: Resolved, stage: Stage) -> Rank:
    question, options = resolved.question, resolved.options
    dtype = question.dtype or ("bfloat16" if resolved.model.dtype == "float32" else resolved.model.dtype)
    element = element_bytes(dtype)
    kv = element if same_as_model(question.kv_dtype) else _cache_element(str(question.kv_dtype))
    layers = list(cache_layers(stage, question.parallel.tp))
    fixed = _fixed(resolved, stage, dtype)
    total = free_bytes(resolved.card, options.get("gpu_total_bytes")) if resolved.card else 0
    free = options.get("free_gpu_bytes") or total - sum(term.bytes for term in fixed)
    return Rank(
        stage=stage,
        fixed=fixed,
        token_bytes=sum(count * layer.token_elements for layer, count in layers) * kv,
        state_bytes=sum(count * _state(layer, element) for layer, count in layers),
        pool_bytes=round(free * options["free_gpu_memory_fraction"]) if resolved.card else 0,
    )


def _fixed(resolved: Resolved, stage: Stage, dtype: str) -> tuple[Term, ...]:
    """Weights, the dummy run's transient peak, logits, context."""
    question, options, model = resolved.question, resolved.options, resolved.model
    parallel, element = question.parallel, element_bytes(dtype)
    spread = spread_of("tensorrt_llm", parallel, options)
    loading = Loading(layout=cut(parallel.tp, ep=spread.experts, expert_tp=spread.each_expert))
    width = widest_layer(stage, hidden=model.hidden, tp=parallel.tp)
    tokens, rows = options["max_num_tokens"], min(options["max_batch_size"], options["max_num_tokens"])
    activations = Term(name="activations", amount=named(tokens, "tokens") * width * bytes_(element), source=_SOURCE)
    beside = at(parse_version(resolved.version, "tensorrt_llm"), LOGIT_BYTES)
    logits = Term(
        name="logits",
        bytes=round(rows * model.vocab * (element + beside)) if stage.last else 0,
        why=f"{rows:,} rows x {model.vocab:,} vocabulary x ({element:g} + {beside}) B",
        source="tensorrt_llm/_torch/pyexecutor/sampler.py greedy_search_sampling_batch",
    )
    return (
        weights_term(model, stage, loading, storage_of(model, quant=question.quant, dtype=dtype)),
        activations,
        logits,
        engine_start_term(resolved.card, parallel.model_ranks),
    )


def _memory(rank: Rank, resolved: Resolved, tokens: int, request: float) -> RankMemory:
    cache = Term(
        name="kv_cache",
        bytes=round(tokens * rank.token_bytes),
        why=f"{tokens:,} tokens x {rank.token_bytes:,.0f} B",
        source=_SOURCE,
    )
    terms = (rank.fixed[0], cache, *rank.fixed[1:])
    total = sum(term.bytes for term in terms)
    context = rank.fixed[-1].bytes
    needed = total - cache.bytes + round(request * resolved.concurrency)
    return RankMemory(
        rank=rank.stage.name,
        instants=(Instant(name="serving", terms=terms),),
        allocated_bytes=total - context,
        reserved_bytes=total - context,
        device_bytes=total,
        needed_bytes=needed,
        claimed_bytes=total if resolved.card else needed,
    )


def _cache_element(name: str) -> float:
    return 0.5 + 1 / 16 if name == "nvfp4" else element_bytes(name)


def _state(layer: CacheLayer, element: float) -> float:
    return layer.conv_elements * element + layer.state_elements * 4


def _error(resolved: Resolved, pool: int) -> str:
    if resolved.card is None or pool > 0:
        return ""
    return "The available memory for the KV cache is negative: lower max_num_tokens or max_batch_size, or use more GPUs."
