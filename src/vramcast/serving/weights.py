"""Weights of one rank in serving: the type they are loaded in, how each tensor is stored, and its share as engines load it.

Vocabulary rows are padded, column- and row-parallel matrices cut, KV heads replicated beyond their number, experts spread over
expert-parallel ranks, and the tensors that inference engines keep beside the checkpoint (rotary tables) added. Shares are fused
and rounded as engines load them.
"""

from collections.abc import Iterable

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Term
from vramcast.models import rotary
from vramcast.models.inventory import Block, Model, Tensor, Tower, by_identity, part_of
from vramcast.models.layers import Attention, LatentAttention
from vramcast.models.quantization import Scheme, scheme_for
from vramcast.models.quantization.scheme import stored_bytes
from vramcast.models.sharding import Layout, Stage, is_routed, outer_tensors, share
from vramcast.tracing.allocator.settings import LARGE_STEP, MIN_BLOCK, MIN_LARGE, SMALL_LIMIT
from vramcast.units import count as counted
from vramcast.units import gib

_BFLOAT16 = (8, 0)  # vllm/platforms/cuda.py, supported_dtypes: Ampere and newer


def loaded_dtype(model: Model, asked: str | None, card: Accelerator | None) -> str:
    """The type plain weights are loaded in: asked, or the checkpoint's, float32 ones being loaded in 16 bits.

    A card without bfloat16 arithmetic takes float16 where nobody asked for a type.
    Source: vllm/config/model.py, sglang/srt/configs/model_config.py and tensorrt_llm/_torch/model_config.py alike.
    """
    if asked and not same_as_model(asked):
        return asked
    own = "bfloat16" if model.dtype == "float32" else model.dtype
    older = card is not None and card.capability is not None and card.capability < _BFLOAT16
    return "float16" if older and own == "bfloat16" else own


def same_as_model(dtype: str | None) -> bool:
    """Whether a type that was asked for says "the model's own"."""
    return dtype is None or dtype.lower() == "auto"


def scaled_bytes(name: str) -> float:
    """Bytes of an element with its share of a scale: ``nvfp4`` has one of 8 bits for 16 elements, ``mxfp8`` one for 32."""
    from vramcast.models.quantization.formats import NAMED

    return NAMED[name].per_element


class Storage:
    """The storage of one model's tensors as an engine loads them; ``name`` is what to print.

    ``quantizes_mtp``: the checkpoint's own fp8 covers multi-token-prediction layers; tools that quantise what transformers builds
    never see them.
    """

    __slots__ = ("name", "quantizes_mtp", "scheme")

    def __init__(self, model: Model, *, quant: str | None, dtype: str) -> None:
        """``quant`` None keeps the checkpoint's own scheme; ``dtype`` is the type of whatever is not quantised."""
        self.scheme: Scheme = scheme_for(model, quant=quant, dtype=dtype)
        self.name = self.scheme.name
        self.quantizes_mtp = bool(model.quantization) and (model.quantization or {}).get("quant_method") == "fp8"

    def share_bytes(self, tensor: Tensor, elements: int, *, block: Block | None = None, side: bool = False) -> float:
        """Bytes of that many elements of a tensor; the mean over a block's layers when a scheme differs from layer to layer.

        ``side``: the tensor belongs to a tower beside the decoder, which quantisers usually leave alone.
        """
        if side and self._leaves_towers():
            return elements * self.scheme.base.bits / 8
        if self.scheme.plan is None:
            return elements * self.scheme.format_of(tensor, tower=side).bits / 8
        if block is None:
            return stored_bytes(self.scheme.format_of(tensor, tower=side), tensor, elements)
        forms = self.scheme.formats(tensor, prefix=block.name, indices=block.indices, tower=side)
        return sum(stored_bytes(form, tensor, elements) * times for form, times in forms.items()) / block.count

    def expert_format(self, model: Model) -> str:
        """The name of the format that routed experts are stored in, the commonest where it differs; "" without experts."""
        counts: dict[str, int] = {}
        for block in model.blocks:
            for tensor in block.tensors:
                if is_routed(tensor) and len(tensor.shape) > 1:
                    forms = self.scheme.formats(tensor, prefix=block.name, indices=block.indices)
                    counts |= {form.name: counts.get(form.name, 0) + times for form, times in forms.items()}
        return max(counts, key=lambda name: counts[name], default="")

    def _leaves_towers(self) -> bool:
        """ModelOpt and compressed-tensors quantise towers only where their config lists what else to leave alone."""
        plan = self.scheme.plan
        return plan is not None and not plan.ignore and plan.name.startswith(("modelopt", "compressed"))


