"""A step under DeepSpeed's ZeRO-3, replayed: weights fetched ahead one by one, gradients through a bucket to this rank's part.

Every weight is created whole and cut up while the model is made, so that what is frozen lies in pieces between blocks that are
let go; what is trained is moved into one flat block when the cache has been emptied. Whole weights lie in the pool of the stream
that gathers them. The first step knows no order and fetches nothing ahead; later ones fetch what comes until a limit of live
elements, and keep what is used again within that reach.

Sources, DeepSpeed 0.19.8, runtime/zero: partition_parameters.py (zero.Init; all_gather_coalesced: one weight is gathered into its
own block, several into a flat one that each is copied out of), partitioned_param_coordinator.py (_fetch_sub_module_impl,
__params_to_release), stage3.py (_create_fp16_partitions_with_defragmentation, __add_grad_to_ipg_bucket,
__reduce_and_partition_ipg_grads, _prepare_sub_group), runtime/comm/coalesced_collectives.py (reduce_scatter_coalesced).
Held against traces: benchmarks/tracing.
"""

from typing import Any

from vramcast.training.recipe.parts import width
from vramcast.training.replay import EMBEDDING, HEAD, Held, Step, tensors_of
from vramcast.training.replay_fsdp1 import GATHERS, REDUCES

Weight = tuple[int, int]  # a unit, and the place of one of its weights


