"""A matrix product: the fastest of its library's tilings over the units, against the bytes; and kernels that only move bytes.

``t = launch + (compute^p + bandwidth^p)^(1/p) + quantise``, at least ``host`` in a benchmark run from Python. Compute is counted
in waves of tiles: a tile of outputs runs on one unit, as long as its multiplications or its loads from L2, whichever is longer; a
first wave that is not full is filled by splitting k. Source of the form: NVIDIA, "Matrix Multiplication Background" (tile and
wave quantisation); of the constants: ``laws.json``.
"""

from functools import reduce
from typing import Any

import msgspec

from vramcast.errors import unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.quantity import is_array
from vramcast.speed.kernels.law import Estimate, larger, law_for, smaller, whole
from vramcast.speed.kernels.machine import Machine, card_class, machine

POINTWISE_FORMULA = "launch + bandwidth"


def elementwise(*, card: Accelerator, size_bytes: Any, eager: bool = False, kind: str = "add") -> Estimate:
    """Seconds of a kernel that moves ``size_bytes`` (read and written); ``eager``: launched from Python rather than in a graph.

    ``kind``: "add" (pointwise), "softmax" or "norm", whose reductions reach a smaller part of the bandwidth.
    """
    chosen = law_for("elementwise", "eager" if eager else "graph", kind, card)
    parts = elementwise_parts(chosen.constants, machine(card), moved_bytes=size_bytes)
    return Estimate(seconds=parts["launch"] + parts["bandwidth"], parts=parts, formula=POINTWISE_FORMULA, chosen=chosen)


def elementwise_parts(constants: dict[str, float], on: Machine, *, moved_bytes: Any) -> dict[str, Any]:
    """Seconds of launch and of the bytes; what fits in L2 was written by the kernel before and is read from there."""
    resident = (moved_bytes <= on.l2_bytes) * 1.0
    rate = constants["bandwidth"] + resident * (constants["l2"] - constants["bandwidth"])
    return {
        "launch": constants["launch_us"] * 1e-6,
        "bandwidth": moved_bytes / (on.bandwidth_bytes_per_s * rate),
    }


COLUMNS = (64, 128, 256)  # outputs of a tile along the weight
ROWS = (64, 128, 256)  # most tokens of a tile; they are spread evenly over tiles, in steps of GRAIN
GRAIN = 64
# Tokens by which tiles of kernels that unpack weights grow (vLLM csrc/quantization/marlin: thread_m_blocks of 16 rows;
# TensorRT-LLM cutlass_heuristic.cpp: weight-only tiles of 16 x 128 x 64). Hopper's units multiply 64 rows at once, and the L40S
# table tells no difference; an A100 at up to 16 tokens and large weights is 42 % too slow with 64, 6 % with 16. Where a law is
# borrowed slower units (GeForce) would be charged for rows nobody has.
NARROW_GRAIN = 16
_NARROW = ("ampere_dc",)
LARGEST = 256 * 128  # accumulators of one unit: a tile of 256 x 256 does not fit (CUTLASS, default tile shapes)
_TILINGS = tuple((most, columns) for most in ROWS for columns in COLUMNS if most * columns <= LARGEST)
_TOGETHER = 4096  # products whose tilings are worked out as one array; of more, one tiling after the other
LEAST_K = 256  # k of one part of a split: below it the reduction costs more than the units it fills
MOST_SPLITS = 16
LONG_S = 1e-3  # kernels longer than about this settle at the clock that the power limit allows
FORMULA = "launch + (compute^p + bandwidth^p)^(1/p) + quantise"


class Recipe(msgspec.Struct, frozen=True):
    """How a product is stored and computed: bytes of a weight with its scales and of an activation, and its format.

    ``quantised_bytes``: moved per activation element by the pass that quantises it (reads 16 bits, writes the format).
    """

    weight_bytes: float
    activation_bytes: float
    computes: str
    quantised_bytes: float = 0
    grain: int = GRAIN


