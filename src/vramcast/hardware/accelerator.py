"""What a card is: memory as sold and as a program sees it, rates, usual links, and what it computes by itself.

Memory and rates are facts of ``accelerators.toml``, read at run time from its compact twin. A capability is a number format, a
weight scheme or an attention kernel that the card runs natively, emulates or refuses: for NVIDIA by compute capability, for
other makers by the formats of the chip. Where neither is known the verdict is ``unknown``, never a guess.
"""

import functools
from pathlib import Path

import msgspec

from vramcast.errors import unknown_name

NODE_CARDS = 8
# Cards whose NVLink domain spans a rack, by the beginning of their id: GB200 and GB300 NVL72 (NVIDIA, NVL72 datasheet).
_RACKS = {"gb200": 72, "gb300": 72}
# One rail between nodes, one way, as reference systems have it: DGX A100 (8 x 200 Gb/s), DGX H100, H200 and B200 (8 x 400 Gb/s),
# GB200 and GB300 (one 400 Gb/s rail a card). NVIDIA, DGX and NVL72 datasheets. Other machines: 100 Gb/s Ethernet.
RAIL_BYTES_PER_S = {"ampere": 25e9, "hopper": 50e9, "blackwell": 50e9}
_ETHERNET_BYTES_PER_S = 12.5e9
# Cards that an NVLink bridge joins, by the beginning of their id or their form: two boards side by side, H200 NVL two or four.
# NVIDIA's product briefs of these boards; of a GeForce RTX 3090 the GA102 whitepaper (NVLink between two cards).
_BRIDGED = {"h200-nvl": 4, "pcie": 2, "nvl": 2, "rtx-3090": 2}
# Sign + exponent + fraction bits. TF32 is stored in 32 bits and computed with 19. Source: IEEE 754; NVIDIA A100 whitepaper;
# OCP Microscaling and 8-bit floating point specifications.
FORMATS = {
    "fp64": "1+11+52", "fp32": "1+8+23", "tf32": "1+8+10 = 19", "bf16": "1+8+7", "fp16": "1+5+10", "fp8": "1+4+3, 1+5+2",
    "int8": "8", "fp4": "1+2+1", "int4": "4",
}  # fmt: skip


