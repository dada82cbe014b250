"""A step under FSDP1, replayed: one flat parameter a unit, gathered on one stream, reduced on another.

A unit's weights become one tensor when it is wrapped, and the cut-up one is cloned from it: blocks that are made then and never
again are what later segments are carved from. Each gather takes the whole flat parameter from the pool of its own stream, which
the stream that computes never shares.

Sources, torch 2.13, distributed/fsdp: _flat_param.py (flatten_tensors_into_flat_param: torch.cat; _get_shard: clone;
_init_flat_param_attributes: storages of the whole and of the compute type that are freed at once; pre_unshard: the shard in the
compute type; _alloc_padded_unsharded_flat_param; _get_unflat_views_aligned: torch.split, whose backward concatenates a unit's
gradients), _runtime_utils.py (_unshard on the unshard stream; _pre_backward_hook of the root gathers the last unit; BACKWARD_PRE
gathers the one before; _reduce_grad on the post-backward stream: its output, then a copy in the weights' type; the root unit is
reduced last). Held against traces: benchmarks/tracing.
"""

from typing import Any

from vramcast.training.full_sharding import adapters_come_ahead
from vramcast.training.recipe.parts import width
from vramcast.training.replay import EMBEDDING, HEAD, Held, Step

GATHERS, REDUCES, CASTS = 1, 2, 3  # streams beside the one that computes


class ReducedStep(Step):
    """A step whose gradients are made whole, unit by unit, and reduced to this rank's part on a stream of its own."""

    def begin(self) -> None:
        """Ranks and types, and the gradients that are whole."""
        recipe = self.recipe
        self.ranks, self.depth = int(self.rank.units.ranks), len(self.layers)
        self.compute, self.reduce = width(recipe.precision.compute), width(recipe.precision.reduce)
        self.at = EMBEDDING  # the unit whose backward runs
        self.fresh: list[tuple[Held, Any]] = []  # its whole gradients
        self.waiting: list[tuple[Held, Any]] = []  # the root's

    def _waits(self) -> bool:
        """Whether gradients of the unit that runs are reduced with the embedding's, last of all."""
        raise NotImplementedError

    def _gradient(self, size: Any, *, adds: bool) -> None:
        block = self.memory.take(size)
        if adds:  # the embedding's, to that of the head it is tied to
            self.memory.give(block)
        else:
            (self.waiting if self._waits() else self.fresh).append((block, size))

    def _part_of(self, elements: float) -> Held:
        """This rank's part of so many reduced gradients, in the weights' type."""
        take, kept = self.memory.take, width(self.recipe.precision.weights)
        part = take(elements * self.reduce / self.ranks, REDUCES)
        if kept == self.reduce:
            return part
        wide = take(elements * kept / self.ranks, REDUCES)
        self.memory.give(part)
        return wide

    def _casts_head(self) -> bool:
        return False  # it was gathered in the type that computes


class FlatStep(ReducedStep):
    """One rank's steps: the layers' own events, each between the gathering of its flat parameter and its reduction."""

    def begin(self) -> None:
        """Units, and what is whole of them."""
        super().begin()
        units, recipe = self.rank.units, self.recipe
        whole = self.rank.states.weights.value * self.ranks / (units.blocks + units.ends)
        self.stored = whole if self.full else width(recipe.precision.frozen)  # adapters are units of their own
        self.whole: dict[int, Held] = {}

    def _elements(self, unit: int) -> Any:
        units = self.rank.units
        return units.of(unit) if unit >= 0 else units.ends if unit == EMBEDDING else 0

    def load(self) -> None:
        """Each unit is wrapped: its tensors, all of them in one, and the part of it that stays."""
        take, give = self.memory.take, self.memory.give
        ends = [self.rank.units.embedding, self._elements(EMBEDDING) - self.rank.units.embedding]
        tensors = [[t.elements for t in block.tensors if t.kind != "buffer"] for block in self.model.layer_list()]
        for unit, own in (*enumerate(tensors), (EMBEDDING, ends)):
            each = self._elements(unit) * self.stored / max(1, sum(own))
            apart = [take(n * each) for n in own]
            flat = take(self._elements(unit) * self.stored)
            take(self._elements(unit) * self.stored / self.ranks)
            give(flat, *apart)
        if self.stored != self.compute:
            for unit in (EMBEDDING, *range(self.depth)):
                for size in (self.compute, self.stored):
                    give(take(self._elements(unit) * size))

    def _gather(self, unit: int) -> None:
        if unit in self.whole or not self._elements(unit):
            return
        elements = self._elements(unit)
        cast = self.memory.take(elements * self.compute / self.ranks if self.stored != self.compute else 0, CASTS)
        self.whole[unit] = self.memory.take(elements * self.compute, GATHERS)
        self.memory.give(cast)

    def _let_go(self, unit: int) -> None:
        self.memory.give(self.whole.pop(unit, None))

    def enter(self, unit: int) -> None:
        """Gathered before it runs; the root holds both ends."""
        self._gather(unit)

    def leave(self, unit: int) -> None:
        """Cut up again, but the root."""
        if unit >= 0 and self.recipe.sharding.reshard:
            self._let_go(unit)

    def turn(self) -> None:
        """The root's backward begins, which gathers the last block."""
        self._gather(self.depth - 1)

    def enter_backward(self, unit: int) -> None:
        """Gathered again, and the unit that backward takes next."""
        self.at = unit
        if unit >= 0:
            self._gather(unit)
            if unit and not adapters_come_ahead(self.rank):
                self._gather(unit - 1)

    def leave_backward(self, unit: int) -> None:
        """All gradients of the unit in one, then this rank's part; those of the ends wait for the root.

        With adapters the block before is gathered at this block's input gradient, before the same gradient's hook cuts this one
        up: torch 2.13, distributed/fsdp/_runtime_utils.py, _register_pre_backward_hooks stands on the tensor ahead of
        _register_post_backward_reshard_only_hook.
        """
        if unit == HEAD:
            return
        mine, self.fresh = self.fresh, []
        if unit == EMBEDDING:
            mine, self.waiting = [*self.waiting, *mine], []
        elif unit and adapters_come_ahead(self.rank):
            self._gather(unit - 1)
        self._reduce(unit, mine)

    def _reduce(self, unit: int, gradients: list[tuple[Held, Any]]) -> None:
        take, give = self.memory.take, self.memory.give
        size = sum(size for _, size in gradients)
        flat = take(size)
        give(*(block for block, _ in gradients))
        self._let_go(unit)
        elements = size / width(self.recipe.precision.backward_gradients)
        part = self._part_of(elements)
        give(flat)
        self.gradients.append(part)

    def _waits(self) -> bool:
        return self.at == HEAD
