"""The arithmetic of one transformers answer: two instants per card, the end of the prefill and the last decoded token."""

from collections.abc import Iterator

import msgspec

from vramcast.hardware.runtime import context_bytes, context_term, cublas_workspace_bytes
from vramcast.largest import largest_of_each, largest_that_fits
from vramcast.ledger import Instant, RankMemory, Term
from vramcast.models.layers import Attention
from vramcast.models.sharding import Stage, every_stage
from vramcast.quantity import Number, bytes_, extent, is_array, is_nothing, maximum, minimum, named, where, whole
from vramcast.serving.engines.base import Answer, CachePlan, Resolved, Version, at, parse_version
from vramcast.serving.engines.layouts import front_split
from vramcast.serving.engines.transformers import versions
from vramcast.serving.engines.transformers.cache import CacheStorage
from vramcast.serving.engines.transformers.loaders import LOADERS, Loader
from vramcast.serving.engines.transformers.prefill import Pass, activations_term, logits_term, returned_term
from vramcast.serving.weights import Loading, same_as_model, storage_of, weights_term
from vramcast.units import element_bytes

_BEYOND_TOKENS = 2**20  # where the search for the longest sequence ends when no positions bound it


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved question as the numbers the rules take.

    ``loader``: what runs the model (generate, a pipeline ...). ``element``: bytes of one activation, ``kv_element`` of one
    element of the cache. ``batch``: rows, beams counted; ``prompt``: tokens of each, ``total``: with those that are generated.
    """

    resolved: Resolved
    version: Version
    loader: Loader
    dtype: str
    element: float
    kv_element: float
    batch: Number
    beams: int
    prompt: Number
    total: Number

    @property
    def holding(self) -> CacheStorage:
        """How this version's caches hold what they keep."""
        return CacheStorage(version=self.version, element=self.kv_element, activation=self.element)

    def prefill(self, tokens: Number) -> Pass:
        """The forward over that many tokens of each sequence."""
        options = self.resolved.options
        chunk = 1 if self.loader.by_token else options.get("prefill_chunk_size")
        return Pass(
            batch=self.batch,
            tokens=tokens if chunk is None else minimum(tokens, chunk),
            span=tokens,
            element=self.element,
            attention=options["attn_implementation"],
            score_bytes=self.loader.score_bytes,
            workspace_bytes=cublas_workspace_bytes(self.resolved.card),
        )


def answer(resolved: Resolved) -> Answer:
    """Memory of each card, the cache, and the longest sequence that fits a named card."""
    run = _run(resolved)
    cards = max(resolved.question.gpus, resolved.question.parallel.pp)
    stages = every_stage(resolved.model, min(cards, resolved.model.layers), front_split)
    placed = tuple((stage, _weights(run, stage)) for stage in stages)
    ranks = tuple(_memory(run, stage, weights) for stage, weights in placed)
    model_stage = every_stage(resolved.model, 1, front_split)[0]
    request = run.beams * whole(
        run.holding.cache_bytes(model_stage, run.total) + run.holding.cross_bytes(model_stage, resolved.model, run.prompt)
    )
    longest = _longest(run, placed) if resolved.limits else resolved.context
    return Answer(
        resolved=resolved,
        ranks=ranks,
        cache=CachePlan(
            bytes_per_token=round(run.holding.token_bytes(model_stage)),
            request_bytes=request,
            pool_bytes=request * resolved.concurrency,
            tokens=run.total * run.batch,
            concurrency=resolved.concurrency / 1,
            state_bytes=round(run.holding.state_bytes(model_stage)),
        ),
        max_context=longest,
        max_concurrency=resolved.concurrency / 1,
        at_once=resolved.concurrency / 1,
        wanted_bytes=request * resolved.concurrency,
        start_error=_error(resolved, ranks),
    )


def _run(resolved: Resolved) -> Run:
    question = resolved.question
    dtype = question.dtype or resolved.model.dtype
    element = element_bytes(dtype)
    prompt = question.prompt
    if prompt is None:
        prompt = resolved.context if question.output is None else 1
    return Run(
        resolved=resolved,
        version=parse_version(resolved.version, "transformers"),
        loader=LOADERS[resolved.options["loader"]],
        dtype=dtype,
        element=element,
        kv_element=element if same_as_model(question.kv_dtype) else element_bytes(str(question.kv_dtype)),
        batch=resolved.concurrency * _beams(resolved),
        beams=_beams(resolved),
        prompt=prompt,
        total=resolved.context,
    )


