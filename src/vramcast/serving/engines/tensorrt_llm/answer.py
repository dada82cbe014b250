"""The arithmetic of one TensorRT-LLM answer: peak of the dummy run, free memory, blocks."""

from vramcast.hardware.runtime import engine_start_term
from vramcast.ledger import Term
from vramcast.models.sharding import Stage, cut
from vramcast.quantity import bytes_, minimum, named, whole
from vramcast.serving.engines.base import Answer, Resolved, at, free_bytes, parse_version
from vramcast.serving.engines.layouts import pad_of, spread_of, tensorrt_llm_kernel
from vramcast.serving.engines.pool import Pool, Rules, answered, of_states, per_token
from vramcast.serving.engines.tensorrt_llm import versions
from vramcast.serving.layers import widest_layer
from vramcast.serving.weights import Loading, loaded_dtype, same_as_model, scaled_bytes, storage_of, weights_term
from vramcast.units import element_bytes

_SOURCE = "tensorrt_llm/_torch/pyexecutor/_util.py"
_SAMPLER = "tensorrt_llm/_torch/pyexecutor/sampler.py greedy_search_sampling_batch"
_REFUSAL = "The available memory for the KV cache is negative: lower max_num_tokens or max_batch_size, or use more GPUs."


def answer(resolved: Resolved) -> Answer:
    """The answer of a pool of blocks of ``tokens_per_block`` tokens, held to ``max_tokens`` where that is set."""
    options = resolved.options
    rules = Rules(rank=_rank, block=options["tokens_per_block"], most=options.get("max_tokens"), source=_SOURCE, refusal=_REFUSAL)
    return answered(resolved, rules)


def _rank(resolved: Resolved, stage: Stage) -> Pool:
    question, options = resolved.question, resolved.options
    dtype = loaded_dtype(resolved.model, question.dtype, resolved.card)
    element = element_bytes(dtype)
    kv = element if same_as_model(question.kv_dtype) else _cache_element(str(question.kv_dtype))
    terms = _terms(resolved, stage, dtype)
    total = free_bytes(resolved.card, options.get("gpu_total_bytes")) if resolved.card else 0
    free = options.get("free_gpu_bytes")
    free = total - sum(term.bytes for term in terms) if free is None else free
    return Pool(
        stage=stage,
        terms=terms,
        token_bytes=per_token(stage, question.parallel.tp, kv),
        state_bytes=of_states(stage, question.parallel.tp, element),
        pool_bytes=whole(free * options["free_gpu_memory_fraction"]) if resolved.card else 0,
    )


def _terms(resolved: Resolved, stage: Stage, dtype: str) -> tuple[Term, ...]:
    """Weights, the dummy run's transient peak and its logits, the context."""
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
    return (
        weights_term(model, stage, loading, storage),
        Term(name="activations", amount=named(tokens, "tokens") * width * bytes_(element), source=_SOURCE),
        Term(name="logits", amount=logits, source=_SAMPLER),
        engine_start_term(resolved.card, parallel.model_ranks),
    )


def _cache_element(name: str) -> float:
    return scaled_bytes(name) if name == "nvfp4" else element_bytes(name)
