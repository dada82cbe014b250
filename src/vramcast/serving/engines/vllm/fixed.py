"""Everything of a vLLM rank that is not cache: weights, LoRA slots, the profile run's two peaks, graphs, libraries, context.

A and B of every linear layer are allocated for each LoRA slot at load, whether or not an adapter is there (vllm/lora/layers).
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from vramcast.hardware.runtime import engine_start_term
from vramcast.ledger import Term
from vramcast.models.classes import model_class
from vramcast.models.inventory import STREAMS, Model, Tensor, by_identity
from vramcast.models.layers import LatentAttention
from vramcast.models.rotary import SECTION_ROWS
from vramcast.models.sharding import Stage, cut, every_stage, share, share_shape
from vramcast.quantity import Number, bytes_, is_array, maximum, minimum, named
from vramcast.serving.engines.base import Resolved, at
from vramcast.serving.engines.layouts import even_split, has_experts, pad_of
from vramcast.serving.engines.vllm import versions
from vramcast.serving.engines.vllm.graphs import Capture, flashinfer_workspace, graphs_term, reserve_term
from vramcast.serving.engines.vllm.profile import (
    Batch,
    crossed_images_term,
    encoder_term,
    forward_term,
    profiled_tokens,
    sampling_term,
    splits_towers,
)
from vramcast.serving.engines.vllm.settings import VllmSettings
from vramcast.serving.layers import has_states
from vramcast.serving.weights import VOCAB_MULTIPLE, Loading, Storage, storage_of, weights_term
from vramcast.units import GiB, gib

WORD_BITS = 32


class VllmTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of one rank beside its cache. ``logits`` is None on stages that do not sample, ``encoder`` without towers.

    ``reserve``: what a release that estimates its graphs holds back for them. ``unseen`` is allocated, and in no budget: LoRA
    slots of old versions, and ``states`` where only what the profile run itself allocated was counted.
    """

    weights: Term
    activations: Term
    logits: Term | None
    encoder: Term | None
    graphs: Term
    reserve: Term
    communication: Term
    context: Term
    unseen: Term | None = None
    states: Term | None = None

    @property
    def peak_bytes(self) -> Number:
        """The largest of the profile run's peaks."""
        return maximum(*(term.bytes for term in (self.activations, self.logits, self.encoder) if term))


_OF_THE_CACHE = ("gpu_memory_utilization", "kv_cache_memory_bytes", "num_gpu_blocks_override")


def _what_decides(resolved: Resolved, settings: VllmSettings, stage: Stage) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What the terms hang on: neither lengths nor a share of the card change them, and advice asks those."""
    plain = msgspec.structs.replace(settings, utilization=0.0, pool_override=None, blocks_override=None)
    options = tuple((name, value) for name, value in resolved.options.items() if name not in _OF_THE_CACHE)
    return (resolved.model, resolved.card, stage), (resolved.question.quant, plain, options)


@by_identity(decides=_what_decides, most=1024)  # some 5 kB each
def fixed_terms(resolved: Resolved, settings: VllmSettings, stage: Stage) -> VllmTerms:
    """The terms of one stage's ranks."""
    model, card = resolved.model, resolved.card
    towers = model.towers if settings.profiles_towers and stage.first else ()
    batch = Batch(
        version=settings.version,
        tokens=profiled_tokens(model, towers, settings.max_tokens, whole_image=settings.core == "V0"),
        rows=minimum(settings.max_seqs, settings.max_tokens),
        tp=settings.tp,
        expert_tp=settings.expert_tp,
        pp=settings.pp,
        element=settings.element,
        sampler=settings.sampler,
        dequantizes=settings.dequantizes,
        pixel_copies=2 if settings.core == "V0" and model_class(model.family).served.parsed_apart else 1,
        card=card,
        towers=towers,
        modular_experts=settings.expert_kernel is None or settings.expert_kernel.workspace,
    )
    weights, capture = _weights(resolved, settings, stage), _capture(resolved, settings)
    graphs = graphs_term(stage, capture, eager=settings.eager)
    return VllmTerms(
        weights=weights,
        activations=forward_term(model, stage, batch),
        logits=sampling_term(model, stage, batch) if stage.last and not settings.pools else None,
        encoder=_encoder(model, settings, batch),
        graphs=graphs,
        reserve=reserve_term(graphs, capture, second=settings.second_runner),
        communication=versions.non_torch_term(settings.version, card, tp=settings.tp, pp=settings.pp, weights=weights.bytes),
        context=engine_start_term(card, settings.world, expert_group=has_experts(model)),
        unseen=_unseen(resolved, settings, stage, capture),
        states=_states(model, settings) if at(settings.version, versions.COUNTS_ALL_USED) and stage.last else None,
    )


def _encoder(model: Model, settings: VllmSettings, batch: Batch) -> Term | None:
    """The peak of the encoder's run: of the V0 engine an image a sequence, where the decoder attends across."""
    crossed = crossed_images_term(model, batch.towers, settings.max_seqs, batch.element, batch.pixel)
    if settings.core == "V0" and crossed is not None:
        return crossed
    return encoder_term(model, batch.towers, batch.tokens, batch.element, batch.pixel, tp=batch.tp)


