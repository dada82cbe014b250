"""Reserved memory by the allocator model: two steps of the forecast's own events, in order.

What the caching allocator ends up holding follows from the order and the sizes of requests, which no sum of maxima knows: logits
leave blocks that layers cut up, gradients of one step are the room of the next forward. Each layer's tape already says what is
allocated when; here it is run, layer by layer, through the model of c10/cuda/CUDACachingAllocator.cpp that replays traces.

Replayed are steps whose every event is known: whole copies of a model (one card, DDP) and units cut up by FSDP, layers run
eagerly, logits whole, batches of one length. All else keeps the closed form of counters.py, and so does a search. A kind of layer
is walked once: what its forward and its backward ask of memory is written down as events, and the layers of that kind run those.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import cublas_workspace_bytes
from vramcast.models.inventory import Block as Layer
from vramcast.models.inventory import by_identity
from vramcast.tracing.allocator.blocks import Block
from vramcast.tracing.allocator.caching import CachingAllocator
from vramcast.tracing.allocator.expandable import ExpandableAllocator
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.training.activations.layer import layer_tape
from vramcast.training.activations.layers import StageLayers
from vramcast.training.activations.tape import Tape
from vramcast.training.gathers import is_cut
from vramcast.training.layer_events import GRADIENT, LayerEvents
from vramcast.training.loss import WHOLE_LOGITS
from vramcast.training.methods import code_width
from vramcast.training.recipe.parts import Recipe, width
from vramcast.training.structure import Rank, StepNumbers, Structure, rank_of

STEPS = 2  # the second finds the optimizer's states there, and the segments that the first one left
FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20  # torch 2.13, c10d/reducer.hpp, nn/parallel/distributed.py: bucket_cap_mb
EMBEDDING, HEAD = -1, -2  # units that are no layers
Held = Block | None


def reserved_share(rank: Rank, numbers: StepNumbers, card: Accelerator | None) -> float | None:
    """Reserved over allocated, both at their peaks, of a replayed step; None where it is not all known.

    Falls short where the replay's peak lies below the ledger's, by which the share is multiplied: under ZeRO 1 with short
    sequences the replay frees gradients that the bucket took, which the ledger counts whole, and reserved comes out too
    high (Qwen2.5 1.5B on 4 cards at 512 tokens: the replay reserves 15.2 GiB at a peak of 10.2 GiB, the ledger's is 11.2,
    and 16.7 GiB are told; from 1,000 tokens on both peaks agree). A longer sequence may so seem to need less.
    """
    step = _step_of(rank)
    if step is None or not _eager(rank):
        return None
    return _share(rank.structure, numbers, cublas_workspace_bytes(card), step)


def _step_of(rank: Rank) -> "type[Step] | None":
    """The replay of the rank's sharding, imported where it is asked for; None where not every event of the sharding is known."""
    kind, update = rank.recipe.sharding.kind, rank.recipe.update
    found = _STEPS.get(kind)
    known = _partitions(rank) if kind.startswith("zero") else not (update.flattens or update.master)
    if not known or rank.structure.parallel.model_ranks > 1 or rank.recipe.sharding.offload:
        return None
    if kind in ("none", "ddp"):
        return Step
    if found is None or code_width(rank.recipe) or rank.recipe.sharding.quantized_gathers:
        return None
    if kind.startswith("fsdp") and rank.accumulates:
        return None
    if kind.startswith("fsdp") and not is_cut(rank.recipe, rank.units):
        return Step
    step: type[Step] = getattr(import_module(f"vramcast.training.{found[0]}"), found[1])
    return step


_STEPS = {
    "fsdp1": ("replay_fsdp1", "FlatStep"),
    "fsdp2": ("replay_fsdp2", "ShardedStep"),
    "zero1": ("replay_zero", "PartitionedStep"),
    "zero2": ("replay_zero", "PartitionedStep"),
    "zero3": ("replay_zero3", "FetchedStep"),
}


