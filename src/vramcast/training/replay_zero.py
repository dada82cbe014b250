"""A step under DeepSpeed's ZeRO 1 and 2, replayed: weights in one flat block, gradients through a bucket to this rank's part.

The flat copy is made beside the model's own tensors, whose blocks are then what later steps carve from. A gradient that fits into
the bucket is copied there and freed; one that does not waits for the next. What belongs to this rank's part (the first rank's:
it begins with the embedding) is copied into a buffer of its own, which the step makes flat once more and in float32.

Sources, DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py: __init__ (flatten_on_accelerator since 0.19; before, weights went over
the host and the cache was emptied), initialize_optimizer_states, reduce_independent_p_g_buckets_and_remove_grads,
reduce_ipg_grads, copy_grads_in_partition, independent_gradient_partition_epilogue, get_grad_norm_direct, step. Held against
traces: benchmarks/tracing.
"""

from typing import Any

from vramcast.training.recipe.parts import width
from vramcast.training.replay import EMBEDDING, HEAD, Held, Step

REDUCES = 1  # the stream of the reduction, where it overlaps with backward


class PartitionedStep(Step):
    """The first rank's steps: the layers' own events, their gradients reduced to its part."""

    def begin(self) -> None:
        """Elements that are trained, those of this rank's part, and the bucket."""
        held, recipe = self.rank.kind.held, self.recipe
        self.trained = held.trained.total + held.adapter.total
        self.part = self.rank.states.master.value / width(recipe.update.master)
        touched = self._touched()
        self.whole, self.alone = sum(touched), len(touched) == 1
        self.narrow = width(recipe.precision.backward_gradients)
        self.at = EMBEDDING  # the unit whose backward runs
        self.overlaps = recipe.sharding.overlaps
        self.room = recipe.sharding.bucket
        self.buckets: list[Held] = []
        self.own: Held = None  # gradients of this rank's part
        self.waiting: tuple[Held, bool] | None = None  # a gradient larger than the bucket, and whether it is of the part
        self.tied: Held = None
        self.seen = self.filled = 0.0
        self.holds_own = False  # whether gradients in the bucket are of the part

    def _touched(self) -> list[float]:
        """Elements of the tensors that this rank's part touches, the last of them whole (params_in_partition)."""
        if not self.full:
            return [self.part]
        found: list[float] = []
        for elements in self.tensors:
            if sum(found) >= self.part:
                break
            found.append(elements)
        return found

    def load(self) -> None:
        """The model's tensors, the flat copy of what is trained, and this rank's masters."""
        take, give = self.memory.take, self.memory.give
        apart = self._spread(self.rank.states.weights.value)
        if self.full and self.recipe.sharding.flattens_beside:
            take(self.trained * self.narrow)
            give(*apart)
        elif self.full:
            give(*apart)
            self.memory.allocator.empty_cache()
            take(self.trained * self.narrow)
        clone = take(self.part * self.narrow)
        take(self.part * 4)
        give(clone)
        give(take(self.part * 4))  # a first gradient of zeros

    def turn(self) -> None:
        """Backward begins."""
        self.seen = 0.0

    def enter_backward(self, unit: int) -> None:
        """Which unit makes gradients now."""
        self.at = unit

    def _gradient(self, size: Any, *, adds: bool) -> None:
        block = self.memory.take(size)
        if self.at == HEAD and self.model.tied:
            self.tied = block  # its hook waits for the embedding's
            return
        if adds:
            self.memory.give(block)
            block, self.tied = self.tied, None
        elements = size / self.narrow
        if not self.buckets:  # made when the first gradient asks for room
            self.buckets = [self.memory.take(self.room * self.narrow) for _ in range(2 if self.overlaps else 1)]
        if self.waiting or self.filled + elements > self.room:
            self._reduce()
        self.seen += elements
        mine = self.trained - self.seen < self.part
        if elements > self.room:
            self.waiting = (block, mine)
            return
        self.memory.give(block)
        self.filled += elements
        self.holds_own |= mine

    def _reduce(self) -> None:
        """The bucket, or the gradient that had no room in it, is averaged; what is of this rank's part is copied."""
        block, mine = self.waiting or (None, self.holds_own)
        if mine and self.own is None:
            self.own = self.memory.take(self.whole * self.narrow, REDUCES if self.overlaps else 0)
        if mine or self.recipe.sharding.kind == "zero2":
            self.memory.give(block)
        elif block is not None:
            self.gradients.append(block)  # stage 1 keeps those of other ranks until backward is over
        self.waiting, self.filled, self.holds_own = None, 0.0, False

    def leave_backward(self, unit: int) -> None:
        """The last bucket is reduced, and whatever is not of this rank's part freed."""
        if unit != EMBEDDING:
            return
        self._reduce()
        self.memory.give(*self.buckets, *self.gradients)
        self.buckets, self.gradients = [], []

    def update(self, *, first: bool) -> None:
        """The norm in float64, the part made flat and then float32, the step itself."""
        take, give = self.memory.take, self.memory.give
        give(take(min(max(self.tensors), self.part) * 8))
        flat = None if self.alone and self.full else take(self.part * self.narrow)  # of one tensor it is a view
        wide = take(self.part * 4)
        give(flat, self.own)
        self.own = None
        if first:
            for _ in range(2):
                take(self.rank.states.optimizer.value / 2)
        give(wide)
