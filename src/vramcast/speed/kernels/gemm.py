"""A matrix product: the faster of the tilings its library has, over the units, against the bytes that must move.

``t = launch + (compute^p + bandwidth^p)^(1/p)``. Compute is counted in waves of tiles: a tile of bm x bn outputs runs on one
unit, ``units`` of them at a time, and a first wave that is not full is filled by splitting k. Source of the form: NVIDIA,
"Matrix Multiplication Background" (tile and wave quantisation); of the constants: ``laws.json``.
"""

from typing import Any

import msgspec

from vramcast.errors import unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.arrays import larger, smaller, whole
from vramcast.speed.kernels.law import Estimate, law_for
from vramcast.speed.kernels.machine import Machine, machine

TILES = (
    (256, 128), (128, 256), (128, 192), (128, 128), (64, 256), (64, 128), (128, 64), (64, 64), (32, 128), (16, 128),
)  # fmt: skip
LEAST_K = 512  # k of one part of a split: below it the reduction costs more than the unit it fills
MOST_SPLITS = 16
FORMULA = "launch + (compute^p + bandwidth^p)^(1/p)"


class Recipe(msgspec.Struct, frozen=True):
    """How a product is stored and computed: bytes of a weight with its scales and of an activation, and its format."""

    weight_bytes: float
    activation_bytes: float
    computes: str


# Bytes of a weight with its scales: fp8 blocks of 128 x 128 and MXFP4 / NVFP4 groups of 32 / 16 with an 8-bit scale, int4 groups
# of 128 with a 16-bit scale and zero (formats' specifications).
RECIPES = {
    "bf16": Recipe(2, 2, "bf16"),
    "fp16": Recipe(2, 2, "fp16"),
    "fp32": Recipe(4, 4, "fp32"),
    "tf32": Recipe(4, 4, "tf32"),
    "fp8": Recipe(1, 1, "fp8"),
    "fp8_block": Recipe(1 + 4 / 128**2, 1 + 4 / 128, "fp8"),
    "int8": Recipe(1, 1, "int8"),
    "nvfp4": Recipe(0.5 + 1 / 16, 0.5 + 1 / 16, "fp4"),
    "mxfp4": Recipe(0.5 + 1 / 32, 0.5 + 1 / 32, "fp4"),
    "int4_weight_only": Recipe(0.5 + 4 / 128, 2, "bf16"),
    "int8_weight_only": Recipe(1 + 2 / 128, 2, "bf16"),
}


def gemm(*, card: Accelerator, m: Any, n: Any, k: Any, weight: str = "bf16", backend: str = "", activation: str = "") -> Estimate:
    """Seconds of C[m, n] = A[m, k] B[k, n]; ``m`` counts tokens, B is the weight. m, n, k are numbers or arrays.

    ``weight``: a key of RECIPES; the activation's format follows from it (``activation`` may only repeat it, or say "bf16"
    for a weight-only scheme). Quantising the activation is included, as the back end's kernel does it. Raises QuestionError for
    an unknown recipe, UnmodelledError where the card or the recipe has no law.
    """
    name = f"{weight}_weight_only" if activation == "bf16" and f"{weight}_weight_only" in RECIPES else weight
    if name not in RECIPES:
        raise unknown_name("weight format", name, RECIPES)
    recipe = RECIPES[name]
    chosen = law_for("gemm", backend, name, card)
    parts = gemm_parts(chosen.law.constants, machine(card, recipe.computes), m=m, n=n, k=k, recipe=recipe)
    return Estimate(seconds=gemm_seconds(chosen.law.constants, parts), parts=parts, formula=FORMULA, chosen=chosen)


def gemm_parts(constants: dict[str, float], on: Machine, *, m: Any, n: Any, k: Any, recipe: Recipe) -> dict[str, Any]:
    """Seconds of launch, of the tiles' waves and of the bytes, before they are combined."""
    moved = n * k * recipe.weight_bytes + m * k * recipe.activation_bytes + m * n * 2
    return {
        "launch": constants["launch_us"] * 1e-6,
        "compute": _waves(constants, on, m, n, k),
        "bandwidth": moved / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
    }


def gemm_seconds(constants: dict[str, float], parts: dict[str, Any]) -> Any:
    """The parts combined: launch + (compute^p + bandwidth^p)^(1/p)."""
    p = constants["blend"]
    return parts["launch"] + (parts["compute"] ** p + parts["bandwidth"] ** p) ** (1 / p)


def _waves(constants: dict[str, float], on: Machine, m: Any, n: Any, k: Any) -> Any:
    per_unit = on.flops_per_s / on.units * constants["compute"]
    edge, wave_s = constants["edge"], constants["wave_us"] * 1e-6
    largest = _share(*TILES[0], edge)
    best = None
    for rows, columns in TILES:
        tiles = whole(m / rows) * whole(n / columns)
        split = _split(tiles, on.units, k)
        work = 2 * rows * columns * k / split / (per_unit * _share(rows, columns, edge) / largest)
        seconds = whole(tiles * split / on.units) * (work + wave_s)
        best = seconds if best is None else smaller(best, seconds)
    return best


def _split(tiles: Any, units: Any, k: Any) -> Any:
    """Parts along k that fill an unfilled first wave, at least LEAST_K deep each."""
    return larger(1, smaller(smaller(units // tiles, k // LEAST_K), MOST_SPLITS))


def _share(rows: int, columns: int, edge: float) -> float:
    """Part of its time that a tile multiplies: its area against the edges it loads."""
    return rows * columns / (rows * columns + edge * (rows + columns))
