"""A mixture-of-experts layer of one rank: permutation, both products of every active expert, activation, combination.

``t = launch + bandwidth + compute``: the weights of the experts that receive a token, once, and the rows that each computes,
rounded up to the kernel's tile. The router and shared experts are GEMMs of their own. Form: SPEED 3.
"""

from typing import Any

from vramcast.errors import unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.arrays import smaller
from vramcast.speed.kernels.gemm import RECIPES, Recipe
from vramcast.speed.kernels.law import Estimate, law_for
from vramcast.speed.kernels.machine import Machine, machine

FORMULA = "launch + bandwidth + compute"
# Part of the experts that uniform routing would touch which a skewed router does touch (SPEED 2: lower by 10 to 25 %).
TOUCHED = {"uniform": 1.0, "balanced": 1.0, "power_law_1.01": 0.88, "power_law_1.2": 0.8}


def moe(
    *, card: Accelerator, tokens: Any, hidden: Any, inter: Any, experts: Any, top_k: Any, weight: str = "bf16",
    backend: str = "", distribution: str = "uniform", ep: Any = 1, gated: bool = True,
) -> Estimate:  # fmt: skip
    """Seconds of the routed experts of one layer on one rank.

    ``tokens``: of the whole expert-parallel group. ``inter``: width of an expert on this rank. ``experts``: of the model; this
    rank holds ``experts / ep``. ``distribution``: how tokens fall on experts, a key of TOUCHED. ``gated``: three matrices
    an expert, else two. Raises QuestionError for an unknown format or distribution.
    """
    if weight not in RECIPES:
        raise unknown_name("weight format", weight, RECIPES)
    if distribution not in TOUCHED:
        raise unknown_name("distribution of tokens", distribution, TOUCHED)
    recipe = RECIPES[weight]
    chosen = law_for("moe", backend, weight, card)
    parts = moe_parts(
        chosen.law.constants, machine(card, recipe.computes), tokens=tokens, hidden=hidden, inter=inter, experts=experts,
        top_k=top_k, ep=ep, recipe=recipe, matrices=3 if gated else 2, touched=TOUCHED[distribution],
    )  # fmt: skip
    return Estimate(seconds=moe_seconds(parts), parts=parts, formula=FORMULA, chosen=chosen)


def moe_parts(
    constants: dict[str, float], on: Machine, *, tokens: Any, hidden: Any, inter: Any, experts: Any, top_k: Any, ep: Any,
    recipe: Recipe, matrices: int, touched: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, of active experts' weights with the tokens' own traffic, and of the padded rows' FLOPs."""
    active, rows = rows_computed(tokens, experts, top_k, ep=ep, tile=constants["tile"], touched=touched)
    routed = tokens * top_k / ep
    moved = active * matrices * hidden * inter * recipe.weight_bytes + routed * (4 * hidden + 2 * matrices * inter)
    return {
        "launch": constants["launch_us"] * 1e-6,
        "bandwidth": moved / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
        "compute": 2 * matrices * rows * hidden * inter / (on.flops_per_s * constants["compute"]),
    }


def moe_seconds(parts: dict[str, Any]) -> Any:
    """The parts combined."""
    return parts["launch"] + parts["bandwidth"] + parts["compute"]


def rows_computed(
    tokens: Any, experts: Any, top_k: Any, *, ep: Any = 1, tile: float = 64, touched: float = 1.0
) -> tuple[Any, Any]:
    """(experts of this rank that receive a token, rows they compute with each padded to half a tile on average)."""
    local = experts / ep
    active = local * (1 - (1 - top_k / experts) ** tokens) * touched
    routed = tokens * top_k / ep
    return active, routed + smaller(active * tile / 2, active * tile)
