"""What is known of the layers that run: whether their class was read, and how far its traced layers were from the formulas."""

from functools import cache
from statistics import quantiles

from vramcast.ledger import Assumption, RankMemory, Unmodelled
from vramcast.models.classes import Traced, model_class, model_classes
from vramcast.training.recipe.parts import Recipe

SHOWN = 0.05
"""A traced error beyond this stands among what is not modelled; a smaller one among what was assumed."""


def unread_layers(recipe: Recipe) -> tuple[Unmodelled, ...]:
    """What the answer says where the layers that run belong to a class whose modelling file nobody read."""
    modules = recipe.kernels.modules
    if not modules or model_class(modules).layer is not None:
        return ()
    return (Unmodelled(f"how {modules} writes its layers was not read: activations are those of Llama's operations"),)


def traced_error(recipe: Recipe) -> Traced | None:
    """The error of the class's traced layers, that of nine in ten traced classes where it has none.

    None where a framework brings layers of its own.
    """
    modules = recipe.kernels.modules
    return (model_class(modules).traced or usual_error()) if modules else None


@cache
def usual_error() -> Traced:
    """The errors that nine in ten of the traced classes keep within."""
    rows = [row.traced for row in model_classes() if row.traced]
    return Traced(**{f: quantiles([getattr(r, f) for r in rows], n=10)[-1] for f in Traced.__struct_fields__})


def slack_bytes(recipe: Recipe, rank: RankMemory) -> int:
    """How far the peak may be off for the layers' sake, bytes: what waits and the live layer, times their errors."""
    error = traced_error(recipe)
    if error is None:
        return 0
    peak = {term.name: term.bytes for term in rank.peak.terms}
    waiting = error.kept if recipe.recomputation.policy.kind == "full" else error.saved
    return round(waiting * peak.get("activations", 0) + max(error.forward, error.backward) * peak.get("temporaries", 0))


def traced_notes(recipe: Recipe, ranks: tuple[RankMemory, ...]) -> tuple[tuple[Assumption, ...], tuple[Unmodelled, ...]]:
    """The same in words, for the lists of the answer: what was assumed, or, where it is more than ``SHOWN``, not modelled."""
    error, modules = traced_error(recipe), recipe.kernels.modules
    if error is None:
        return (), ()
    worst, bound = max(getattr(error, f) for f in Traced.__struct_fields__), max(slack_bytes(recipe, rank) for rank in ranks)
    if model_class(modules).traced is None:
        said = f"no layer of {modules} was traced: nine in ten classes' were within {worst:.0%} of these formulas"
        return (), (Unmodelled(said, bound),)
    if worst > SHOWN:
        tops = max(error.forward, error.backward)
        said = f"traced {modules} layers were off by up to {error.saved:.1%} in what waits for backward, {tops:.1%} at their top"
        return (), (Unmodelled(said, bound),)
    because = "the largest error over traced layers of the class, truth/traced/activations.jsonl"
    return (Assumption("traced_error", round(worst, 3), because),), ()