# Bytes of a weight with its scales: fp8 blocks of 128 x 128 and MXFP4 / NVFP4 groups of 32 / 16 with an 8-bit scale, int4 groups
# of 128 with a 16-bit scale and zero (formats' specifications).
RECIPES = {
    "bf16": Recipe(2, 2, "bf16"),
    "fp16": Recipe(2, 2, "fp16"),
    "fp32": Recipe(4, 4, "fp32"),
    "tf32": Recipe(4, 4, "tf32"),
    "fp8": Recipe(1, 1, "fp8", 3),
    "fp8_block": Recipe(1 + 4 / 128**2, 1 + 4 / 128, "fp8", 3),
    "int8": Recipe(1, 1, "int8", 3),
    "nvfp4": Recipe(0.5 + 1 / 16, 0.5 + 1 / 16, "fp4", 2.5),
    "mxfp4": Recipe(0.5 + 1 / 32, 0.5 + 1 / 32, "fp4", 2.5),
    "mxfp4_weight_only": Recipe(0.5 + 1 / 32, 2, "bf16"),
    "mxfp4_mxfp8": Recipe(0.5 + 1 / 32, 1 + 1 / 32, "fp8", 3),
    "int4_fp8": Recipe(0.5 + 4 / 128, 1, "fp8", 3),
    "int4_weight_only": Recipe(0.5 + 4 / 128, 2, "bf16"),
    "int8_weight_only": Recipe(1 + 2 / 128, 2, "bf16"),
}


# Time of a product against the forward one in bf16: with the weight transposed, and with the activation transposed and fp32
# sums kept for gradients. Median over 61 shapes each on an A100 PCIe (MooreThreads/SimuMax@4dcaae5, simu_tools efficiencies).
DIRECTIONS = {"forward": 1.0, "input_gradient": 0.995, "weight_gradient": 1.045}


def gemm(
    *, card: Accelerator, m: Any, n: Any, k: Any, weight: str = "bf16", backend: str = "", activation: str = "",
    direction: str = "forward",
) -> Estimate:  # fmt: skip
    """Seconds of C[m, n] = A[m, k] B[k, n]; ``m`` counts tokens, B is the weight. m, n, k are numbers or arrays.

    ``weight``: a key of RECIPES; the activation's format follows from it (``activation`` may only repeat it, or say "bf16"
    for a weight-only scheme). Quantising the activation is included, as the back end's kernel does it. The weight is read from
    device memory, as in a server. ``direction``: a key of DIRECTIONS. Raises QuestionError for an
    unknown recipe or direction, UnmodelledError where card or recipe has no law.
    """
    name = f"{weight}_weight_only" if activation == "bf16" and f"{weight}_weight_only" in RECIPES else weight
    if name not in RECIPES:
        raise unknown_name("weight format", name, RECIPES)
    if direction not in DIRECTIONS:
        raise unknown_name("direction", direction, DIRECTIONS)
    name = _computed(card, name)
    recipe = RECIPES[name]
    chosen = law_for("gemm", backend, name, card)
    recipe = tiled(recipe, card, borrowed=chosen.law.card_class != card_class(card))
    parts = gemm_parts(chosen.constants, machine(card, recipe.computes), m=m, n=n, k=k, recipe=recipe)
    parts["compute"] = parts["compute"] * DIRECTIONS[direction]
    parts["host"] = 0.0  # of the benchmark's Python; a server replays its launches, a training step counts its own
    return Estimate(seconds=gemm_seconds(chosen.constants, parts), parts=parts, formula=FORMULA, chosen=chosen)


def tiled(recipe: Recipe, card: Accelerator, *, borrowed: bool = False) -> Recipe:
    """The recipe with the tokens by which its tiles grow on that card."""
    unpacks = recipe.weight_bytes < recipe.activation_bytes
    narrow = unpacks and (borrowed or card_class(card) in _NARROW)
    return msgspec.structs.replace(recipe, grain=NARROW_GRAIN) if narrow else recipe


