"""Everything of a vLLM rank that is not cache: weights, LoRA slots, the profile run's two peaks, graphs, libraries, context.

A and B of every linear layer are allocated for each LoRA slot at load, whether or not an adapter is there (vllm/lora/layers).

CUDA graphs take a private pool plus the nodes of every kernel launched, per layer, graph and capture mode. The constants are read
off start-up logs: bytes of a node from those of 0.19 (8 to 80 layers lie on one line) and, for the V0 engine, from nine starts of
0.7 to 0.9 on four cards, where LoRA and bitsandbytes launch their own kernels. On Hopper whole decode graphs also keep
FlashAttention-3's partial outputs of the largest batch, fp32 for each of 32 splits of the context
(v1/attention/backends/flash_attn.py, flash_attn_max_num_splits_for_cuda_graph): the part that tensor parallelism cuts.
"""

from collections.abc import Iterator

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import cublas_workspace_bytes, engine_start_term
from vramcast.ledger import Term
from vramcast.models.classes import model_class
from vramcast.models.inventory import Model, Tensor
from vramcast.models.layers import Attention, Experts, LatentAttention
from vramcast.models.rotary import SECTION_ROWS
from vramcast.models.sharding import Stage, cut, every_stage, share, share_shape
from vramcast.quantity import Number, bytes_, is_nothing, maximum, minimum, named, where
from vramcast.serving.engines.base import Fitted, Resolved, Version, at
from vramcast.serving.engines.layouts import even_split, has_experts, pad_of
from vramcast.serving.engines.vllm import versions
from vramcast.serving.engines.vllm.profile import (
    Batch,
    encoder_term,
    forward_term,
    profiled_tokens,
    sampling_term,
    splits_towers,
    widest_slice,
)
from vramcast.serving.engines.vllm.settings import VllmSettings
from vramcast.serving.weights import VOCAB_MULTIPLE, Loading, Storage, storage_of, weights_term
from vramcast.units import GiB, KiB, MiB, gib