def _beams(resolved: Resolved) -> int:
    """Beams of each sequence: generate repeats its rows before the prefill (_expand_inputs_for_generation)."""
    return int(resolved.options.get("num_beams") or 1)


def _memory(run: Run, stage: Stage, weights: Term) -> RankMemory:
    instants = tuple(_instants(run, stage, weights))
    context = context_term(run.resolved.card)
    allocated = maximum(*(instant.bytes for instant in instants))
    reserved = _reserved(run, instants, allocated, context.bytes)
    return RankMemory(
        rank=stage.name,
        instants=tuple(Instant(name=i.name, terms=(*i.terms, context)) for i in instants),
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_bytes=reserved + context.bytes,
        needed_bytes=allocated + context.bytes,
        claimed_bytes=reserved + context.bytes,
    )


def _reserved(run: Run, instants: tuple[Instant, ...], allocated: Number, outside_bytes: int) -> Number:
    """What torch's allocator ends up holding: the prompt's layers and its logits live apart, each keeps its segments.

    Decoding grows into them. When that exceeds the card, unused segments are given back and what is allocated remains.
    """
    kinds: dict[str, Number] = {}
    for instant in instants:
        for term in instant.terms if instant.name != "decode" else ():
            kinds[term.name] = maximum(kinds.get(term.name, 0), term.bytes)
    reserved = maximum(allocated, sum(kinds.values()))
    card = run.resolved.card
    if card is None:
        return reserved
    room = card.visible_bytes - outside_bytes
    return where(reserved <= room, reserved, maximum(allocated, room))


def _instants(run: Run, stage: Stage, weights: Term) -> Iterator[Instant]:
    model = run.resolved.model
    full = run.loader.full_logits and at(run.version, versions.FULL_LOGITS)
    if run.loader.fuses_projections:
        yield Instant(name="load", terms=(weights, _fusing(run, stage)))
    step = run.prefill(run.prompt)
    cache = _cache_terms(run, stage, run.prompt, prefilled=True)
    yield Instant(name="prefill", terms=(weights, *cache, activations_term(model, stage, step), *_scratch(run, stage)))
    if stage.last:
        yield Instant(
            name="prompt logits", terms=(weights, *cache, logits_term(model, step, full=full, scored=run.beams > 1 and not full))
        )
    elif stage.first and full:
        yield Instant(name="logits returned", terms=(weights, *cache, returned_term(model, step)))
    last = msgspec.structs.replace(step, tokens=1, span=run.total)
    grown = _cache_terms(run, stage, run.total, held_twice=at(run.version, versions.TUPLE_CACHE) and run.loader.holds_old_cache)
    scored = logits_term(model, last, full=False, scored=run.beams > 1)
    yield Instant(name="decode", terms=(weights, *grown, scored))
    if run.beams > 1:
        yield Instant(name="beams reordered", terms=(weights, *grown, scored, _reordering(run, stage)))


def _weights(run: Run, stage: Stage) -> Term:
    model = run.resolved.model
    storage = storage_of(model, quant=run.resolved.question.quant, dtype=run.dtype)
    term = weights_term(model, stage, Loading(fuses=False), storage)
    extra = []
    if stage.last and model.tied and _head_apart(run):
        size = round(model.vocab * model.hidden * run.element)
        extra.append(Term(name="head", bytes=size, why="a tied head that this loader holds a second time"))
    if at(run.version, versions.ROTARY_PER_LAYER) and not run.loader.own_rotary:
        extra.append(_rotary_tables(run, stage))
    return Term.total("weights", (*term.terms, *extra), why=term.why, source=term.source) if extra else term


def _head_apart(run: Run) -> bool:
    """Whether a tied head is held twice: stored so and loaded so, or left behind by the fp8 loader (versions.FP8_UNTIES)."""
    model = run.resolved.model
    fp8 = (model.quantization or {}).get("quant_method") == "fp8" and at(run.version, versions.FP8_UNTIES)
    return fp8 or (run.loader.loads_stored_head and model.head_stored)


