"""From the instants of a rank to the three counters: allocated, reserved by the allocator, and seen by the driver.

Allocated is the largest instant plus the matmul workspaces. Reserved follows one rule, read off runs that report both: the
caching allocator cuts its segments to the sizes of their first use, and tensors of another kind (layer temporaries, logits,
gathered blocks, gradients) seldom fit into the holes, so each kind keeps the segments of its own maximum. Batches of varying
length renew the segments of what depends on the length a few times. When the card is full the allocator gives unused segments
back and tries again (c10/cuda/CUDACachingAllocator.cpp), so reserved then ends a little above allocated.
"""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import context_bytes, cublas_workspace_bytes, nccl_bytes
from vramcast.ledger import Instant
from vramcast.training.recipe.parts import GATHERED, Recipe
from vramcast.training.streams import gradients_of

HANDLES = 2  # the forward thread and autograd's own
GENERATIONS = 2.8  # times length-dependent segments are renewed as longer batches arrive (read off 67 runs: 2.3 to 3.6)
SLACK = 1.03  # reserved over allocated at the least: rounding to 2 MiB and split remainders (eight replayed traces: 1.02 to 1.04)
EXPANDABLE_SLACK = 1.04  # partly used 20 MiB pages of an expandable segment, and its small pool
HOLE_SHARE = 0.5  # of what lives only while loading or stepping, that shares no hole with the rest
# Of the way from allocated to the card's end, where reserved has stood once unused segments were given back: half where one large
# block of equal batches did not fit; nearly all where the card fills in small steps, as batches get longer or as gathered blocks
# of another stream come back late (27 runs that ended so: 0.1 to 0.8 on one card with equal batches, 0.8 to 1.0 of the others).
AFTER_RETRY = 0.5
AFTER_SMALL_STEPS = 0.95
FORWARD = "end of forward"
BY_LENGTH = ("loss", "temporaries")
BETWEEN_STEPS = ("loss", "temporaries", "activations")  # free when the optimizer runs
PASSING = (
    ("load", "weights"),
    ("optimizer step", "temporaries"),
    ("backward of the embedding", "temporaries"),
)  # the last in holes


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """What moves reserved memory and no instant shows.

    ``loss_blocks``: distinct blocks of logits over the loss's own peak. ``retained``: bytes that pile up during backward, when
    the logits' segments are free and are cut up for them. ``guarded``: freed bytes that another stream's events still hold.
    ``streams``: bytes gathered on a stream of its own, 0 where there is only one.
    """

    loss_blocks: float = 1.0
    retained: float = 0.0
    guarded: float = 0.0
    streams: float = 0.0


def counters(
    recipe: Recipe,
    moments: tuple[Instant, ...],
    *,
    groups: tuple[int, ...],
    card: Accelerator | None,
    pieces: Pieces,
) -> tuple[int, int, int]:
    """(allocated, reserved, device) bytes of one rank. ``groups``: ranks of each NCCL communicator it belongs to."""
    workspace = (HANDLES + recipe.process.workspaces) * cublas_workspace_bytes(card)
    allocated = max(i.bytes for i in moments) + workspace
    outside = outside_allocator(recipe, groups, card)
    reserved = max(SLACK * allocated, segment_bytes(recipe, moments, pieces) + workspace)
    if card is not None and reserved + outside > card.visible_bytes >= allocated + outside:
        share = AFTER_SMALL_STEPS if recipe.task.lengths == "variable" or recipe.sharding.kind in GATHERED else AFTER_RETRY
        reserved = allocated + share * (card.visible_bytes - outside - allocated)
    return allocated, round(reserved), round(reserved + outside)


def segment_bytes(recipe: Recipe, moments: tuple[Instant, ...], pieces: Pieces) -> float:
    """Sum over kinds of each kind's maximum: what the allocator ends up holding.

    What piles up during backward and finds no room in the logits' segments is cut out of the layers' temporaries, of which a
    share is then needed anew.
    """
    if recipe.process.expandable:
        return _expandable_bytes(moments, pieces.streams) + pieces.guarded
    peaks: dict[str, int] = {}
    for moment in moments:
        for term in moment.terms:
            if (moment.name, term.name) not in PASSING:
                peaks[term.name] = max(peaks.get(term.name, 0), term.bytes)
    peaks["loss"] = round(peaks.get("loss", 0) * pieces.loss_blocks)
    renewed = (GENERATIONS - 1 if recipe.task.lengths == "variable" else 0) * sum(peaks.get(n, 0) for n in BY_LENGTH)
    passing = sum(t.bytes - peaks.get(t.name, 0) for m in moments for t in m.terms if (m.name, t.name) == PASSING[0])
    step = sum(t.bytes for m in moments for t in m.terms if (m.name, t.name) == PASSING[1])
    roomy = min(peaks["loss"], pieces.retained)
    cut = peaks.get("temporaries", 0) * (1 - roomy / pieces.retained) if pieces.retained else 0
    reused = min(_new_gradients(moments), peaks.get("activations", 0)) if recipe.recomputation.policy.kind == "none" else 0
    more = _stepping(recipe, peaks, step, renewed) + HOLE_SHARE * (max(0, passing) + cut) + pieces.guarded + pieces.streams
    return sum(peaks.values()) - roomy - reused + renewed + more


def _stepping(recipe: Recipe, peaks: dict[str, int], step: float, renewed: float) -> float:
    """What the step's temporaries need beyond the holes that forward and backward leave.

    FSDP1's shards are one block per unit, which only the logits' segments hold.
    """
    free = peaks["loss"] if recipe.sharding.kind == "fsdp1" else sum(peaks.get(n, 0) for n in BETWEEN_STEPS) + renewed
    return step - HOLE_SHARE * min(step, free)


def _expandable_bytes(moments: tuple[Instant, ...], streams: float) -> float:
    """An expandable segment for each stream, as long as its own maximum: sharded gradients have one where reduction has."""
    if not streams:
        return EXPANDABLE_SLACK * max(i.bytes for i in moments)
    computing = max(i.bytes - gradients_of(i) for i in moments)
    return EXPANDABLE_SLACK * computing + max(map(gradients_of, moments)) + streams


def _new_gradients(moments: tuple[Instant, ...]) -> int:
    """Gradients that a step makes while the activations of whole layers, none recomputed, die: they take their room."""
    sizes = {i.name: t.bytes for i in moments for t in i.terms if t.name == "gradients"}
    return max(sizes.values(), default=0) - sizes.get(FORWARD, 0)


def outside_allocator(recipe: Recipe, groups: tuple[int, ...], card: Accelerator | None) -> float:
    """Context, kernels and NCCL buffers, bytes. ``groups``: ranks of each communicator."""
    return context_bytes(card, lazy=recipe.process.lazy_modules) + sum(nccl_bytes(ranks) for ranks in groups)
