"""A mixture-of-experts layer of one rank: permutation, the products of every active expert, activation, combination.

``t = launch + tokens + (bandwidth^p + compute^p)^(1/p)``: launches, longer with the experts that rows are sorted by; the
weights of the experts that receive a token, once; tiles of rows on
the units, as in a GEMM, for each expert; and the rows gathered, activated and summed (``tokens``). Tokens fall on experts evenly,
at random or by a power law, and the rank forecast is the busiest of its group. The router and shared experts are GEMMs of their
own. Form: SPEED 3; constants: ``laws.json``.
"""

from typing import Any

from vramcast.errors import unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.gemm import RECIPES, Recipe
from vramcast.speed.kernels.law import Estimate, larger, law_for, logarithm, smaller, whole
from vramcast.speed.kernels.machine import Machine, machine

FORMULA = "launch + tokens + (bandwidth^p + compute^p)^(1/p)"
TILES = (16, 32, 64, 128)  # rows of a tile that the grouped kernels choose from; 128 outputs wide
WIDE = 128
# How many rows the experts get: "balanced" all the same; a power law x^-(1 + a) of rows an expert, by its exponent a; "uniform"
# each token's experts drawn at random, without preference.
DISTRIBUTIONS = {"balanced": 0.0, "uniform": -1.0, "power_law_1.01": 0.01, "power_law_1.2": 0.2}
_POPULAR = (
    0.8  # most tokens that one expert of a power law receives, as the benchmark draws them (aiconfigurator, power_law_logits)
)


def moe(
    *, card: Accelerator, tokens: Any, hidden: Any, inter: Any, experts: Any, top_k: Any, weight: str = "bf16",
    backend: str = "", distribution: str = "uniform", ep: Any = 1, gated: bool = True,
) -> Estimate:  # fmt: skip
    """Seconds of the routed experts of one layer on the busiest rank.

    ``tokens``: of the whole expert-parallel group. ``inter``: width of an expert on this rank. ``experts``: of the model; a
    rank holds ``experts / ep``. ``distribution``: how tokens fall on experts, a key of DISTRIBUTIONS. ``gated``: three matrices
    an expert, else two. Raises QuestionError for an unknown format or distribution.
    """
    if weight not in RECIPES:
        raise unknown_name("weight format", weight, RECIPES)
    if distribution not in DISTRIBUTIONS:
        raise unknown_name("distribution of tokens", distribution, DISTRIBUTIONS)
    weight = "mxfp4_weight_only" if weight == "mxfp4" else weight  # engines keep bf16 activations by default (gpt-oss)
    recipe = RECIPES[weight]
    chosen = law_for("moe", backend, weight, card)
    parts = moe_parts(
        chosen.constants, machine(card, recipe.computes), tokens=tokens, hidden=hidden, inter=inter, experts=experts,
        top_k=top_k, ep=ep, recipe=recipe, matrices=3 if gated else 2, exponent=DISTRIBUTIONS[distribution],
    )  # fmt: skip
    return Estimate(seconds=moe_seconds(chosen.constants, parts), parts=parts, formula=FORMULA, chosen=chosen)