NODE_KIB = Fitted(19.4, 42, "start-up logs of 0.19, 8 to 80 layers on one line")
# kernels of one decoded layer: fused by torch.compile, as written (V0), and what routed experts launch more
COMPILED, EAGER, ROUTED = 8, 11, 3
# shrink and expand of the four adapted linear layers; slices dequantised, multiplied and copied rather than four products
LORA, DEQUANTIZED = 8, 12
SPLITS = 32
ACCUMULATOR_BYTES = 4
# v1/attention/backends/flashinfer.py: one float workspace, and a wrapper with its integer workspace for every decode size
FLASHINFER_WORKSPACE = 394 * MiB
FLASHINFER_WRAPPER = 8 * MiB
LARGEST = 512
STEP = 8
WIDE_FROM = 256


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the graphs of one rank; ``max_seqs`` and ``max_tokens`` may be arrays, one element per layout.

    ``core``: V0 or V1; ``speculative``: tokens drafted per step; ``element``: bytes of one activation; ``lora``:
    adapters' kernels are launched; ``dequantizes``: bitsandbytes' are; ``flashinfer``: attention is its; ``asked_largest``: what
    is asked for or the class sets whatever the sequences are, 0: nothing (models/config.py GptOssForCausalLMConfig).
    """

    version: Version
    max_seqs: Number
    max_tokens: Number
    core: str = "V1"
    tp: int = 1
    speculative: int = 0
    card: Accelerator | None = None
    element: float = 2
    lora: bool = False
    dequantizes: bool = False
    flashinfer: bool = False
    asked_largest: int = 0

    @property
    def largest(self) -> Number:
        """The batch size that bounds what is captured."""
        if self.core == "V0" or not at(self.version, versions.V1_SIZES):
            return self._largest_of_v0()
        return minimum(self._asked(), self.max_tokens)

    @property
    def sizes(self) -> Number:
        """How many batch sizes are captured: 1, 2, 4, every 8 below 256, and above in wider steps."""
        return self._count(self.largest)

    @property
    def whole_sizes(self) -> Number:
        """How many of them are captured as whole decode graphs besides; V0 captured none."""
        return self._count(self._decode()) if self._whole() else 0

    @property
    def largest_whole(self) -> Number:
        """The largest batch captured as a whole decode graph, 0 where there is none."""
        return self._size_below(self._decode()) if self._whole() else 0

    def _whole(self) -> bool:
        return self.core != "V0" and at(self.version, versions.WHOLE_GRAPHS)

    def _decode(self) -> Number:
        return minimum(self.largest, self.max_seqs * (1 + self.speculative))

    def _asked(self) -> Number:
        if self.asked_largest:
            return self.asked_largest
        if not at(self.version, versions.SIZES_BY_SEQUENCES):
            return LARGEST
        blackwell = self.card is not None and (self.card.capability or (0, 0))[0] == 10
        cap = at(self.version, versions.LARGEST_ON_BLACKWELL) if blackwell else LARGEST
        return minimum(self.max_seqs * (1 + self.speculative) * 2, cap)

    def _largest_of_v0(self) -> Number:
        most = where(self.max_seqs > 4, -(-self.max_seqs // STEP) * STEP, self.max_seqs)
        cap = at(self.version, versions.LARGEST_OF_V0)
        return most if cap is None else minimum(most, cap)

    def _step(self) -> int:
        return STEP if self.core == "V0" else at(self.version, versions.WIDE_STEP)

    def _count(self, most: Number) -> Number:
        """Sizes up to ``most``, which is at least 1."""
        small = 1 + (most >= 2) * 1 + (most >= 4) * 1 + minimum(most // STEP, WIDE_FROM // STEP - 1)
        return small + maximum((most - WIDE_FROM) // self._step() + 1, 0)

    def _size_below(self, most: Number) -> Number:
        """The largest size up to ``most``."""
        step = self._step()
        small = where(most >= 4, 4, where(most >= 2, 2, 1))
        wide = WIDE_FROM + (most - WIDE_FROM) // step * step
        return where(most >= WIDE_FROM, wide, where(most >= STEP, most // STEP * STEP, small))


def graphs_term(stage: Stage, capture: Capture, *, eager: bool) -> Term:
    """Memory of the captured graphs of one rank: cut at attention for every size, whole ones for decode batches since 0.11."""
    if eager:
        return Term(name="graphs", bytes=0, why="enforce_eager: none are captured")
    parts = [_nodes(stage, capture), *_pool(stage, capture), *_attention(stage, capture)]
    return Term.total(
        "graphs", [p for p in parts if not is_nothing(p.bytes)], source="vllm/config/vllm.py; start-up logs of 0.7 to 0.19"
    )


def _nodes(stage: Stage, capture: Capture) -> Term:
    """Nodes of all kernels of all graphs."""
    graphs = named(capture.sizes, "sizes") + named(capture.whole_sizes, "whole decode graphs")
    launched = named(stage.layers, "layers") * named(_kernels(capture), "kernels")
    routed = sum(n for block, n in stage.blocks if isinstance(block.feedforward, Experts))
    if routed:
        launched += named(routed, "routed layers") * named(ROUTED, "more")
    return Term(name="nodes", amount=graphs * launched * bytes_(NODE_KIB.value * KiB, NODE_KIB.why))


def _kernels(capture: Capture) -> int:
    """Kernels of a layer; adapters' are launched while capturing by V0, and again since 0.11."""
    v0 = capture.core == "V0"
    launched = capture.lora and (v0 or at(capture.version, versions.CAPTURES_LORA))
    return (EAGER if v0 else COMPILED) + LORA * launched + DEQUANTIZED * capture.dequantizes


def _pool(stage: Stage, capture: Capture) -> list[Term]:
    """The pool the graphs share: what the largest one works in."""
    parts = []
    if capture.dequantizes:
        elements = where(capture.largest > 1, widest_slice(stage, capture.tp), 0)
        parts.append(Term(name="dequantized", amount=named(elements, "elements of the widest slice") * bytes_(capture.element)))
    if capture.core == "V0":
        why = "workspace torch gives cuBLAS on the capturing stream"
        return [*parts, Term(name="pool", bytes=cublas_workspace_bytes(capture.card), why=why)]
    base, each = at(capture.version, versions.POOL_MIB), at(capture.version, versions.SIZE_MIB)
    pool = (named(base.value, "MiB") + named(capture.sizes, "sizes") * named(each.value, "MiB")) * bytes_(MiB, base.why)
    return [*parts, Term(name="pool", amount=pool)]


