"""Constants of engines without kernel tables: what ``streams.StreamClock`` multiplies, by engine, version and class of cards.

Every number was fitted by ``tools/fit_streams.py`` to the rows that its row names, or follows from the source beside it.
"""

from typing import Any

import msgspec
from msgspec.structs import replace


class Stream(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Constants of one engine on some cards, from version ``since`` on.

    ``classes``: card classes; ``cards``: how the card's id starts (none given: all). ``bandwidth``, ``quantised``, ``cache``:
    share of the card's bandwidth that 16-bit weights, narrower weights and the cache stream at (0: as the one before).
    ``weight_cycle``, ``cache_cycle``: bytes of weights and of cache at most in a cycle of one SM or core, where loads in flight
    or index arithmetic bind before memory does (0: never). ``expands``: the cache is copied at every token (torch.cat), its heads
    repeated to those of the queries before attention. ``unpack``: shifts and their like that unpack one narrow weight.

    ``step_s``, ``layer_s``: seconds of a step and of a layer beside its bytes; ``kernels_s``: of a layer's small kernels on the
    GPU; ``hop_s``: of each further card that layers lie on; ``exchange_s``: launch of a collective outside a graph;
    ``routed_s``, ``delta_s``: more of a layer with routed experts (gates, top-k, gathering, weighing) and of a gated delta net.
    ``eager``: ``step_s`` and ``layer_s`` are host time that overlaps with the GPU, so that the larger of both counts.
    ``module_s``: more host time for each module whose weights are stored in a form (by how its name starts; the first that fits
    holds); ``waits``: forms whose modules wait for the GPU, so that both times add. ``expert_s``: host time for each expert that
    is looped over; ``loops``: "all" experts, or those "hit" by a token.

    ``compute``, ``compute_quantised``: share of the dense 16-bit peak in prefill. ``row_share``: what each row beyond the first
    adds to the time of narrow weights, in kernels that walk them row by row. ``micro_rows``: rows of a micro-batch (llama.cpp
    -ub), each of which reads the weights. ``score_passes``: times the fp32 matrix of scores is moved where attention is not
    fused. ``transfer``: relative error on a card left out.
    """

    engine: str
    classes: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    since: tuple[int, ...] = ()
    bandwidth: float
    quantised: float = 0.0
    cache: float = 0.0
    weight_cycle: float = 0.0
    cache_cycle: float = 0.0
    expands: bool = False
    unpack: float = 0.0
    step_s: float = 0.0
    layer_s: float
    kernels_s: float = 0.0
    hop_s: float = 0.0
    exchange_s: float = 0.0
    routed_s: float = 0.0
    delta_s: float = 0.0
    eager: bool = False
    module_s: tuple[tuple[str, float], ...] = ()
    waits: tuple[str, ...] = ()
    expert_s: float = 0.0
    loops: str = "all"
    compute: float
    compute_quantised: float = 0.0
    row_share: float = 0.0
    micro_rows: int = 0
    score_passes: float = 0.0
    transfer: float = 0.1
    source: str = ""


_BENCH = "llama-bench of May 2024 on 14 cards (XiongjieDai/GPU-Benchmarks-on-LLM-Inference@aa72e0ec86), fitted by class"
_LATER = "reports of 2025 and 2026 on 18 cards (truth/speed/community_speed.jsonl, most of geerlingguy/ai-benchmarks and llmfit)"
_AWQ = "mit-han-lab/llm-awq@d6e797a42b tinychat/README.md"
_QWEN = "QwenLM/Qwen3@7a2f61ffc7, a912d239c2: speed benchmarks of Qwen2, 2.5 and 3"
_PREM = "premAI-io/benchmarks@16338c3108 README: one model on one A100, generate() from Python"
# Flash attention by default: llama.cpp from b6700 (pull 15434, -fa auto); before, scores went through memory.
_FUSED = (6700,)
# CUDA graphs, fused norms and faster 2- to 6-bit kernels came in many steps from b2900 to b7000; measured before and after only.
_GRAPHS = (4500,)
# Products of quantised weights run on int8 tensor cores from June 2024 (b3130, pull 7676: 8B Q4_0 on a 4090 1.33 times as fast; a
# 3080, a 3090 and a 5060 Ti measured later 1.32, 1.45 and 1.58 times the rows of May 2024).
_INT8_SINCE, _INT8 = (3130,), 1.45
_FLASH: dict[str, Any] = {"score_passes": 0.0, "cache": 0.8, "cache_cycle": 0.0}


def _llama(
    classes: tuple[str, ...],
    *,
    compute: tuple[float, float],
    passes: float = 4.3,
    newer: dict[str, Any] | None = None,
    fused: dict[str, Any] | None = None,
    cards: tuple[str, ...] = (),
    int8: bool = False,
    **rest: Any,
) -> tuple[Stream, ...]:
    """A class's rows: of May 2024, with ``newer`` constants from CUDA graphs and fused norms on, with flash attention by default.

    ``fused``: what else changed by then (Metal runs operations beside each other from September 2025, pull 15929).

    ``int8``: whether quantised products go to tensor cores of that type, in the builds that have them.
    """
    first = Stream(
        engine="llama_cpp", classes=classes, cards=cards, compute=compute[0], compute_quantised=compute[1], score_passes=passes,
        micro_rows=512, source=_BENCH,
        **{"cache_cycle": 1.6, **rest},
    )  # fmt: skip
    between = replace(first, since=_INT8_SINCE, compute_quantised=round(_INT8 * compute[1], 3)) if int8 else first
    second = replace(between, since=_GRAPHS, source=_LATER if newer else _BENCH, **(newer or {}))
    return first, between, second, replace(second, since=_FUSED, **_FLASH, **(fused or {}))


_GDDR: dict[str, Any] = {
    "bandwidth": 0.93, "unpack": 0.475, "layer_s": 79e-6, "hop_s": 180e-6, "transfer": 0.055,
    "newer": {"bandwidth": 0.87, "unpack": 2.25, "layer_s": 20e-6, "routed_s": 24e-6, "delta_s": 75e-6},
}  # fmt: skip
# HBM outruns the loads that an SM has in flight: 7.2 bytes of weights in its cycle, on an A100 half of the memory's rate and on
# an H100 PCIe 0.7, where each had a share of bandwidth of its own before (a card left out 16 to 8 %). A card whose SMs or clock
# nobody tells takes the most that was seen, 0.72.
_HBM: dict[str, Any] = {
    "bandwidth": 0.72, "weight_cycle": 7.2, "layer_s": 107e-6, "hop_s": 0.6e-3, "cache_cycle": 2.5, "transfer": 0.07,
}  # fmt: skip
_APPLE: dict[str, Any] = {"bandwidth": 0.89, "layer_s": 165e-6, "cache_cycle": 1.0, "transfer": 0.13}
_METAL = {"bandwidth": 0.92, "layer_s": 147e-6, "compute": 0.76, "compute_quantised": 0.68, "routed_s": 67e-6}
# Two dies run one graph: an Ultra's layers gained nothing measurable from it (b7300, geerlingguy/ai-benchmarks).
_ULTRA = ("apple-m2-ultra", "apple-m3-ultra")
_BESIDE = {"bandwidth": 0.94, "layer_s": 80e-6, "delta_s": 130e-6}
_LLAMA = (
    *_llama(
        (), compute=(0.3, 0.25), bandwidth=0.85, unpack=1.5, layer_s=150e-6, hop_s=0.4e-3, transfer=0.25,
        newer={"bandwidth": 0.87, "unpack": 0.0, "layer_s": 60e-6, "routed_s": 22e-6, "delta_s": 76e-6},
    ),
    *_llama(
        ("low_power", "pascal_pro", "volta_dc"), compute=(0.3, 0.25), bandwidth=0.85, unpack=1.5, layer_s=100e-6, hop_s=0.4e-3,
        transfer=0.25,
    ),
    *_llama(("geforce",), compute=(0.436, 0.357), passes=3.1, int8=True, **_GDDR),
    *_llama(("ampere_pro", "turing_pro"), compute=(0.42, 0.33), int8=True, **_GDDR),
    *_llama(("ada_pro", "blackwell_pro"), compute=(0.40, 0.27), passes=3.2, int8=True, **_GDDR),
    *_llama(
        ("ampere_dc",), compute=(0.38, 0.338), **_HBM,
    ),
    *_llama(
        ("hopper_dc", "blackwell_dc"), compute=(0.21, 0.177), **_HBM,
    ),
    # LPDDR5X; 21 figures of four sources between 0.77 and 0.87 of the rated bandwidth.
    *_llama(
        ("blackwell_pro",), cards=("gb10",), compute=(0.40, 0.27), passes=3.2, int8=True,
        **_GDDR | {"newer": _GDDR["newer"] | {"bandwidth": 0.83}},
    ),
    *_llama(("apple",), compute=(0.76, 0.62), unpack=3.0, newer={**_METAL, "unpack": 2.3}, fused=_BESIDE, **_APPLE),
    *_llama(("apple",), cards=_ULTRA, compute=(0.76, 0.62), unpack=3.0, newer={**_METAL, "unpack": 2.3}, **_APPLE),
    *_llama(("apple",), cards=("apple-m1-ultra",), compute=(0.60, 0.49), unpack=12.5, newer={**_METAL, "unpack": 7.0}, **_APPLE),
    *_llama(
        ("apple",), cards=("apple-m1",), compute=(0.60, 0.49), unpack=12.5, newer={**_METAL, "unpack": 7.0}, fused=_BESIDE,
        **_APPLE,
    ),
)  # fmt: skip

# Eager PyTorch: host time of a layer, which servers of 2020 to 2022 need more of than those after.
_EAGER: dict[str, Any] = {
    "engine": "transformers", "bandwidth": 0.92, "compute": 0.6, "compute_quantised": 0.4, "eager": True,
    "step_s": 1e-3, "expert_s": 84e-6, "weight_cycle": 11.8, "expands": True, "waits": ("fp8",),
    "module_s": (("fp8", 98e-6), ("awq", 33e-6), ("gptq-int8", 41e-6), ("nf4", 107e-6), ("llm.int8", 750e-6), ("int8", 750e-6)),
    "transfer": 0.2, "source": _QWEN,
}  # fmt: skip
_OLD_HOSTS = ("ampere_dc", "volta_dc", "ampere_pro", "turing_pro", "low_power", "pascal_pro", "cdna2", "cdna3")


# GPTQModel unpacks 8 bits in Python-launched kernels where AutoGPTQ had one of its own; later rows have fewer repeats and loops.
_GPTQMODEL = (("gptq-int8", 93e-6), *(pair for pair in _EAGER["module_s"] if pair[0] != "gptq-int8"))


def _eager() -> tuple[Stream, ...]:
    """Rows by release: with AutoGPTQ; GPTQModel from 4.48; heads not repeated and only experts with a token looped from 4.53."""
    newer = Stream(layer_s=0.62e-3, kernels_s=80e-6, quantised=0.5, cache_cycle=4.9, **_EAGER)
    older = Stream(layer_s=0.82e-3, kernels_s=380e-6, quantised=0.37, cache_cycle=6.0, classes=_OLD_HOSTS, **_EAGER)
    middle = [replace(row, since=(4, 48), module_s=_GPTQMODEL) for row in (newer, older)]
    return newer, older, *middle, *(replace(row, since=(4, 53), expands=False, loops="hit") for row in middle)


_SERVERS = ("ampere_dc", "hopper_dc")  # their hosts launch from Python slower than a desktop's
_OTHERS = (
    Stream(
        engine="litgpt", bandwidth=0.85, layer_s=0.99e-3, compute=0.6, eager=True, module_s=(("nf4-dq", 93e-6), ("nf4", 82e-6)),
        source="Lightning-AI/litgpt@26857050fe resource tables",
    ),
    Stream(
        engine="exllama", bandwidth=0.91, layer_s=41e-6, compute=0.58, source="turboderp/exllamav2@b9c025b4b1 README",
    ),
    Stream(
        engine="exllama", classes=_SERVERS, bandwidth=0.90, layer_s=240e-6, compute=0.58, eager=True, source=_PREM, transfer=0.3
    ),
    Stream(engine="tinychat", bandwidth=0.85, layer_s=40e-6, compute=0.5, source=_AWQ),
    Stream(engine="tinychat", cards=("jetson",), bandwidth=0.79, layer_s=94e-6, compute=0.5, source=_AWQ),
    Stream(engine="tinychat", classes=("ampere_dc",), bandwidth=0.89, layer_s=112e-6, compute=0.5, source=_AWQ),
    Stream(
        engine="autoawq", bandwidth=0.81, layer_s=52e-6, compute=0.42, source="casper-hansen/AutoAWQ@88e4c76b20 README",
    ),
    Stream(
        engine="autoawq", classes=_SERVERS, bandwidth=0.81, layer_s=450e-6, compute=0.42, eager=True, source=_PREM, transfer=0.3
    ),
    Stream(
        engine="autoawq_gemv", bandwidth=0.87, layer_s=38e-6, compute=0.42, row_share=0.35,
        source="casper-hansen/AutoAWQ@88e4c76b20 README: the GEMV kernel walks rows one by one",
    ),
    Stream(
        engine="gpt_fast", bandwidth=0.76, quantised=0.55, layer_s=25e-6, compute=0.6,
        source="pytorch-labs/gpt-fast@32971d3129 README",
    ),
    Stream(
        engine="gpt_fast_eager", bandwidth=0.76, layer_s=0.95e-3, compute=0.6, eager=True,
        source="ROCm/rocm-blogs@c9a603f gpt-fast: compile=False",
    ),
    Stream(
        engine="fastertransformer", bandwidth=0.84, layer_s=83e-6, exchange_s=25e-6, compute=0.57,
        source="NVIDIA/FasterTransformer@df4a753486 gpt_guide",
    ),
    Stream(
        engine="lmdeploy", bandwidth=0.85, layer_s=60e-6, compute=0.63, source="InternLM/lmdeploy@1263d5cd88 a100_fp16",
    ),
    Stream(
        engine="lmdeploy", classes=("geforce", "ampere_pro", "ada_pro", "blackwell_pro"), bandwidth=0.93, layer_s=25e-6,
        compute=0.63, transfer=0.2,
        source="InternLM/lmdeploy@1263d5cd88 w4a16: one row; bandwidth as llama.cpp's on GDDR",
    ),
)  # fmt: skip
# The last row that fits holds: rows without classes first, newer versions after older ones.
ROWS: tuple[Stream, ...] = (*_LLAMA, *_eager(), *_OTHERS)