def _eager(rank: Rank) -> bool:
    """Whether every event of the layers, the loss and the batches is known, whatever shards them."""
    recipe = rank.recipe
    empties = recipe.framework == "peft_bench"  # its cache, every tenth step (method_comparison/MetaMathQA/run.py)
    plain = not rank.kind.towers and isinstance(rank.kind.layers, StageLayers) and rank.kind.prediction_heads == 1
    eager = not (recipe.kernels.compiled or recipe.task.eval_batch or recipe.task.saves)
    policy = recipe.recomputation.policy.kind in ("none", "full") and not recipe.recomputation.reentrant
    one = recipe.task.lengths != "variable" and not empties and not recipe.task.frozen_copies and not recipe.task.trained_copies
    step = recipe.update.implementation != "in_backward"
    return plain and eager and policy and one and step and recipe.loss.kind in WHOLE_LOGITS


def _partitions(rank: Rank) -> bool:
    """Whether every event of DeepSpeed's engine is known: 16-bit weights, float32 masters, below stage 3 one micro-batch."""
    update = rank.recipe.update
    engine = update.flattens and update.master == "float32" and not update.checks_overflow
    cut = rank.recipe.sharding.kind == "zero3"  # whose gradients of every micro-batch take the same way
    return engine and width(rank.recipe.precision.weights) == 2 and (cut or not rank.accumulates)


@by_identity(1, most=64)
def _share(structure: Structure, numbers: StepNumbers, workspace: int, step: "type[Step]") -> float:
    expandable = structure.recipe.process.expandable
    kind = ExpandableAllocator if expandable else CachingAllocator
    allocator = kind(AllocatorSettings(expandable_segments=expandable))
    step(rank_of(structure.ranks[0], structure, numbers), allocator, workspace).run()
    return allocator.peak_reserved_bytes / allocator.peak_allocated_bytes


class Memory:
    """The allocator as a step sees it: sizes that may be nothing, blocks that may be none."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self.allocator = allocator

    def take(self, size: Any, stream: int = 0) -> Held:
        return self.allocator.malloc(int(size), stream) if size >= 1 else None

    def give(self, *blocks: Held) -> None:
        for block in blocks:
            if block is not None:
                self.allocator.free(block)

    def run(self, events: list[tuple[int, int]], held: list[Held], gradients: Callable[[int], None]) -> None:
        """A pass's events over its own list of blocks."""
        malloc, free = self.allocator.malloc, self.allocator.free
        for place, size in events:
            if place == GRADIENT:
                gradients(size)
            elif size:
                held[place] = malloc(size)
            elif (block := held[place]) is not None:
                free(block)


def tensors_of(block: Layer, recipe: Recipe) -> list[float]:
    """Elements of each tensor of a block; experts that are one tensor have gate and up in it (transformers 5)."""
    found: list[float] = []
    before = ""
    for t in (t for t in block.tensors if t.kind != "buffer"):
        if recipe.kernels.fused_experts and (before, t.role) == ("expert.gate", "expert.up"):
            found[-1] += t.elements
        else:
            found.append(float(t.elements))
        before = t.role
    return found