class FetchedStep(Step):
    """One rank's steps: the layers' own events, their weights fetched and let go, their gradients cut up."""

    def begin(self) -> None:
        """Weights by unit, the order in which a step uses them, and what is in flight."""
        held, recipe, sharding = self.rank.kind.held, self.recipe, self.recipe.sharding
        self.ranks, self.compute = int(self.rank.units.ranks), width(recipe.precision.compute)
        self.narrow = width(recipe.precision.backward_gradients)
        self.part = (held.trained.total + held.adapter.total) / self.ranks
        self.ahead, self.limit, self.reused = sharding.prefetch_elements, sharding.live_elements, sharding.reuse_elements
        self.elements = self._weights(sharding.persistent_elements)
        self.order = self._order()
        self.reach = self._reaches()
        self.whole: dict[Weight, Held] = {}
        self.flying: dict[Weight, tuple[Held, list[Weight]]] = {}
        self.live = 0.0
        self.traced = False
        self.at = EMBEDDING  # the unit whose backward runs
        self.room = sharding.bucket
        self.filled, self.items = 0.0, 0
        self.waiting: list[Held] = []  # gradients that the bucket had no room for
        self.tied: Held = None
        self._restart()

    def _weights(self, least: float) -> dict[Weight, float]:
        """Elements of each weight that is not whole all the time."""
        layers = enumerate(self.model.layer_list())
        found = {(place, n): size for place, block in layers for n, size in enumerate(tensors_of(block, self.recipe))}
        units = self.rank.units
        found |= {(EMBEDDING, 0): float(units.embedding)}
        if not units.tied:
            found |= {(HEAD, 0): float(units.head)}
        return {weight: n for weight, n in found.items() if n > least}

    def _of(self, unit: int) -> list[Weight]:
        if unit == HEAD and self.model.tied:
            unit = EMBEDDING
        return [weight for weight in self.elements if weight[0] == unit]

    def _order(self) -> list[tuple[int, Weight]]:
        """The uses of a step: the unit that runs, and the weight."""
        depth = len(self.layers)
        forward = [EMBEDDING, *range(depth), HEAD]
        units = [*forward, HEAD, *reversed(range(depth)), EMBEDDING]
        return [(unit, weight) for unit in units for weight in self._of(unit)]

    def _reaches(self) -> list[float]:
        """Elements that modules use between each use of a weight and its next one in the step; infinite where there is none."""
        before: list[float] = [0.0]
        for _, weight in self.order:
            before.append(before[-1] + self.elements[weight])
        following: dict[Weight, int] = {}
        found = [float("inf")] * len(self.order)
        for n in reversed(range(len(self.order))):
            weight = self.order[n][1]
            if weight in following:
                found[n] = before[following[weight]] - before[n + 1]
            following[weight] = n
        return found

    def load(self) -> None:
        """Each weight whole, then its part; what is trained in one flat block, its masters and gradients beside it."""
        take, give, update = self.memory.take, self.memory.give, self.recipe.update
        stored = self.rank.states.weights.value * self.ranks / max(1.0, sum(self.tensors))
        parts: list[Held] = []
        loaded = [take(n * self.compute) for n in self.tensors] if self.recipe.sharding.moves_whole else []
        for place, elements in enumerate(self.tensors):
            block = loaded[place] if loaded else take(elements * self.compute)
            parts.append(take(elements * stored / self.ranks))
            give(block)
        if self.full:
            give(*parts)
        self.memory.allocator.empty_cache()
        if self.full:
            take(self.part * self.compute)
        for group in self._groups():  # _create_fp32_partitions: a float copy and its clone
            copy = take(group * width(update.master))
            take(group * width(update.master))
            give(copy)
        give(take(max(self._groups()) * width(update.master)))  # initialize_optimizer_states: gradients of zeros
        take(self.room * self.narrow)
        take(self.part * self.narrow)
        for elements in self.tensors if self.full else ():  # create_reduce_and_remove_grad_hooks: each is gathered once
            give(take(elements * self.compute))

    def _groups(self) -> list[float]:
        """This rank's elements of each group that is updated at once."""
        size = self.recipe.update.sub_group / self.ranks
        count = max(1, int(-(-self.part // size)))
        return [min(size, self.part - n * size) for n in range(count)]

    def enter(self, unit: int) -> None:
        """A unit's weights are waited for, and what comes fetched ahead."""
        self._fetch(unit)

    def leave(self, unit: int) -> None:
        """What is used again too late is let go."""
        self._release(unit)

    def enter_backward(self, unit: int) -> None:
        """Fetched again, where it was let go."""
        self.at = unit
        self._fetch(unit)

    def leave_backward(self, unit: int) -> None:
        """Let go; after the last unit the bucket is reduced, and the next step begins."""
        self._release(unit)
        if unit == EMBEDDING:
            self._reduce()
            for weight in list(self.flying):
                self._wait(weight)
            self.memory.give(*self.whole.values())
            self.whole, self.live, self.traced = {}, 0.0, True
            self._restart()

    def _restart(self) -> None:
        self.now = self.next = 0

    def _fetch(self, unit: int) -> None:
        for weight in self._of(unit):
            if weight not in self.whole and weight not in self.flying:
                self._gather([weight])
            self._wait(weight)
            self.now += 1
            if self.traced:
                self._prefetch()

    def _prefetch(self) -> None:
        """The next weights of the order, up to a bucket, within the limit of live elements."""
        self.next = max(self.next, self.now)
        room, coming = min(self.limit - self.live, self.ahead), list[Weight]()
        while self.next < len(self.order) and sum(self.elements[w] for w in coming) < room:
            weight = self.order[self.next][1]
            self.next += 1
            if weight not in self.whole and weight not in self.flying and weight not in coming:
                coming.append(weight)
        if coming:
            self._gather(coming)

    def _gather(self, weights: list[Weight]) -> None:
        elements = sum(self.elements[w] for w in weights)
        block = self.memory.take(elements * self.compute, GATHERS)
        self.live += elements
        if len(weights) == 1:
            self.whole[weights[0]] = block
            return
        self.flying |= dict.fromkeys(weights, (block, weights))

    def _wait(self, weight: Weight) -> None:
        """All that was gathered with it is copied out of the flat block."""
        if weight not in self.flying:
            return
        block, together = self.flying[weight]
        for one in together:
            self.whole[one] = self.memory.take(self.elements[one] * self.compute, GATHERS)
            del self.flying[one]
        self.memory.give(block)

    def _release(self, unit: int) -> None:
        mine = self._of(unit)
        for n, weight in enumerate(mine, self.now - len(mine)):
            if weight in self.whole and (not self.traced or self.reach[n] >= self.reused):
                self.memory.give(self.whole.pop(weight))
                self.live -= self.elements[weight]

    def _gradient(self, size: Any, *, adds: bool) -> None:
        block = self.memory.take(size)
        if self.at == HEAD and self.model.tied:
            self.tied = block  # its hook waits for the embedding's
            return
        if self.at == EMBEDDING and self.tied is not None:
            self.memory.give(block)
            block, self.tied = self.tied, None
        elements = size / self.narrow
        if self.filled + elements > self.room:
            self._reduce()
        self.filled += elements
        self.items += 1
        if self.filled > self.room:
            self.waiting.append(block)
        else:
            self.memory.give(block)

    def _reduce(self) -> None:
        """Several gradients are put in the order of the ranks, in a copy; one is reduced where it lies."""
        copy = self.memory.take(self.filled * self.narrow if self.items > 1 else 0, REDUCES)
        self.memory.give(copy, *self.waiting)
        self.waiting, self.filled, self.items = [], 0.0, 0

    def update(self, *, first: bool) -> None:
        """Group by group: the norm in float64, gradients made flat and then float32, the step, whose first makes states."""
        take, give = self.memory.take, self.memory.give
        give(take(max(self.tensors) / self.ranks * 8))
        for group in self._groups():
            flat = take(group * self.narrow)
            wide = take(group * width(self.recipe.update.master))
            give(flat)
            for _ in range(2 if first else 0):
                take(group / self.part * self.rank.states.optimizer.value / 2)
            give(wide)

    def _casts_head(self) -> bool:
        return False  # it was gathered in the type that computes
