"""One llama.cpp process on paper, and its answer: a ledger per GPU, the cache plan, what fits, what --fit would reduce."""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import context_bytes, context_term
from vramcast.largest import largest_of_each, largest_that_fits
from vramcast.ledger import Instant, RankMemory, Term
from vramcast.models.inventory import Model
from vramcast.quantity import Number, is_array, is_nothing, minimum
from vramcast.serving.engines.base import Answer, CachePlan, Resolved
from vramcast.serving.engines.llama_cpp.cache import CacheRules, layer_bytes, state_bytes
from vramcast.serving.engines.llama_cpp.loading import PlacedModel, place_model, summed, weights_term
from vramcast.serving.engines.llama_cpp.reserve import compute_bytes
from vramcast.serving.engines.llama_cpp.settings import LlamaSettings, latent_layout, settings_of
from vramcast.serving.engines.llama_cpp.stored import Part, file_parts
from vramcast.units import MiB

_LEAST_CONTEXT = 256


class DevicePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes by device, the host last."""

    weights: tuple[int, ...]
    cache: tuple[Number, ...]
    state: tuple[Number, ...]
    compute: tuple[Number, ...]
    output_bytes: Number
    file_bytes: int

    def device(self, index: int) -> Number:
        """Everything one device holds, its context apart."""
        return self.weights[index] + self.cache[index] + self.state[index] + self.compute[index]


def plan_of(placed: PlacedModel, settings: LlamaSettings, *, graphs: bool = True) -> DevicePlan:
    """What a process with these settings allocates; without ``graphs`` their buffers count nothing, which is much quicker."""
    host = settings.placement.host
    return DevicePlan(
        weights=placed.weights,
        cache=summed(host, ((home, count * layer_bytes(block, settings.cache)) for block, home, count in placed.caches)),
        state=summed(host, ((home, count * state_bytes(block, settings.cache)) for block, home, count in placed.caches)),
        compute=tuple(compute_bytes(placed, settings)) if graphs else (0,) * len(placed.weights),
        output_bytes=placed.model.vocab * 4 * settings.cache.sequences,
        file_bytes=placed.file_bytes,
    )


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One llama.cpp process on paper: settings, the tensors of its file, where they lie, and what each device then holds."""

    settings: LlamaSettings
    parts: tuple[Part, ...]
    placed: PlacedModel
    plan: DevicePlan


def process_of(resolved: Resolved, name: str, *, graphs: bool = True) -> Process:
    """The process that a resolved question starts; without ``graphs`` a plan that needs no more than the whole one."""
    options, model = resolved.options, resolved.model
    layout = latent_layout(name, options.get("latent_layout"))
    counts = options.get("tensor_types")
    parts = file_parts(
        model,
        resolved.question.quant,
        latent=layout,
        counts=tuple(counts.items()) if counts else (),
        file_bytes=int(options.get("file_bytes") or 0),
    )
    settings = settings_of(resolved, name)
    placed = place_model(model, parts, settings.placement, cache_on_host=settings.cache_on_host, repacked=settings.repacked)
    return Process(settings=settings, parts=parts, placed=placed, plan=plan_of(placed, settings, graphs=graphs))


def answer(resolved: Resolved, name: str, *, spare_bytes: int = 0) -> Answer:
    """Memory of each GPU, of the host when it holds layers, the cache plan and the limits, which leave ``spare_bytes``."""
    process = process_of(resolved, name)
    gpus, plan = process.settings.placement.gpus, process.plan
    ranks = [_memory(process, resolved, device) for device in range(gpus)] or [_memory(process, resolved, 0)]
    pool, context = sum(plan.cache), process.settings.cache.context
    per_token = _per_token(process, resolved)
    sequences = process.settings.cache.sequences
    capacity = context if process.settings.cache.unified else context // sequences
    card, asks = resolved.card, resolved.limits
    longest = longest_context(resolved, process, card, spare_bytes=spare_bytes) if card and asks else capacity
    return Answer(
        resolved=resolved,
        ranks=tuple(ranks),
        cache=CachePlan(
            bytes_per_token=per_token,
            request_bytes=pool if process.settings.cache.unified else pool // sequences,
            pool_bytes=pool,
            tokens=process.settings.cache.cells,
            concurrency=sequences / 1,
            block_tokens=1,
            blocks=process.settings.cache.cells,
            state_bytes=sum(plan.state) // sequences,
        ),
        max_context=longest,
        max_concurrency=sequences / 1,
        at_once=sequences / 1,
        wanted_bytes=pool,
        start_error=_error(ranks, resolved.card),
    )


