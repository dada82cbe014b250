"""One instant of a step in named terms: the steady states, and what is alive at that moment beside them."""

from collections.abc import Iterator

from vramcast.ledger import Instant, Term
from vramcast.training import reasons
from vramcast.training.gathers import NONE, Whole, secondary
from vramcast.training.pipeline_engine import between_stages
from vramcast.training.recipe.parts import width
from vramcast.training.scene import Scene, finds_gradients
from vramcast.training.towers import opened_by
from vramcast.units import gib

STEP = "optimizer step"


def _secondary(s: Scene) -> float:
    held = s.held
    return secondary(s.recipe, held.trained + held.expert_trained + held.frozen, s.parallel.hpz)


def _buckets(s: Scene) -> tuple[float, str]:
    """Flat buffers and their sum: DeepSpeed's buckets and pipeline outputs, or DDP's own copy of the gradients."""
    each = width(s.recipe.precision.compute)
    copied = s.states.gradients if s.recipe.sharding.ddp_buckets else 0.0
    outputs = between_stages(s.recipe, s.stage, s.parallel, micro_batches=s.micro_batches)
    parts = (
        (copied, "DDP's copy of the gradients"),
        (s.recipe.sharding.bucket_elements * each, f"buckets of {s.recipe.sharding.bucket_elements:,} elements x {each} B"),
        (outputs * s.layers.boundary, f"{outputs:g} outputs between stages x {gib(s.layers.boundary)}"),
    )
    return sum(size for size, _ in parts), " + ".join(why for size, why in parts if size)


def instant(name: str, s: Scene, *, gathered: Whole = NONE, told: tuple[str, str] | None = None, **sizes: float) -> Instant:
    """An instant from the steady states and the sizes alive at it; gradients already present when micro-batches accumulate.

    ``told``: formula and source of the temporaries, where they are not a layer's.
    """
    if "gradients" not in sizes:
        sizes["gradients"] = s.states.gradients if finds_gradients(s) else 0.0
    if s.recipe.precision.low_gradients and name != STEP:
        sizes["gradients"] += s.held.trained * width(s.recipe.precision.low_gradients)
    whole = s.recipe.sharding.whole_accumulation != "none" and s.micro_batches > 1 and name != STEP
    if whole and (sizes["gradients"] or not s.recipe.task.longest_first):
        sizes["gradients"] = s.states.whole_gradients
    return Instant(name=name, terms=tuple(_terms(s, sizes, gathered, told or (s.layers.why, reasons.SOURCES["temporaries"]))))


def _why_gradients(s: Scene, size: float) -> str:
    if s.recipe.sharding.whole_accumulation != "none" and size == s.states.whole_gradients:
        return reasons.whole_gradients(s.held, s.recipe)
    own = size == s.states.step_gradients < s.states.gradients
    return reasons.gradients(s.held, s.recipe, s.shards, own=own)


def _terms(s: Scene, sizes: dict[str, float], gathered: Whole, told: tuple[str, str]) -> Iterator[Term]:
    """The named terms of an instant, largest parts first in the order of their life."""
    states, held, recipe = s.states, s.held, s.recipe
    kept = reasons.activations(recipe, depth=s.stage.layers, in_flight=s.stage.in_flight, tokens=s.tokens)
    parts = {
        "weights": (states.weights, reasons.weights(held, recipe, s.shards)),
        "gradients": (sizes["gradients"], _why_gradients(s, sizes["gradients"])),
        "optimizer": (states.optimizer, reasons.optimizer_states(held, recipe, s.shards)),
        "master_weights": (states.master, reasons.master(held, recipe, s.shards)),
        "secondary_weights": (_secondary(s), reasons.secondary(held, recipe, s.parallel.hpz)),
        "communication": _buckets(s),
        "activations": (sizes.get("activations", 0.0) + sizes.get("tower", 0.0), kept),
        "loss": (sizes.get("loss", 0.0), s.loss.why),
        "gathered": (gathered.bytes, gathered.why),
        "temporaries": (sizes.get("temporaries", 0.0), told[0]),
        "gradient_copy": (sizes.get("gradient_copy", 0.0), reasons.gradient_copy(held, recipe, s.shards)),
        "overflow_check": (sizes.get("overflow", 0.0), "the largest gradient in float32"),
    }
    for name, (size, why) in parts.items():
        if size:
            source = told[1] if name == "temporaries" else reasons.source_of(name, recipe)
            opened = _saved(s, sizes) if name == "activations" else ()
            yield Term(
                name=name,
                bytes=sum(t.bytes for t in opened) or round(size),
                why=f"{why} = {gib(size)}",
                source=source,
                terms=opened,
            )


def _saved(s: Scene, sizes: dict[str, float]) -> tuple[Term, ...]:
    """What waits for backward by the operation that made it, while all of it waits; what images left beside it."""
    text, tower = sizes.get("activations", 0.0), sizes.get("tower", 0.0)
    each = s.stage.layers * s.tokens
    whole = text and text == s.layers.waiting
    opened = tuple(
        Term(name=f"saved.{name}", bytes=round(part), why=f"{part / each:,.0f} B per token and layer on average")
        for name, part in (s.layers.parts if whole else ())
    )
    return opened_by(s.sight, opened, text=text, tower=tower)