class Step:
    """Steps of one rank: weights, then forward, loss, backward and optimizer, as often as it takes to be steady."""

    def __init__(self, rank: Rank, allocator: CachingAllocator, workspace: int) -> None:
        self.rank, self.recipe, self.memory, self.workspace = rank, rank.recipe, Memory(allocator), workspace
        model, style = rank.structure.model, rank.kind.style
        self.model, self.style, self.seq = model, style, rank.tokens / max(1, rank.rows)
        own = {id(block): LayerEvents(self._tape(block)) for block in model.blocks}
        self.layers = [own[id(block)] for block in model.layer_list()]
        self.full = self.recipe.task.method == "full"
        outer = [t for t in model.tensors if t.kind != "buffer"]
        self.tensors = [float(t.elements) for t in outer if t.role == "embedding"]
        self.tensors += [n for b in model.layer_list() for n in tensors_of(b, self.recipe)]
        self.tensors += [t.elements for t in outer if t.role != "embedding"]
        self.recomputes = self.recipe.recomputation.policy.kind == "full"
        self.gradients: list[Held] = []
        self.named: list[Held] = []
        self.begin()

    def begin(self) -> None:
        """What a sharded step prepares."""

    def load(self) -> None:
        """Weights come to the card."""
        self._spread(self.rank.states.weights.value)

    def enter(self, unit: int) -> None:
        """A unit's forward begins: a layer's by its place, or one of the ends."""

    def leave(self, unit: int) -> None:
        """It is over."""

    def turn(self) -> None:
        """The model's forward, and with it the loss, is over."""

    def enter_backward(self, unit: int) -> None:
        """A unit's backward begins, with what it computes again."""

    def leave_backward(self, unit: int) -> None:
        """Its input's gradient is there."""

    def _tape(self, block: Any) -> Tape:
        rank = self.rank
        return layer_tape(block, rank.kind.style, hidden=rank.structure.model.hidden, tokens=rank.tokens, seq=self.seq)

    def run(self) -> None:
        """All steps."""
        self.load()
        buckets = self._buckets(first=True)
        for step in range(STEPS):
            if step:
                self.memory.give(*buckets)
                buckets = self._buckets(first=False)
            for batch in range(2 if self.rank.accumulates else 1):
                self._batch(first=step + batch == 0, adds=batch > 0)
            self.update(first=not step)

    def _buckets(self, *, first: bool) -> list[Held]:
        """DDP's buckets: one of all gradients, and from the second step on as many as fill up in the order in which these come.

        Sources: torch 2.13, nn/parallel/distributed.py, compute_bucket_size_limits (one where no parameter goes unused);
        c10d/reducer.cpp, rebuild_buckets and compute_bucket_assignment_by_size (a bucket is full when it reaches its limit).
        """
        size = self.rank.states.gradients.value if self.recipe.sharding.ddp_buckets else 0
        if first or not size:
            return [self.memory.take(size)]
        whole, limit, filled, found = sum(self.tensors), FIRST_BUCKET_BYTES, 0.0, list[Held]()
        for elements in reversed(self.tensors):
            filled += size * elements / whole
            if filled >= limit:
                found.append(self.memory.take(filled))
                filled, limit = 0.0, BUCKET_BYTES
        return [*found, self.memory.take(filled)]

    def update(self, *, first: bool) -> None:
        """The optimizer's step; its first makes the states."""
        if first:  # torch 2.13, optim/adamw.py, _init_group: both moments of one tensor, then of the next
            self._spread(self.rank.states.optimizer.value / 2, each=2)
        self.memory.give(*self._spread(self.rank.states.step_copy.value))
        if self.recipe.update.frees_gradients:
            self.memory.give(*self.gradients)
            self.gradients = []

    def _spread(self, size: Any, *, each: int = 1) -> list[Held]:
        """That size by tensor, in so many blocks of ``each`` that follow one another."""
        whole, parts = sum(self.tensors), [n for n in self.tensors for _ in range(each)] if size else []
        return [self.memory.take(size * n / whole) for n in parts]

    def _batch(self, *, first: bool, adds: bool) -> None:
        memory, boundary = self.memory, self.rank.layers.boundary
        if first:
            memory.take(self.workspace)
        cached: list[Held] = []
        waiting: list[tuple[Held, LayerEvents, list[Held]]] = []
        self.enter(EMBEDDING)
        stream = memory.take(boundary)
        self.leave(EMBEDDING)
        for place, layer in enumerate(self.layers):
            self.enter(place)
            held = self._forward(layer, keeps=not self.recomputes, cached=cached)
            self.leave(place)
            if not (self.recomputes or layer.reads_input):
                memory.give(stream)
                stream = None
            waiting.append((stream, layer, held))
            output = layer.drops_output if self.recomputes else layer.output
            stream = None if output is None else held[output]
        gradient = self._loss(cached, first=first, adds=adds)
        memory.give(stream)
        for place, (given, layer, kept) in reversed([*enumerate(waiting)]):
            self.enter_backward(place)
            held = self._forward(layer, keeps=True, cached=[]) if self.recomputes else kept
            if self.recomputes:
                memory.give(None if layer.output is None else held[layer.output])
            held[layer.given] = gradient
            memory.run(layer.back, held, lambda size: self._gradient(size, adds=adds))
            gradient = None if layer.result is None else held[layer.result]
            self.leave_backward(place)
            memory.give(given)
        self.enter_backward(EMBEDDING)
        self._embedding(gradient, adds=adds)
        self.leave_backward(EMBEDDING)
        memory.give(*self.named)
        self.named = []

    def _forward(self, layer: LayerEvents, *, keeps: bool, cached: list[Held]) -> list[Held]:
        """One layer's forward; the blocks of its pass by place."""
        held: list[Held] = [None] * (layer.places if keeps else layer.drops_places)
        self.memory.run(layer.keeps if keeps else layer.drops, held, lambda _size: None)
        cached += [None if place is None else held[place] for place in (layer.cached if keeps else layer.cached_dropped)]
        return held

    def _gradient(self, size: Any, *, adds: bool) -> None:
        """A gradient that stays, or that is added to one that is there."""
        block = self.memory.take(size)
        if adds:
            self.memory.give(block)
        else:
            self.gradients.append(block)

    def _embedding(self, gradient: Held, *, adds: bool) -> None:
        """Its gradient has a matrix of its own, which a tied head's takes in."""
        if self.full:
            size = self.model.vocab * self.model.hidden * width(self.recipe.precision.backward_gradients)
            self._gradient(size, adds=adds or self.model.tied)
        self.memory.give(gradient)

    def _loss(self, cached: list[Held], *, first: bool, adds: bool) -> Held:
        """Norm, head, cross entropy and their backward, to the gradient of the last layer's output."""
        take, give, w, recipe = self.memory.take, self.memory.give, self.style.width, self.recipe
        states, logits = self.rank.tokens * self.model.hidden, self.rank.tokens * recipe.loss.scored * self.model.vocab
        eager = recipe.kernels.norm == "eager"
        self.enter(HEAD)
        normed = [take(states * 4) if eager else None, take(states * w)]
        head = take(self.model.vocab * self.model.hidden * w if self._casts_head() else 0)
        made, squashed = take(logits * w), None
        self.leave(HEAD)
        if recipe.loss.logits_softcap:
            divided = take(logits * w)
            give(made)
            squashed = take(logits * w)
            give(divided)
            made = take(logits * w)
        gradient = (self._direct if recipe.loss.direct_loss else self._upcast)(logits, made, cached)
        for held in (None, squashed, None) if squashed is not None else ():  # of the product, the tanh and the quotient
            through = take(logits * w)
            give(gradient, held)
            gradient = through
        self.enter_backward(HEAD)
        if first:
            take(self.workspace)
        if self.rank.kind.trains_head and self.full:
            self._gradient(self.model.vocab * self.model.hidden * width(recipe.precision.backward_gradients), adds=adds)
        narrow = take(states * w)
        self.leave_backward(HEAD)
        give(gradient, head, *normed)
        wide = take(self.rank.layers.boundary)
        give(narrow)
        return wide

    def _casts_head(self) -> bool:
        """Whether autocast copies the head (loss.py)."""
        held = (
            self.recipe.precision.weights if self.full else self.recipe.quantization.unquantized or self.recipe.precision.frozen
        )
        return self.recipe.precision.autocast and width(held) > self.style.width

    def _upcast(self, logits: Any, made: Held, cached: list[Held]) -> Held:
        """A float copy and its log-softmax; two float gradients; one as narrow as the logits.

        The logits live through backward where a variable of the loop names them.
        """
        take, give, w, loss = self.memory.take, self.memory.give, self.style.width, self.recipe.loss
        work = 4 if loss.logits_upcast else w
        wide = take(logits * work) if work != w or loss.logits_kept else made
        if wide is not made and not loss.logits_kept:
            give(made)
            made = None
        shifted = take(logits * work) if loss.kind == "eager" and self.rank.rows > 1 else None
        softmax = take(logits * work)
        give(*cached)
        self.named = [made if wide is not made else None] if loss.holds_logits else []
        give(shifted, wide, None if loss.holds_logits or wide is made else made)
        cached.clear()
        self.turn()
        through = take(logits * work)
        gradient = take(logits * work)
        give(through, softmax)
        narrow = take(logits * w) if work != w else gradient
        give(gradient if narrow is not gradient else None)
        return narrow

    def _direct(self, logits: Any, made: Held, cached: list[Held]) -> Held:
        """The log-softmax as wide as the logits, float for the rest under autocast (loss.py)."""
        take, give, w = self.memory.take, self.memory.give, self.style.width
        softmax = take(logits * w)
        wide = take(logits * 4) if self.recipe.precision.autocast and w < 4 else None
        self.named = [made] if self.recipe.loss.holds_logits else []
        give(None if self.named else made, *cached)
        cached.clear()
        self.turn()
        through = take(logits * (4 if wide else w))
        give(wide)
        narrow = take(logits * w) if wide else through
        give(through if narrow is not through else None)
        gradient = take(logits * w)
        give(narrow, softmax)
        return gradient