def _rotary_tables(run: Run, stage: Stage) -> Term:
    positions = run.resolved.model.positions
    widths = sum(n * m.head_dim for block, n in stage.blocks for m in block.mixers if isinstance(m, Attention) and m.rope_dim)
    why = f"cosines and sines of {positions:,} positions in every layer"
    return Term(name="rotary_tables", bytes=round(2 * widths * positions * run.element), why=why)


def _cache_terms(
    run: Run, stage: Stage, tokens: Number, *, held_twice: bool = False, prefilled: bool = False
) -> tuple[Term, ...]:
    reserved = run.loader.cache_reserved or run.resolved.options["cache_implementation"] == "static"
    held = run.total if reserved else tokens
    size = whole(run.batch * run.holding.cache_bytes(stage, held, prefilled=prefilled and not reserved))
    crossed = whole(run.batch * run.holding.cross_bytes(stage, run.resolved.model, run.prompt))

    def why() -> str:
        text = (named(run.batch, "") * named(held, "tokens") * bytes_(size / (run.batch * max(1, held)))).why
        text += ", and the copy each step makes before the old one is dropped" if held_twice else ""
        return text + (f", and {crossed:,} B of what the encoder read" if crossed else "")

    terms = [
        Term(name="kv_cache", bytes=size * (2 if held_twice else 1) + crossed, why=why, source="transformers cache_utils.py")
    ]
    state = whole(run.batch * run.holding.state_bytes(stage))
    if not is_nothing(state):
        own = named(run.batch, "sequences") * bytes_(
            run.holding.state_bytes(stage), "of convolution windows and recurrent states"
        )
        terms.append(Term(name="state", bytes=state, why=own))
    return tuple(terms)


def _reordering(run: Run, stage: Stage) -> Term:
    """Keys of one layer in the order of the beams that go on, beside those they are taken from."""
    layers = sum(count for block, count in stage.blocks if not block.shares_cache) or 1
    layer = run.batch * run.holding.cache_bytes(stage, run.total) / layers
    amount = named(run.batch, "rows of beams") * bytes_(layer / 2 / run.batch, "of a layer's keys")
    return Term(name="workspace", amount=amount, source="transformers cache_utils.py reorder_cache: index_select, layer by layer")


def _fusing(run: Run, stage: Stage) -> Term:
    """The fused q, k, v matrices of all layers, made while the separate ones are still referenced."""
    storage = storage_of(run.resolved.model, quant=run.resolved.question.quant, dtype=run.dtype)
    size = sum(
        storage.share_bytes(tensor, tensor.elements, block=block) * count
        for block, count in stage.blocks
        for tensor in block.tensors
        if tensor.role in ("q", "k", "v")
    )
    return Term(name="workspace", bytes=round(size), why="q, k and v copied into one matrix per layer", source=run.loader.source)


def _scratch(run: Run, stage: Stage) -> tuple[Term, ...]:
    if not run.loader.dequantizes:
        return ()
    largest = max((t.elements // t.copies for block, _ in stage.blocks for t in block.tensors), default=0)
    return (Term(name="workspace", bytes=round(largest * run.element), why="the largest matrix expanded to 16 bits"),)


def _longest(run: Run, placed: tuple[tuple[Stage, Term], ...]) -> Number:
    """The longest sequence that fits every card; the asked one when no card is named."""
    card = run.resolved.card
    if card is None:
        return run.resolved.context

    def peak(tokens: Number) -> Number:
        longer = msgspec.structs.replace(run, total=tokens, prompt=tokens)
        return maximum(*(i.bytes for stage, weights in placed for i in _instants(longer, stage, weights)))

    _, asked = extent(run.resolved.context)
    positions = run.resolved.model.positions
    most = positions if positions and asked <= positions else _BEYOND_TOKENS  # asked beyond the model: what the memory holds
    room = card.visible_bytes - context_bytes(card)
    if is_array(run.batch) or is_array(run.total):
        return largest_of_each(peak, room=room, most=most)
    return largest_that_fits(peak, room=room, most=most, first=most)


def _error(resolved: Resolved, ranks: tuple[RankMemory, ...]) -> str:
    card = resolved.card
    if card is None or any(is_array(rank.device_bytes) for rank in ranks):
        return ""
    if all(rank.device_bytes <= card.visible_bytes for rank in ranks):
        return ""
    return "torch.OutOfMemoryError: CUDA out of memory."