class Accelerator(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part. Rates are dense, in FLOP/s by format ("bf16", "fp8", "int8", "fp4"...); bandwidths in bytes per second.

    A rate's plain name means accumulation in fp32; ``fp16_acc16`` and ``fp8_acc16`` are the faster rates of GeForce cards.
    ``visible_bytes``: what torch's ``total_memory`` or llama.cpp shows. ``driver_bytes``: nvidia-smi's ``memory.total`` (the
    larger).
    ``target``: the compiler's name of a non-NVIDIA chip (gfx942). ``stream_fraction``: share of the bandwidth that a plain
    streaming kernel was measured to reach. ``matmul_flops``: best measured matmul rate by format.
    ``inferred``: names of the fields that were worked out by a stated rule rather than read.
    ``cloud_usd_per_hour``: a public list price, and ``cloud_priced``: of whom and when.
    ``rare``: few hold it (one market or cloud, an edge board, an RTX 3060 with 8 GB): of several parts of a name it is meant only
    where its memory is said, and it is never offered unasked.
    ``keys``: the model keys of its name and aliases, by which typed names are matched.
    ``sources``: where each read field comes from, as keys of the catalogue's source table.
    """

    id: str
    name: str
    vendor: str
    architecture: str
    capability: tuple[int, int] | None = None
    sold_bytes: int
    driver_bytes: int
    visible_bytes: int
    bandwidth_bytes_per_s: float
    flops: dict[str, float] = {}
    sms: int = 0
    link_bytes_per_s: float = 0
    host_link_bytes_per_s: float = 0
    tdp_w: float = 0
    price_usd: float = 0
    cloud_usd_per_hour: float = 0
    cloud_priced: str = ""
    year: int = 0
    inferred: tuple[str, ...] = ()
    note: str = ""
    rare: bool = False
    target: str = ""
    memory_type: str = ""
    form: str = ""
    l2_bytes: int = 0
    stream_fraction: float = 0
    matmul_flops: dict[str, float] = {}
    aliases: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    sources: dict[str, str] = {}

    @property
    def unified(self) -> bool:
        """True when the card shares the host's memory (Apple, GB10, Jetson, Strix Halo): LPDDR that no link parts from it."""
        return is_unified(self.memory_type, linked=self.host_link_bytes_per_s > 0)


def is_unified(memory_type: str, *, linked: bool) -> bool:
    """Whether a chip works in its host's memory: LPDDR without a ``linked`` bus between them. A board's own LPDDR has one."""
    return memory_type.startswith("LPDDR") and not linked


def island_cards(card: Accelerator) -> int:
    """How many such cards the usual machine joins by direct links: a node of eight, or a rack."""
    return next((cards for name, cards in _RACKS.items() if card.id.lower().startswith(name)), NODE_CARDS)


def link_between(card: Accelerator, cards: int) -> float:
    """Bytes per second one way between so many cards of one machine: their direct links where these join them all.

    Boards are joined in pairs or fours by a bridge; more of them meet on the host's link. Zero where neither is known.
    """
    return _direct_link(card, cards) or card.host_link_bytes_per_s


def meet_on_host(card: Accelerator, cards: int) -> bool:
    """Whether so many cards of one machine are known to reach one another over the host's link alone: no module's card is."""
    return card.form != "sxm" and card.host_link_bytes_per_s > 0 and not _direct_link(card, cards)


def _direct_link(card: Accelerator, cards: int) -> float:
    bridged = next((reach for name, reach in _BRIDGED.items() if card.id.startswith(name) or card.form == name), 0)
    return card.link_bytes_per_s if not bridged or cards <= bridged else 0


def with_link(card: Accelerator, bytes_per_s: float | None) -> Accelerator:
    """The card behind the link that the user named; itself where none was."""
    if not bytes_per_s:
        return card
    return msgspec.structs.replace(card, link_bytes_per_s=bytes_per_s, host_link_bytes_per_s=bytes_per_s)


def rails_of(card: Accelerator) -> tuple[float, int]:
    """What joins the usual machines of a card: one rail's bytes per second one way, and how many rails there are."""
    if not card.link_bytes_per_s or card.form == "pcie":
        return _ETHERNET_BYTES_PER_S, 1
    kind = card.architecture.lower()
    rate = next((rate for name, rate in RAIL_BYTES_PER_S.items() if name in kind), _ETHERNET_BYTES_PER_S)
    return rate, island_cards(card)


FACTS = Path(__file__).with_name("accelerators.toml")
TWIN = Path(__file__).with_name("accelerators.json")


@functools.cache
def catalogue() -> dict[str, Accelerator]:
    """Every part by its id, in the order of the file."""
    parts = msgspec.json.decode(TWIN.read_bytes(), type=list[Accelerator])
    return {part.id: part for part in parts}


@functools.cache
def source_texts() -> dict[str, str]:
    """What each source key of the catalogue stands for."""
    import tomllib

    texts: dict[str, str] = tomllib.loads(FACTS.read_text("utf-8"))["sources"]
    return texts


NEVER = (99, 0)
_NAMES = {(7, 0): "Volta", (7, 5): "Turing", (8, 0): "Ampere", (8, 9): "Ada", (9, 0): "Hopper", (10, 0): "Blackwell"}


class Capability(msgspec.Struct, frozen=True):
    """``verdict``: native, emulated, refused or unknown; ``because`` names what decides and what happens instead."""

    verdict: str
    because: str


class Rule(msgspec.Struct, frozen=True):
    """NVIDIA: native from this compute capability, emulated (``how``) from that one; ``until`` ends the native range."""

    native: tuple[int, int]
    emulated: tuple[int, int] = NEVER
    how: str = ""
    source: str = ""
    until: tuple[int, int] = NEVER


_VLLM = "vLLM docs, supported hardware for quantization kernels"
_MARLIN = "weights are unpacked to 16 bits inside the Marlin kernel: memory saved, no faster arithmetic"
RULES = {
    "fp32": Rule((0, 0)),
    "fp16": Rule((6, 0), (0, 0), "fp32 arithmetic on fp16 storage", "CUDA programming guide, arithmetic throughput"),
    "bf16": Rule(
        (8, 0), (5, 0), "PyTorch converts through fp32, slowly; vLLM and SGLang take fp16 unless told", "vLLM platforms/cuda.py"
    ),
    "tf32": Rule((8, 0), (0, 0), "plain fp32", "NVIDIA A100 whitepaper"),
    "fp8": Rule((8, 9), (7, 5), _MARLIN, _VLLM),
    "int8": Rule((7, 5), (6, 1), "dp4a vector instructions", _VLLM),
    "nvfp4": Rule((10, 0), (7, 5), _MARLIN, _VLLM),
    "mxfp4": Rule((10, 0), (7, 5), _MARLIN.replace("the Marlin kernel", "the Marlin or Triton kernel"), _VLLM),
    "fp8_kv": Rule((8, 9), (5, 0), "the cache is stored in fp8 and converted in software", "vLLM docs, quantized KV cache"),
    "awq": Rule((7, 5), source=_VLLM),
    "gptq": Rule((7, 0), source=_VLLM),
    "marlin": Rule((8, 0), (7, 5), "the Turing variant of the kernel", _VLLM),
    "bitsandbytes": Rule((7, 0), (6, 0), "LLM.int8 without tensor cores", "bitsandbytes docs, hardware compatibility"),
    "gguf": Rule((7, 0), (5, 0), "llama.cpp's kernels without tensor cores", _VLLM),
    "flash_attention_2": Rule((8, 0), source="flash-attention README: Ampere, Ada, Hopper and later"),
    "flash_attention_3": Rule((9, 0), source="flash-attention README: Hopper", until=(10, 0)),
    "efficient_attention": Rule((5, 0), source="PyTorch aten/transformers/cuda/sdp_utils.cpp"),
    "flashinfer": Rule((7, 5), source="FlashInfer README: Turing and later"),
}
# What other chips compute natively. Sources: ROCm docs, precision support by architecture; Apple Metal feature set tables.
_CHIPS = {
    "CDNA1": {"fp32", "fp16", "bf16", "int8"},
    "CDNA2": {"fp32", "fp16", "bf16", "int8", "flash_attention_2"},
    "CDNA3": {"fp32", "fp16", "bf16", "tf32", "fp8", "int8", "fp8_kv", "flash_attention_2"},
    "CDNA4": {"fp32", "fp16", "bf16", "fp8", "int8", "mxfp4", "fp8_kv", "flash_attention_2"},
    "RDNA3": {"fp32", "fp16", "bf16", "int8"},
    "RDNA3.5": {"fp32", "fp16", "bf16", "int8"},
    "RDNA4": {"fp32", "fp16", "bf16", "fp8", "int8"},
    "Apple GPU": {"fp32", "fp16", "bf16", "gguf"},
    "Gaudi": {"fp32", "fp16", "bf16", "fp8"},
}
# What other chips unpack to 16 bits inside a kernel. Source: vllm-project/vllm#55934 measures gpt-oss-120b so on gfx942 (MI300X)
_UNPACKED = {("CDNA3", "mxfp4"): "AITER's and Triton's 16-bit kernels unpack it: memory saved, no faster arithmetic"}
_SPELLINGS = {
    "float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8",
    "fp4": "nvfp4", "w8a8": "int8", "gptq_marlin": "marlin", "awq_marlin": "marlin", "nf4": "bitsandbytes",
    "flash_attn": "flash_attention_2",
}  # fmt: skip


def capability(card: Accelerator, feature: str) -> Capability:
    """Whether the card does this by itself. Raises QuestionError for a feature that is in no table."""
    name = _SPELLINGS.get(feature, feature)
    if name not in RULES:
        raise unknown_name("capability", feature, [*RULES, *_SPELLINGS])
    if card.capability:
        return _of_nvidia(card, name, RULES[name])
    native = _CHIPS.get(card.architecture)
    if native is None or name not in RULES:
        return Capability("unknown", f"nothing is known about {name} on {card.name}")
    if name in native:
        return Capability("native", f"{card.architecture} computes {name}")
    if how := _UNPACKED.get((card.architecture, name)):
        return Capability("emulated", f"{card.architecture} has no {name}: {how}")
    return Capability(
        "unknown" if name not in {"fp8", "mxfp4", "nvfp4", "bf16"} else "refused", f"{card.architecture} has no {name}"
    )


def _of_nvidia(card: Accelerator, name: str, rule: Rule) -> Capability:
    own = card.capability or (0, 0)
    text = f"{card.name} has compute capability {own[0]}.{own[1]}"
    if rule.native <= own < rule.until:
        return Capability("native", f"{text}; {name} is native from {_since(rule.native)}")
    if own >= rule.until:
        return Capability("refused", f"{text}; {name} exists only below {rule.until[0]}.{rule.until[1]} ({rule.source})")
    if own >= rule.emulated:
        return Capability("emulated", f"{text} and {name} needs {_since(rule.native)}: {rule.how} ({rule.source})")
    return Capability("refused", f"{text} and {name} needs {_since(rule.native)} ({rule.source})")


def _since(capability_: tuple[int, int]) -> str:
    name = _NAMES.get(capability_)
    return f"{capability_[0]}.{capability_[1]}{f' ({name})' if name else ''}"