def _attention(stage: Stage, capture: Capture) -> list[Term]:
    """What the attention kernels keep for whole decode graphs: FlashInfer's workspaces, or FlashAttention-3's partial outputs."""
    if capture.flashinfer:
        wrappers = named(capture.whole_sizes, "decode sizes") * bytes_(FLASHINFER_WRAPPER)
        return [Term(name="flashinfer", amount=bytes_(FLASHINFER_WORKSPACE) + wrappers)]
    if capture.card is not None and (capture.card.capability or (0, 0))[0] != 9:
        return []
    widest = max((_output_width(mixer) for block, _ in stage.blocks for mixer in block.mixers), default=0)
    elements = named(SPLITS, "splits") * named(capture.largest_whole, "rows") * named(widest, "wide")
    size = elements * bytes_(ACCUMULATOR_BYTES, "of partial outputs")
    return [Term(name="partial_outputs", bytes=size.value // capture.tp, why=size / named(capture.tp, "ranks"))]


def _output_width(mixer: object) -> int:
    """Elements a decoded token's attention leaves before its projection; latent attention's are as wide as the latent."""
    if isinstance(mixer, LatentAttention):
        return mixer.heads * mixer.kv_rank
    return mixer.heads * mixer.values if isinstance(mixer, Attention) else 0


class VllmTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of one rank beside its cache. ``logits`` is None on stages that do not sample, ``encoder`` without towers.

    ``unseen`` is allocated, and in no budget: LoRA slots of old versions.
    """

    weights: Term
    activations: Term
    logits: Term | None
    encoder: Term | None
    graphs: Term
    communication: Term
    context: Term
    unseen: Term | None = None

    @property
    def peak_bytes(self) -> Number:
        """The largest of the profile run's peaks."""
        return maximum(*(term.bytes for term in (self.activations, self.logits, self.encoder) if term))


def fixed_terms(resolved: Resolved, settings: VllmSettings, stage: Stage) -> VllmTerms:
    """The terms of one stage's ranks."""
    model, card = resolved.model, resolved.card
    towers = model.towers if settings.towers and stage.first else ()
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
    return VllmTerms(
        weights=_weights(resolved, settings, stage),
        activations=forward_term(model, stage, batch),
        logits=sampling_term(model, stage, batch) if stage.last and not settings.pools_only else None,
        encoder=encoder_term(model, batch.towers, batch.tokens, batch.element, batch.pixel, tp=batch.tp),
        graphs=graphs_term(stage, _capture(resolved, settings), eager=settings.eager),
        communication=versions.non_torch_term(settings.version, card, tp=settings.tp, pp=settings.pp),
        context=engine_start_term(card, settings.world, expert_group=has_experts(model)),
        unseen=_unseen(resolved, settings, stage),
    )


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
        flashinfer=resolved.options.get("attention_backend") == "flashinfer",
        asked_largest=resolved.options.get("max_cudagraph_capture_size")
        or model_class(resolved.model.family).served.largest_capture,
    )


def _unseen(resolved: Resolved, settings: VllmSettings, stage: Stage) -> Term | None:
    if at(settings.version, versions.LORA_IN_WEIGHTS):
        return None
    slots = slots_term(resolved.model, stage, resolved.options, settings)
    return Term.total("workspace", slots, why="LoRA slots, made after the weights are counted") if slots else None


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
        expandable=bool(options.get("expandable_segments")),
        section_rows=SECTION_ROWS if at(settings.version, versions.LONG_SECTIONS) else 1,
    )
    term = weights_term(resolved.model, stage, loading, storage)
    slots = (
        *(slots_term(resolved.model, stage, options, settings) if at(settings.version, versions.LORA_IN_WEIGHTS) else ()),
        *_draft_term(settings, stage),
        *_tables_on_host(resolved.model, stage, loading, storage),
        *_absorbed_term(resolved.model, settings, stage, storage),
    )
    offload = min(term.bytes, round((options.get("cpu_offload_gb") or 0) * GiB))
    parts = (*term.terms, *slots)
    if offload:
        parts = (*parts, Term(name="offloaded", bytes=-offload, why="cpu_offload_gb: these weights stay in host memory"))
    away = offload - sum(min(0, slot.bytes) for slot in slots)
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
    if at(settings.version, versions.ABSORBS_LATENT):
        what, elements = "multiplied-out latent projections", _multiplied_out(model, settings, stage)
    else:
        what, elements = "dequantised kv_b_proj", _dequantised_latent(settings, stage, storage)
    why = f"{elements:,} elements of {what} x {settings.element:g} B"
    return (Term(name="absorbed", bytes=round(elements * settings.element), why=why),) if elements else ()


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