def _states(model: Model, settings: VllmSettings) -> Term | None:
    """Counts of drawn tokens and a mask of the prompt's, which penalties need: kept whether or not anybody asks for penalties."""
    if settings.pools or not settings.second_runner:
        return None
    rows, vocab = named(settings.max_seqs, "sequences"), named(model.vocab, "vocabulary")
    words = named(-(-model.vocab // WORD_BITS), "words of the mask")
    source = "vllm/v1/worker/gpu/sample/penalties.py; vllm-project/vllm#52718"
    return _workspace(Term(name="sampler_states", amount=rows * (vocab + words) * bytes_(4), source=source))


def _workspace(*parts: Term) -> Term | None:
    """What the profile run does not see: made before it and no weight, or after it."""
    return Term.total("workspace", parts) if parts else None


def _capture(resolved: Resolved, settings: VllmSettings) -> Capture:
    return Capture(
        version=settings.version,
        core=settings.core,
        max_seqs=settings.max_seqs,
        max_tokens=settings.max_tokens,
        tp=settings.tp,
        speculative=settings.demand.speculative,
        card=resolved.card,
        element=settings.element,
        lora=bool(resolved.options.get("enable_lora")),
        dequantizes=settings.dequantizes,
        flashinfer=settings.flashinfer,
        recurrent=has_states(resolved.model),
        pools=settings.pools,
        asked_largest=resolved.options.get("max_cudagraph_capture_size")
        or model_class(resolved.model.family).served.largest_capture,
    )


def _unseen(resolved: Resolved, settings: VllmSettings, stage: Stage, capture: Capture) -> Term | None:
    late = not at(settings.version, versions.LORA_IN_WEIGHTS)
    slots = slots_term(resolved.model, stage, resolved.options, settings) if late else ()
    states = None if at(settings.version, versions.COUNTS_ALL_USED) or not stage.last else _states(resolved.model, settings)
    warmed = (flashinfer_workspace(),) if capture.warmed else ()
    return _workspace(*slots, *(states.terms if states else ()), *warmed)


def _weights(resolved: Resolved, settings: VllmSettings, stage: Stage) -> Term:
    storage = storage_of(resolved.model, quant=resolved.question.quant, dtype=settings.dtype)
    options = resolved.options
    loading = Loading(
        layout=cut(
            settings.tp,
            ep=settings.ep,
            expert_tp=settings.expert_tp,
            vocab_multiple=VOCAB_MULTIPLE,
            expert_pad=pad_of(settings.expert_kernel),
        ),
        rotary_bytes=settings.element,
        mtp=settings.mtp,
        towers=settings.towers,
        splits_towers=splits_towers(resolved.model),
        speaks=False,
        expandable=bool(options.get("expandable_segments")),
        section_rows=SECTION_ROWS if at(settings.version, versions.LONG_SECTIONS) else 1,
    )
    term = weights_term(resolved.model, stage, loading, storage)
    slots = (
        *(slots_term(resolved.model, stage, options, settings) if at(settings.version, versions.LORA_IN_WEIGHTS) else ()),
        *_draft_term(settings, stage),
        *_tables_on_host(resolved.model, stage, loading, storage),
        *_absorbed_term(resolved.model, settings, stage, storage),
        *_buffers_term(resolved.model, settings, stage),
    )
    offload = min(term.bytes, round((options.get("cpu_offload_gb") or 0) * GiB))
    parts = (*term.terms, *slots)
    if offload:
        parts = (*parts, Term(name="offloaded", bytes=-offload, why="cpu_offload_gb: these weights stay in host memory"))
    away = offload - sum(slot.bytes for slot in slots if not is_array(slot.bytes) and slot.bytes < 0)
    why = f"{term.why}, less {gib(away)} in host memory" if away else term.why
    return Term.total("weights", parts, why=why, source=term.source) if len(parts) > len(term.terms) else term


def _tables_on_host(model: Model, stage: Stage, loading: Loading, storage: Storage) -> Iterator[Term]:
    """Tables of n-grams, which vLLM looks up in pinned host memory unless it is told ``--engram-config.cpu_offload false``.

    Source: vllm/config/engram.py of 0.33.0 (cpu_offload True), docs/features/engram.md, vllm-project/vllm#56512.
    """
    inside = (
        count * storage.share_bytes(tensor, share(tensor, loading.layout), block=block)
        for block, count in stage.blocks
        for tensor in block.tensors
        if tensor.name.endswith("ngram_embedding.weight")
    )
    beside = (
        storage.share_bytes(tensor, tensor.elements, side=True)
        for tower in model.towers
        if tower.kind == "engram" and stage.first and loading.towers
        for tensor in tower.tensors
        if tensor.role == "embedding"
    )
    size = round(sum(inside) + sum(beside))
    if size:
        why = f"{gib(size)} are looked up in pinned host memory (--engram-config.cpu_offload is true)"
        yield Term(name="tables on the host", bytes=-size, why=why, source="vllm/config/engram.py of 0.33.0")


def _draft_term(settings: VllmSettings, stage: Stage) -> tuple[Term, ...]:
    """Weights of the draft model, cut over the same tensor-parallel ranks."""
    if settings.draft is None or not stage.last:
        return ()
    whole = every_stage(settings.draft, 1, even_split)[0]
    layout = cut(settings.tp, vocab_multiple=VOCAB_MULTIPLE)
    loading = Loading(layout=layout, rotary_bytes=settings.element)
    term = weights_term(settings.draft, whole, loading, storage_of(settings.draft, quant=None, dtype=settings.dtype))
    return (term.renamed("draft_model"),)


def _absorbed_term(model: Model, settings: VllmSettings, stage: Stage, storage: Storage) -> tuple[Term, ...]:
    """What latent attention keeps multiplied out or dequantised beside the checkpoint's projections.

    0.7 multiplied query with key and value with output. Since, halves of kv_b_proj are views of it, of a copy in the activations'
    type where it is quantised (MLACommonImpl.process_weights_after_loading, get_and_maybe_dequant_weights).
    """
    if not settings.caches_latent:
        return ()
    if at(settings.version, versions.ABSORBS_LATENT):
        what, elements = "multiplied-out latent projections", _multiplied_out(model, settings, stage)
    else:
        what, elements = "dequantised kv_b_proj", _dequantised_latent(settings, stage, storage)
    why = f"{elements:,} elements of {what} x {settings.element:g} B"
    return (Term(name="absorbed", bytes=round(elements * settings.element), why=why),) if elements else ()


def _buffers_term(model: Model, settings: VllmSettings, stage: Stage) -> Iterator[Term]:
    """What a model's class makes for every batch while it is built: chosen tokens of its indexers, streams for a draft to read.

    Source: vllm/model_executor/models/deepseek_v2.py and vllm/models/deepseek_v4 (topk_indices_buffer, _mtp_hidden_buffer).
    """
    mixers = (mixer for block, _ in stage.blocks for mixer in block.mixers if isinstance(mixer, LatentAttention))
    chosen = max((mixer.indexer.top_k for mixer in mixers if mixer.indexer), default=0)
    streams = round(model.facts.get(STREAMS, 0)) if stage.last else 0
    width = round(chosen * 4 + streams * model.hidden * settings.element)
    if width:
        yield Term(name="buffers", amount=named(settings.max_tokens, "tokens") * bytes_(width))


def _multiplied_out(model: Model, settings: VllmSettings, stage: Stage) -> int:
    """Queries to latent and rotary widths, latent to the hidden width."""
    elements = 0
    for block, count in stage.blocks:
        for mixer in block.mixers:
            if isinstance(mixer, LatentAttention):
                queries = (mixer.query_rank or model.hidden) * (mixer.kv_rank + mixer.rope_dim)
                elements += count * mixer.heads // settings.tp * (queries + mixer.kv_rank * model.hidden)
    return elements


def _dequantised_latent(settings: VllmSettings, stage: Stage, storage: Storage) -> int:
    """Elements of kv_b_proj on this rank, of layers that store it in fewer bits than activations have."""
    plain, total = settings.element, 0
    for block, count in stage.blocks:
        for tensor in block.tensors:
            if tensor.name.endswith("kv_b_proj.weight"):
                held = share(tensor, cut(settings.tp))
                total += held * count * (storage.share_bytes(tensor, held, block=block) < 0.9 * held * plain)
    return total


_TARGETS = frozenset({"q", "k", "v", "qkv", "o", "gate", "up", "gate_up", "down"})
DEFAULT_RANK = 16  # vllm/config/lora.py


def slots_term(model: Model, stage: Stage, options: dict[str, object], settings: VllmSettings) -> tuple[Term, ...]:
    """Bytes of all slots: max_loras * rank * (inputs + outputs) of each target (vllm/lora/layers create_lora_weights)."""
    if not options.get("enable_lora"):
        return ()
    slots, rank = int(str(options.get("max_loras") or 1)), int(str(options.get("max_lora_rank") or DEFAULT_RANK))
    width = sum(count * sum(_width(t, settings.tp) for t in block.tensors if _targeted(t)) for block, count in stage.blocks)
    if at(settings.version, versions.EMBEDDING_SLOTS) and model_class(model.family).served.embedding_slots:
        width += (stage.first + stage.last) * (model.vocab + model.hidden)
    why = f"{slots} slot(s) x rank {rank} x {width:,} inputs and outputs x {settings.element:g} B"
    return (Term(name="lora_slots", bytes=round(slots * rank * width * settings.element), why=why, source="vllm/lora/layers"),)


def _targeted(tensor: Tensor) -> bool:
    return tensor.role in _TARGETS and len(tensor.shape) == 2


def _width(tensor: Tensor, tp: int) -> int:
    return sum(share_shape(tensor, cut(tp)))