def _computed(card: Accelerator, name: str) -> str:
    """The recipe as this card runs it: a format its units do not multiply is unpacked to 16 bits inside the kernel (Marlin)."""
    if card.vendor != "NVIDIA" or RECIPES[name].computes in card.flops:
        return name
    return {"fp4": "mxfp4_weight_only", "fp8": "int8_weight_only"}.get(RECIPES[name].computes, name)


def gemm_parts(
    constants: dict[str, float], on: Machine, *, m: Any, n: Any, k: Any, recipe: Recipe, warm: Any = 0
) -> dict[str, Any]:
    """Seconds of launch, of the tiles' waves, of the bytes and of quantising the activation, before they are combined.

    ``warm``: 1 where a benchmark that repeats the product finds its operands in L2 (never so in a server).
    """
    moved = n * k * recipe.weight_bytes + m * k * recipe.activation_bytes + m * n * 2
    rate = constants["bandwidth"] + warm * (constants["l2"] - constants["bandwidth"])
    compute = _waves(constants, on, m=m, n=n, k=k, recipe=recipe)
    return {
        "launch": constants["launch_us"] * 1e-6,
        "compute": compute * (1 + constants["throttle"] * compute / (compute + LONG_S)),
        "bandwidth": moved / (on.bandwidth_bytes_per_s * rate),
        "quantise": m * k * recipe.quantised_bytes / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
        "host": constants.get("host_us", 0) * 1e-6,
    }


def gemm_seconds(constants: dict[str, float], parts: dict[str, Any]) -> Any:
    """The parts combined: launch + (compute^p + bandwidth^p)^(1/p) + quantise, at least the host's time to launch them."""
    p = constants["blend"]
    device = parts["launch"] + (parts["compute"] ** p + parts["bandwidth"] ** p) ** (1 / p) + parts["quantise"]
    return larger(device, parts["host"]) if constants.get("host_us") else device


def _waves(constants: dict[str, float], on: Machine, *, m: Any, n: Any, k: Any, recipe: Recipe) -> Any:
    """Seconds of the fastest tiling: waves x (a tile's multiplications or loads + a fixed time) + a split's reduction."""
    if is_array(m) and 1 < m.size <= _TOGETHER and not (is_array(n) or is_array(k)):
        import numpy as np

        most, columns = (np.array(sizes)[:, None] for sizes in zip(*_TILINGS, strict=True))
        return reduce(smaller, _of_a_tiling(constants, on, m=m, n=n, k=k, recipe=recipe, most=most, columns=columns))
    found = (_of_a_tiling(constants, on, m=m, n=n, k=k, recipe=recipe, most=most, columns=columns) for most, columns in _TILINGS)
    return reduce(smaller, found)


def _of_a_tiling(
    constants: dict[str, float], on: Machine, *, m: Any, n: Any, k: Any, recipe: Recipe, most: Any, columns: Any
) -> Any:
    """Seconds with tiles of at most ``most`` tokens and ``columns`` outputs."""
    per_flop = on.units / (on.flops_per_s * constants["compute"])
    per_byte = on.units / (on.bandwidth_bytes_per_s * constants["l2"])
    wave_s, split_s = constants["wave_us"] * 1e-6, constants["split_us"] * 1e-6
    along = whole(m / most)
    rows = whole(m / along / recipe.grain) * recipe.grain
    tiles = along * whole(n / columns)
    loaded = smaller(rows, m / along) * recipe.activation_bytes + columns * recipe.weight_bytes
    per_k = larger(2 * rows * columns * per_flop, loaded * per_byte)
    parts = larger(1, smaller(smaller(on.units // tiles, k // LEAST_K), MOST_SPLITS))
    plain = whole(tiles / on.units) * (per_k * k + wave_s)
    split = whole(tiles * parts / on.units) * (per_k * k / parts + wave_s) + split_s * (parts > 1)
    return smaller(plain, split)