def moe_parts(
    constants: dict[str, float], on: Machine, *, tokens: Any, hidden: Any, inter: Any, experts: Any, top_k: Any, ep: Any,
    recipe: Recipe, matrices: Any, exponent: Any = -1.0,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, of the rows' own traffic, of active experts' weights and of the tiles."""
    active, rows = routed(tokens, experts, top_k, ep=ep, exponent=exponent, skew=constants["skew"])
    memory = on.bandwidth_bytes_per_s * constants["bandwidth"]
    elsewhere = larger(tokens * top_k - rows, 0) * constants["unrouted"]
    products = (((matrices - 1) * inter, hidden), (hidden, inter))
    tiles = _tiles_of(rows / active, exponent == 0)
    return {
        "launch": (constants["launch_us"] + constants.get("routing_ns", 0) * 1e-3 * experts) * 1e-6,
        "tokens": (rows + elsewhere) * (4 * hidden + 2 * matrices * inter) / memory,
        "bandwidth": active * matrices * hidden * inter * recipe.weight_bytes / memory,
        "compute": _tiles(constants, on, active=active, rows=tiles, products=products, recipe=recipe),
    }


def moe_seconds(constants: dict[str, float], parts: dict[str, Any]) -> Any:
    """The parts combined."""
    p = constants["blend"]
    return parts["launch"] + parts["tokens"] + (parts["bandwidth"] ** p + parts["compute"] ** p) ** (1 / p)


def routed(tokens: Any, experts: Any, top_k: Any, *, ep: Any, exponent: Any, skew: float = 1.0) -> tuple[Any, Any]:
    """(experts that receive a token, rows they compute) on the busiest of ``ep`` ranks; ``exponent`` as in DISTRIBUTIONS.

    The busiest rank has the mean plus ``skew`` x the expected maximum of ``ep`` draws: spread x sqrt(2 ln ep), where the spread
    of a rank's sum over its experts is the coefficient of variation of one expert's rows over sqrt(experts / ep).
    """
    total, local = tokens * top_k, experts / ep
    power, even = (exponent > 0) * 1.0, (exponent == 0) * 1.0
    by_power = _by_power(tokens, experts, top_k, larger(exponent, 0.01))
    at_random = _at_random(tokens, experts, top_k)
    touched, variation = (power * a + (1 - power) * b for a, b in zip(by_power, at_random, strict=True))
    most = (2 * logarithm(ep)) ** 0.5 * skew * (1 - even)
    rows = total / ep * (1 + most * (variation / local) ** 0.5)
    active = (1 - even) * touched / ep + even * total / ep + most * (touched / ep) ** 0.5
    return larger(1, smaller(smaller(local, active), total)), larger(1, smaller(smaller(rows, local * tokens), total))


def _at_random(tokens: Any, experts: Any, top_k: Any) -> tuple[Any, Any]:
    """(experts touched, squared variation of rows an expert) with each token's experts drawn without preference."""
    return experts * (1 - (1 - top_k / experts) ** tokens), experts / (tokens * top_k)


def _by_power(tokens: Any, experts: Any, top_k: Any, exponent: Any) -> tuple[Any, Any]:
    """The same for rows an expert drawn from x^-(1 + exponent) between 1 and the most popular expert's share."""
    total, a = tokens * top_k, exponent
    many = (total > experts) * 1.0
    most = many * larger(_POPULAR * tokens, 1.5) + (1 - many) * 200
    norm = a / (1 - most**-a)
    mean, square = norm * (most ** (1 - a) - 1) / (1 - a), norm * (most ** (2 - a) - 1) / (2 - a)
    least = smaller(larger(experts * mean / (2 * total), 1), most)  # the draw that is rounded to half a row
    touched = experts * (1 - (1 - least**-a) / (1 - most**-a))
    return smaller(larger(touched, smaller(top_k, total)), total), square / mean**2 - 1


def _tiles(constants: dict[str, float], on: Machine, *, active: Any, rows: Any, products: Any, recipe: Recipe) -> Any:
    """Seconds of the ``products`` (outputs, depth) of every active expert, ``rows`` a tile as a function of its height."""
    per_flop = on.units / (on.flops_per_s * constants["compute"])
    per_byte = on.units / (on.bandwidth_bytes_per_s * constants["l2"])
    tile_s = constants["tile_us"] * 1e-6
    best = None
    for height in TILES:
        moved = height * recipe.activation_bytes + WIDE * recipe.weight_bytes
        per_k = larger(2 * height * WIDE * per_flop, moved * per_byte)
        seconds = sum(
            larger(active * rows(height) * whole(outputs / WIDE) / on.units, 1) * (per_k * depth + tile_s)
            for outputs, depth in products
        )
        best = seconds if best is None else smaller(best, seconds)
    return best


def _tiles_of(rows: Any, even: Any) -> Any:
    """Tiles of a height that an expert's rows fill: rounded up, or half a tile more on average where rows differ."""
    return lambda height: even * whole(rows / height) + (1 - even) * larger(1, rows / height + 0.5)
