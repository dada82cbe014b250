"""LMDeploy's answers: a share of what is free once weights are loaded becomes cache; the rest is for the forward pass.

Source: src/turbomind/turbomind.cc CreateEngine (0.16.0, 1263d5cd8) and models/llama/BlockManager.cc before 0.15: cache bytes =
free x cache_max_entry_count, measured with weights on the card and before its buffers are made. A quantised cache keeps a scale
and a zero of 2 B beside each head's key and value (models/llama/unified_attention_layer.cc BlockConfig, engine/block.h).
"""

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import engine_start_term
from vramcast.ledger import Term
from vramcast.models.inventory import Model
from vramcast.models.sharding import Stage, cut
from vramcast.quantity import bytes_, minimum, named, whole
from vramcast.serving.engines.base import Answer, Resolved, free_bytes
from vramcast.serving.engines.lmdeploy.options import OPTIONS
from vramcast.serving.engines.options import Option
from vramcast.serving.engines.pool import Pool, Rules, answered, of_states, per_token
from vramcast.serving.engines.resolving import context_of, opened, resolved
from vramcast.serving.layers import widest_layer
from vramcast.serving.weights import Loading, loaded_dtype, same_as_model, storage_of, weights_term
from vramcast.units import element_bytes
from vramcast.workload import Serving

_SOURCE = "lmdeploy src/turbomind/turbomind.cc CreateEngine"
_REFUSAL = "the forward pass has no room beside weights and cache: lower cache_max_entry_count or max_prefill_token_num"
_CARD_BATCHES = (
    ("A100", 384),
    ("A800", 384),
    ("H100", 1024),
    ("H800", 1024),
    ("H200", 1024),
)  # lmdeploy/utils.py get_max_batch_size
_OTHER_BATCH = 128
_SCALES_BYTES = 4  # a scale and a zero in 16 bits
_QUANTISED = {0: 0.0, 4: 0.5, 8: 1.0}


class Lmdeploy(msgspec.Struct, frozen=True):
    """The engine; see base.Engine for the two questions it answers."""

    name: str = "lmdeploy"
    versions: tuple[str, ...] = ("0.2.1", "0.16.0")
    options: tuple[Option, ...] = OPTIONS

    def resolve(self, question: Serving, model: Model, card: Accelerator | None) -> Resolved:
        """The question with the engine's defaults filled in. Raises QuestionError for its PyTorch engine and other caches."""
        defaults, version, _ = opened(self, question, model)
        if defaults.take("backend", "turbomind", "default of that version") == "pytorch":
            raise QuestionError("no memory rules are known for LMDeploy's PyTorch engine: --backend turbomind, or --engine vllm")
        if not same_as_model(question.kv_dtype):
            raise QuestionError(f"TurboMind takes no cache of {question.kv_dtype}: --quant-policy 8 or 4 quantises its cache")
        if defaults.take("quant_policy", 0, "default of that version") not in _QUANTISED:
            raise QuestionError(f"quant_policy is {defaults.values['quant_policy']}: TurboMind takes 0, 4 or 8")
        batch = next((size for name, size in _CARD_BATCHES if card is not None and name in card.name), _OTHER_BATCH)
        defaults.take("max_batch_size", batch, "LMDeploy's for that card")
        for name, value in (("cache_max_entry_count", 0.8), ("cache_block_seq_len", 64), ("max_prefill_token_num", 8192)):
            defaults.take(name, value, "default of that version")
        context = context_of(question, model, defaults)
        return resolved(question, model, card, defaults, version=version, context=context)

    def forecast(self, resolved: Resolved) -> Answer:
        """Memory of each distinct rank, the blocks, the limits and the start-up error."""
        block = resolved.options["cache_block_seq_len"]
        return answered(resolved, Rules(rank=_rank, block=block, most=None, source=_SOURCE, refusal=_REFUSAL))


def _rank(resolved: Resolved, stage: Stage) -> Pool:
    question, options = resolved.question, resolved.options
    dtype = loaded_dtype(resolved.model, question.dtype, resolved.card)
    element, tp = element_bytes(dtype), question.parallel.tp
    bits = _QUANTISED[options["quant_policy"]]
    weights, *others = _terms(resolved, stage, dtype)
    *passing, context = others
    pool = 0
    if resolved.card is not None:
        free = free_bytes(resolved.card) - weights.bytes - context.bytes
        pool = whole(free * options["cache_max_entry_count"])
        if free - pool < sum(term.bytes for term in passing):  # it starts, and fails at its first full prefill
            pool = 0
    return Pool(
        stage=stage,
        terms=(weights, *others),
        token_bytes=per_token(stage, tp, bits or element, scales=_SCALES_BYTES if bits else 0.0),
        state_bytes=of_states(stage, tp, element),
        pool_bytes=pool,
    )


def _terms(resolved: Resolved, stage: Stage, dtype: str) -> tuple[Term, ...]:
    """Weights, one full prefill, the logits of a batch, the context."""
    question, options, model = resolved.question, resolved.options, resolved.model
    element, tp, tokens = element_bytes(dtype), question.parallel.tp, options["max_prefill_token_num"]
    storage = storage_of(model, quant=question.quant, dtype=dtype)
    width = widest_layer(stage, hidden=model.hidden, tp=tp)
    rows = minimum(options["max_batch_size"], tokens) if stage.last else 0
    logits = named(rows, "rows") * named(model.vocab, "vocabulary") * bytes_(element + 4)
    return (
        weights_term(model, stage, Loading(layout=cut(tp)), storage),
        Term(name="activations", amount=named(tokens, "tokens") * width * bytes_(element), source=_SOURCE),
        Term(name="logits", amount=logits, source="lmdeploy src/turbomind/models/language_model.cc; sampling in float32"),
        engine_start_term(resolved.card, question.parallel.model_ranks),
    )
