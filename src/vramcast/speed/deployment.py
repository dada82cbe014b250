"""What runs where: a model's operations under one storage and split, on a card, under an engine version's rules."""

import functools

import msgspec
from msgspec.structs import replace

from vramcast.hardware.accelerator import NODE_CARDS, RAIL_BYTES_PER_S, Accelerator, island_cards
from vramcast.models.inventory import Model
from vramcast.models.operations import ExpertProducts, Linear, Numbers, Operation, Split, operations
from vramcast.models.quantization.scheme import Scheme
from vramcast.speed.engines import EngineSpeed
from vramcast.speed.kernels.attention import CACHE_BYTES
from vramcast.speed.kernels.collectives import Fabric
from vramcast.speed.scales import Scales
from vramcast.speed.streams import HostShares

_DEFAULT_FABRIC = Fabric(rail_bytes_per_s=RAIL_BYTES_PER_S["hopper"], rails=NODE_CARDS)


LINK_SHARE = 0.8
"""Of the rated speed of a slot, what copies from pinned host memory reach: 20 to 27 of 31.5 GB/s on PCIe 4 x16 (HARDWARE C5)."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a server.

    ``pp``: pipeline stages. ``kv_dtype``: of the cache (a key of CACHE_BYTES). ``expert_form``: storage of routed experts where
    it is not the scheme's. ``backends``: kernels named by the user, by operator. ``engine_tags``: what else a rule may ask.
    ``chunk_tokens``, ``max_seqs``: the scheduler's limits of a rank; ``poll_steps``: decode steps between looks at the queue of
    new requests (0: every step); ``first_steps``: decode steps that a first token is held back to be sent with others.
    ``pool_tokens``: tokens the cache holds; ``pool_sequences``: sequences whose states it holds (0: no limit known).
    ``distribution``: how tokens fall on experts. ``scales``: the machine's own factors on seconds. ``hops``: further cards that
    layers lie on, one after the other. ``micro_rows``: rows that llama.cpp computes at once (-ub), 0: its default.
    ``eager``: no step runs in a graph. ``streamed_bytes``: weights that a rank's every step reads from host memory over the
    card's own link.
    ``part_bits``: mean bits of a weight by part, where a file is told so (GGUF) rather than
    by ``scheme``.
    """

    model: Model
    card: Accelerator
    engine: EngineSpeed
    version: tuple[int, ...]
    scheme: Scheme
    split: Split = Split()
    pp: int = 1
    kv_dtype: str = "bf16"
    state_bytes: float = 4.0
    backends: dict[str, str] = {}
    chunk_tokens: int = 8192
    max_seqs: int = 256
    poll_steps: int = 0
    first_steps: int = 0
    pool_tokens: float = 0
    pool_sequences: float = 0
    fabric: Fabric = _DEFAULT_FABRIC
    distribution: str = "power_law_1.01"
    formats: dict[str, str] = {}
    places: HostShares = HostShares()
    part_bits: dict[str, float] = {}
    hops: int = 0
    micro_rows: int = 0
    eager: bool = False
    streamed_bytes: int = 0
    scales: Scales = Scales()

    @property
    def ranks(self) -> int:
        """Cards of the replica."""
        return self.split.ranks * self.pp

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What one rank runs in a forward pass over all layers."""
        found = operations(self.model, scheme=self.scheme, split=self.split, numbers=self.numbers)
        return tuple(_stored_in(one, self.part_bits) for one in found) if self.part_bits else found

    @property
    def streamed_s(self) -> float:
        """Seconds that a step takes for weights in host memory over the card's link to it."""
        return self.streamed_bytes / (LINK_SHARE * self.card.host_link_bytes_per_s) if self.streamed_bytes else 0.0

    @property
    def numbers(self) -> Numbers:
        """Bytes of activations, cache and states."""
        return Numbers(kv=CACHE_BYTES[self.kv_dtype], state=self.state_bytes)

    def nodes(self, world: int) -> int:
        """Nodes that ``world`` neighbouring ranks span."""
        domain = island_cards(self.card)
        return 1 if world <= domain else -(-world // domain)


def _stored_in(one: Operation, bits: dict[str, float]) -> Operation:
    """The operation with its weights at the mean bits of their part of the file."""
    mean = bits.get("attention" if one.part == "latent attention" else one.part, 0.0)
    if isinstance(one, ExpertProducts):
        whole = one.hidden * one.width * (3 if one.gated else 2)
        return replace(one, expert_bytes=whole * bits.get("experts", 16) / 8, form=f"{bits.get('experts', 16):.3g} bits")
    if isinstance(one, Linear) and mean:
        return replace(one, weight_bytes=one.outputs * one.inputs * one.matrices * mean / 8, form=_form(mean))
    return one


def _form(mean_bits: float) -> str:
    return "float16" if mean_bits > 15 else f"{mean_bits:.3g} bits"


_INT4 = ("awq-int4", "gptq-int4", "int4-", "nf4", "fp4", "torchao-int4", "quanto-int4", "hqq-int4", "mxint4")
_INT8 = ("gptq-int8", "awq-int8", "quanto-int8", "eetq", "torchao-int8", "llm.int8", "hqq-int8")


@functools.lru_cache(maxsize=1024)
def law_format(form: str, native: tuple[str, ...]) -> str:
    """The recipe of a kernel law for a storage format's name; ``native``: formats the card multiplies (fp8, fp4, int8).

    Formats the card cannot multiply are unpacked by weight-only kernels (Marlin), as vLLM and SGLang do.
    """
    if form in ("float32", "bfloat16", "float16"):
        return "fp32" if form == "float32" else "bf16"
    if form.startswith("fp8"):
        if "fp8" not in native:
            return "int8_weight_only"
        return "fp8_block" if form == "fp8-128x128" else "fp8"
    if form.startswith(("nvfp4", "mxfp4")):
        return form[:5] if "fp4" in native or form.startswith("mxfp4") else "int4_weight_only"
    if form.startswith(_INT4):
        return "int4_weight_only"
    if form.startswith(_INT8):
        return "int8_weight_only"
    return "int8" if form.startswith("int8") else "bf16"


def native_formats(card: Accelerator) -> tuple[str, ...]:
    """Of fp8, fp4 and int8, those the card's units multiply."""
    return tuple(name for name in ("fp8", "fp4", "int8") if card.flops.get(name))