@by_identity(most=512)
def storage_of(model: Model, *, quant: str | None, dtype: str) -> Storage:
    """The storage of a model under a scheme, made once."""
    return Storage(model, quant=quant, dtype=dtype)


_FUSED = {
    "q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up",
    "expert.gate": "expert.gate_up", "expert.up": "expert.gate_up",
    "shared.gate": "shared.gate_up", "shared.up": "shared.gate_up",
}  # fmt: skip

VOCAB_MULTIPLE = 64
"""Rows of embedding and head are padded to it (vocab_parallel_embedding.py of vLLM and SGLang)."""

# CUDACachingAllocator.cpp: blocks are multiples of 512 B; a request of 10 MiB or more gets a segment of its own, rounded up
# to 2 MiB, and is not split when at most 1 MiB would remain, so the remainder counts as allocated. Segments that grow
# (``expandable_segments:True``) are split down to 512 B (should_split)
_ROUNDING = {False: "segments of 2 MiB, remainders up to 1 MiB are not split off", True: "blocks of 512 B in segments that grow"}


_VOICE = ("talker", "vocoder")


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine lays weights out: over which ranks (``layout``), and what it keeps beside the checkpoint's tensors.

    ``fuses``: q/k/v and gate/up become one tensor each. ``rotary_bytes``: width of the table of cosines and sines kept for every
    position, 0 = none. ``mtp``: multi-token-prediction layers are loaded too. ``towers``: so are vision and audio towers.
    ``splits_towers``: tensor parallelism cuts towers too. ``speaks``: so is what voices the text, which servers of text leave in
    the checkpoint (vllm/model_executor/models/qwen2_5_omni_thinker.py: "talker.": None, "token2wav.": None).
    ``expandable``: the allocator's segments grow, so that nothing is rounded up to them. ``section_rows``: how many times the
    positions a rotary table of multimodal sections has rows.
    """

    layout: Layout = Layout()
    fuses: bool = True
    rotary_bytes: float = 0
    mtp: bool = False
    towers: bool = True
    splits_towers: bool = True
    speaks: bool = True
    expandable: bool = False
    section_rows: int = 1


class _Part:
    """Sums of one part of the model: its elements, those of them on this rank, and their bytes."""

    __slots__ = ("bytes", "elements", "whole")

    def __init__(self) -> None:
        self.bytes = self.elements = self.whole = 0

    def term(self, name: str) -> Term:
        """The part as a term that shows its share and the mean size of an element."""
        share = "" if self.elements == self.whole else f" of {self.whole:,} on all ranks"
        return Term(name=name, bytes=self.bytes, why=f"{self.elements:,} elements{share} x {self.bytes / self.elements:.6g} B")


class _Parts:
    """Sums by part of the model while it walks the tensors; allocator rounding is its own part."""

    def __init__(self, loading: Loading, storage: Storage) -> None:
        self.loading, self.storage = loading, storage
        self.parts: dict[str, _Part] = {}
        self.rounding = 0

    def add(self, tensors: Iterable[Tensor], layers: int = 1, *, block: Block | None = None, tower: Tower | None = None) -> None:
        """Adds the tensors of ``layers`` equal layers under the tower's name, or under the part their role belongs to."""
        fused: dict[tuple[_Part, str], float] = {}
        side = tower is not None and (tower.kind != "mtp" or not self.storage.quantizes_mtp)
        for tensor in tensors:
            part = self.parts.setdefault(tower.name if tower else part_of(tensor), _Part())
            name = _FUSED.get(tensor.role, tensor.name) if self.loading.fuses else tensor.name
            whole = tower is not None and not self.loading.splits_towers
            elements = tensor.elements if whole else share(tensor, self.loading.layout)
            size = self.storage.share_bytes(tensor, elements, block=block, side=side)
            part.elements += elements * layers
            part.whole += tensor.elements * layers
            fused[part, name] = fused.get((part, name), 0) + size
        for (part, _), size in fused.items():
            part.bytes += round(size * layers)
            self.rounding += round(allocated_bytes(size, expandable=self.loading.expandable) - size) * layers


