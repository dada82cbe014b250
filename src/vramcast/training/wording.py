"""The words in which a term says what waits for backward."""

from vramcast.quantity import Quantity
from vramcast.training.recipe.parts import Recipe
from vramcast.training.structure import Rank


def saved_text(rank: Rank, size: Quantity) -> str:
    """What waits for backward, by policy, and how much of it a token and layer leave on average."""
    recipe, depth = rank.recipe, rank.kind.stage.layers
    each = size.value / (rank.tokens * depth * rank.in_flight)
    passes = f" x {rank.in_flight:g} passes in flight" if rank.in_flight > 1 else ""
    return f"{rank.tokens:,.0f} tokens x {depth} layers{passes} x {each:,.6g} B of {_kept_text(recipe)}"


def _kept_text(recipe: Recipe) -> str:
    policy, kernels = recipe.recomputation.policy, recipe.kernels
    words = {
        "full": "each layer's input",
        "offloaded": "nothing but masks: inputs are moved to the host",
        "op": "each layer's input and chosen outputs",
        "uniform": f"the input of every {policy.layers} layers",
        "block": f"the input of {policy.layers} layers, and all that the others save",
        "modules": f"what a layer saves outside {', '.join(policy.modules)}",
    }
    saved = f"what {kernels.attention} attention, {kernels.norm} norms and {kernels.glu} MLPs save"
    return words.get(policy.kind, saved)
