"""text-generation-inference's answers: what nine tenths of the card leave after a warm-up of one full prefill becomes cache.

Source: server/text_generation_server/models/flash_causal_lm.py warmup: blocks = (free - (1 - fraction x TGI_WIGGLE_ROOM) x total)
// a block's bytes, after a prefill of max_batch_prefill_tokens, plus the blocks of that prefill. Blocks are single tokens under
flashinfer, whose cache is not rounded. CUDA graphs (batches of 1 to 32) are captured afterwards, in the tenth that is left over.
"""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import engine_start_term
from vramcast.ledger import Term
from vramcast.models.inventory import Model
from vramcast.models.sharding import Stage, cut
from vramcast.quantity import bytes_, maximum, named, whole
from vramcast.serving.engines.base import Answer, Resolved, at, free_bytes, parse_version
from vramcast.serving.engines.options import Option
from vramcast.serving.engines.pool import Pool, Rules, answered, of_states, per_token
from vramcast.serving.engines.resolving import context_of, opened, resolved
from vramcast.serving.engines.tgi import versions
from vramcast.serving.engines.tgi.options import OPTIONS
from vramcast.serving.layers import widest_layer
from vramcast.serving.weights import Loading, loaded_dtype, same_as_model, storage_of, weights_term
from vramcast.units import element_bytes
from vramcast.workload import Serving

_WARMUP = "text-generation-inference flash_causal_lm.py warmup"
_REFUSAL = "Not enough memory to handle the prefill tokens. You need to decrease `--max-batch-prefill-tokens`"


class Tgi(msgspec.Struct, frozen=True):
    """The engine; see base.Engine for the two questions it answers."""

    name: str = "tgi"
    versions: tuple[str, ...] = versions.VERSIONS
    options: tuple[Option, ...] = OPTIONS

    def resolve(self, question: Serving, model: Model, card: Accelerator | None) -> Resolved:
        """The question with the launcher's defaults filled in."""
        defaults, version, number = opened(self, question, model)
        tokens, because = versions.prefill_tokens(number, model, card, question.parallel.tp)
        defaults.take("max_batch_prefill_tokens", tokens, because)
        defaults.take("cuda_memory_fraction", 1.0, "default of that version")
        context = context_of(question, model, defaults)
        return resolved(question, model, card, defaults, version=version, context=context)

    def forecast(self, resolved: Resolved) -> Answer:
        """Memory of each distinct rank, the blocks, the limits and the start-up error."""
        most = resolved.options.get("max_batch_total_tokens")
        return answered(resolved, Rules(rank=_rank, block=1, most=most, source=_WARMUP, refusal=_REFUSAL))


def _rank(resolved: Resolved, stage: Stage) -> Pool:
    question, options, number = resolved.question, resolved.options, parse_version(resolved.version, "tgi")
    dtype = loaded_dtype(resolved.model, question.dtype, resolved.card)
    element, tp = element_bytes(dtype), question.parallel.tp
    cached = element if same_as_model(question.kv_dtype) else element_bytes(str(question.kv_dtype))
    terms = _terms(resolved, stage, dtype, at(number, versions.WARMS_UP_ALL_LOGITS))
    pool = 0
    if resolved.card is not None:
        total = free_bytes(resolved.card)
        share = options["cuda_memory_fraction"] * at(number, versions.WIGGLE_ROOM)
        pool = whole(total * share - sum(term.bytes for term in terms))
    return Pool(
        stage=stage,
        terms=terms,
        token_bytes=per_token(stage, tp, cached),
        state_bytes=of_states(stage, tp, element),
        pool_bytes=pool,
    )


def _terms(resolved: Resolved, stage: Stage, dtype: str, all_logits: bool) -> tuple[Term, ...]:
    """Weights, the warm-up's peak and its logits, flashinfer's workspace, the context."""
    question, model, element = resolved.question, resolved.model, element_bytes(dtype)
    tp, tokens = question.parallel.tp, resolved.options["max_batch_prefill_tokens"]
    storage = storage_of(model, quant=question.quant, dtype=dtype)
    width = widest_layer(stage, hidden=model.hidden, tp=tp)
    prompts = maximum(1, -(-tokens // (resolved.options.get("max_input_tokens") or resolved.context)))
    rows = tokens if all_logits else prompts
    gathered = 1 + (1 / tp if tp > 1 else 0)  # the head's own part, and what it is gathered into
    logits = named(rows, "rows") * named(model.vocab, "vocabulary") * bytes_(gathered * element + (0 if all_logits else 4))
    return (
        weights_term(model, stage, Loading(layout=cut(tp)), storage),
        Term(name="activations", amount=named(tokens, "tokens") * width * bytes_(element), source=_WARMUP),
        Term(name="logits", amount=logits, source="text-generation-inference layers/tensor_parallel.py TensorParallelHead"),
        Term(name="workspace", amount=bytes_(versions.WORKSPACE_BYTES), source="layers/attention/flashinfer.py get_workspace"),
        engine_start_term(resolved.card, question.parallel.model_ranks),
    )