@by_identity(2, most=2048)
def weights_term(model: Model, stage: Stage, loading: Loading, storage: Storage) -> Term:
    """Bytes of weights on a rank of that stage, part by part."""
    parts = _Parts(loading, storage)
    parts.add(outer_tensors(model, stage))
    for block, layers in stage.blocks:
        parts.add(block.tensors, layers, block=block)
    for tower in model.towers:
        if _tower_here(tower, stage, loading):
            parts.add(tower.tensors, tower=tower)
            for block in tower.blocks:
                parts.add(block.tensors, block.count, block=block, tower=tower)
    terms = [part.term(name) for name, part in parts.parts.items() if part.bytes]
    terms.append(Term(name="rounding", bytes=parts.rounding, why=_ROUNDING[loading.expandable]))
    terms.extend(rotary_tables(model, stage, loading))
    whole = f"{counted(model.parameters)} parameters, {storage.name}"
    why = f"{whole}, tp={loading.layout.tp} ep={loading.layout.ep}: {gib(sum(t.bytes for t in terms))} on this rank"
    return Term.total("weights", terms, why=why, source="config.json inventory; pytorch CUDACachingAllocator")


def rotary_tables(model: Model, stage: Stage, loading: Loading) -> tuple[Term, ...]:
    """The tables of cosines and sines of a stage, one per distinct width and base: rows * width * bytes (see models/rotary)."""
    local = bool(model.facts.get(rotary.LOCAL))
    mixers = {(_rotary_width(mixer), local and _is_local(mixer)) for block, _ in stage.blocks for mixer in block.mixers}
    sections = loading.section_rows if model.facts.get(rotary.SECTIONS) else 1
    rows = {True: model.positions, False: round(model.facts.get(rotary.ROWS, model.positions * sections))}
    told = [(rows[own], width) for width, own in sorted(mixers) if width] * round(model.facts.get(rotary.TABLES, 1))
    each = 4 if model.facts.get(rotary.FLOAT) else loading.rotary_bytes
    size = round(sum(count * width for count, width in told) * each)
    why = " + ".join(f"{count:,} rows x {width}" for count, width in told) + f", {each:g} B each"
    return (Term(name="rotary_tables", bytes=size, why=why),) if size else ()


def _is_local(mixer: object) -> bool:
    return isinstance(mixer, Attention) and bool(mixer.window)


def _rotary_width(mixer: object) -> int:
    if isinstance(mixer, LatentAttention):
        return mixer.rope_dim
    if isinstance(mixer, Attention):
        return mixer.head_dim if mixer.rope_dim < 0 else mixer.rope_dim
    return 0


def _tower_here(tower: Tower, stage: Stage, loading: Loading) -> bool:
    if tower.stored_only:
        return loading.mtp and stage.last
    return stage.first and loading.towers and (loading.speaks or tower.kind not in _VOICE)


def allocated_bytes(size_bytes: float, *, expandable: bool = False) -> int:
    """Bytes that ``torch.cuda.memory_allocated`` grows by for one new tensor of that size."""
    size = -(-int(size_bytes) // MIN_BLOCK) * MIN_BLOCK
    if size < MIN_LARGE or expandable:
        return size
    segment = -(-size // LARGE_STEP) * LARGE_STEP
    return segment if segment - size <= SMALL_LIMIT else size