def _memory(process: Process, resolved: Resolved, device: int) -> RankMemory:
    plan, gpus = process.plan, process.settings.placement.gpus
    name = f"gpu {device}" if gpus else "host"
    extra = _beside(resolved, device)
    terms = [
        weights_term(process.parts, process.settings.placement, device, beside_bytes=extra),
        Term(name="kv_cache", bytes=plan.cache[device], why=lambda: _cache_why(process, device), source="src/llama-kv-cache.cpp"),
        Term(name="activations", bytes=plan.compute[device], why=lambda: _compute_why(process), source="ggml/src/ggml-alloc.c"),
    ]
    if not is_nothing(plan.state[device]):
        why, source = _state_why(process), "src/llama-memory-recurrent.cpp"
        terms.insert(2, Term(name="state", bytes=plan.state[device], why=why, source=source))
    if gpus:
        terms.append(context_term(resolved.card))
    held = sum(t.bytes for t in terms)
    inside = plan.device(device) + extra
    return RankMemory(
        rank=name,
        instants=(Instant(name="serving", terms=tuple(terms)),),
        allocated_bytes=inside,
        reserved_bytes=inside,
        device_bytes=held,
        needed_bytes=held,
        claimed_bytes=held,
    )


def _beside(resolved: Resolved, device: int) -> int:
    if device:
        return 0
    return sum(int(resolved.options.get(name) or 0) for name in ("mmproj_bytes", "draft_model_bytes"))


def _cache_why(process: Process, device: int) -> str:
    cache = process.settings.cache
    shape = "one pool" if cache.unified else f"{cache.sequences} streams"
    each = process.plan.cache[device] / max(1, cache.cells)
    return f"{cache.cells:,} cells in {shape} x {each:,.6g} B, keys {cache.key_type}, values {cache.value_type}"


def _state_why(process: Process) -> str:
    cache = process.settings.cache
    return f"f32 rows for {cache.sequences} sequences x (1 + {cache.draft_tokens} draft tokens)"


def _compute_why(process: Process) -> str:
    cache = process.settings.cache
    tokens = min(cache.context, process.settings.micro_batch)
    return f"the graph of {tokens:,} tokens over {cache.stream_cells:,} cells, allocated on paper as ggml does"


def _per_token(process: Process, resolved: Resolved) -> int:
    near, far = (_sequence_bytes(resolved.model, process.settings.cache, tokens) for tokens in (2**20, 2**20 + 1024))
    return (far - near) // 1024


def _sequence_bytes(model: Model, cache: CacheRules, tokens: int) -> int:
    rules = msgspec.structs.replace(cache, context=tokens, sequences=1, unified=True)
    return sum(block.count * layer_bytes(block, rules) for block in model.blocks)


def longest_context(resolved: Resolved, process: Process, card: Accelerator, *, spare_bytes: int = 0) -> Number:
    """The longest context that every GPU holds, compute buffers grown with it, a multiple of 256 tokens.

    ``spare_bytes``: what has to stay free on each.
    """

    def held(steps: Number) -> Number:
        return card.visible_bytes - margin_bytes(resolved, process, card, steps * _LEAST_CONTEXT)

    most, room = (resolved.model.positions or 2**20) // _LEAST_CONTEXT, card.visible_bytes - spare_bytes
    if is_array(process.settings.cache.sequences) or is_array(process.settings.cache.context):
        return largest_of_each(held, room=room, most=most) * _LEAST_CONTEXT
    return largest_that_fits(held, room=room, most=most, first=most) * _LEAST_CONTEXT


def margin_bytes(resolved: Resolved, process: Process, card: Accelerator, context: Number) -> Number:
    """Bytes left on the fullest GPU at that context."""
    cache = msgspec.structs.replace(process.settings.cache, context=context)
    plan = plan_of(process.placed, msgspec.structs.replace(process.settings, cache=cache))
    room = card.visible_bytes - context_bytes(card)
    gpus = process.settings.placement.gpus
    left = [room - plan.device(i) - _beside(resolved, i) for i in range(gpus)]
    return minimum(*left) if left else 0


def _error(ranks: list[RankMemory], card: Accelerator | None) -> str:
    """What ggml prints when a buffer cannot be had: the first that does not fit, in the order of allocation."""
    if card is None or any(is_array(rank.device_bytes) for rank in ranks):
        return ""
    for device, rank in enumerate(ranks):
        left = card.visible_bytes - sum(t.bytes for t in rank.instants[0].terms if t.name == "context")
        for term in rank.instants[0].terms:
            if term.name != "context" and term.bytes > left:
                if card.vendor == "Apple":  # ggml-metal-device.m, ggml_metal_buffer_init
                    return f"error: failed to allocate buffer, size = {term.bytes / MiB:.2f} MiB"
                return f"allocating {term.bytes / MiB:.2f} MiB on device {device}: cudaMalloc failed: out of memory"
            left -= 0 if term.name == "context" else term.bytes
    return ""
