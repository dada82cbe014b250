"""A step under FSDP2, replayed: units gathered and let go, gradients cut up, each on the stream that torch gives it.

The buffer of an all-gather lies in the pool of its own stream, and what its reduction leaves (the sharded gradients) in that of
another; whole weights and unsharded gradients come and go among the activations of the stream that computes. Reserved memory is
what the three pools come to, each at its own highest.

Sources, torch 2.13, distributed/fsdp/_fully_shard: _fsdp_collectives.py (foreach_all_gather: shards in the compute type, then the
buffer, both on the copy-in stream; foreach_all_gather_copy_out: one tensor per weight on the current stream; foreach_reduce: its
input on the current stream, which takes the gradients over, its output and that in the weights' type on the reduce-scatter
stream), _fsdp_param_group.py (wait_for_unshard: forward keeps a buffer until the next unit has come, backward lets it go at once;
_backward_prefetch: one unit ahead; post_backward: reshards, drops the input of the reduction before, reduces), _fsdp_state.py
(a root left to itself stays whole until its own gradients are reduced, last of all). Held against traces: benchmarks/tracing.
"""

from typing import Any

from vramcast.training.recipe.parts import width
from vramcast.training.replay import EMBEDDING, HEAD, Held, tensors_of
from vramcast.training.replay_fsdp1 import GATHERS, ReducedStep


class ShardedStep(ReducedStep):
    """One rank's steps: the layers' own events, each between its gathering and its reduction."""

    def begin(self) -> None:
        """Units, and what is in flight between them."""
        super().begin()
        units, self.apart = self.rank.units, self.recipe.sharding.separate_ends
        blocks = enumerate(self.model.layer_list())
        self.sizes = [_scaled(tensors_of(block, self.recipe), units.of(place)) for place, block in blocks]
        self.whole: dict[int, list[Held]] = {}
        self.coming: dict[int, Held] = {}
        self.left: Held = None  # the buffer that forward keeps until the next unit has come
        self.reducing: Held = None  # the input of the reduction before

    def _unit(self, unit: int) -> list[Any]:
        """Elements of each weight of a unit; the root holds both ends unless they are units of their own."""
        units = self.rank.units
        if unit >= 0:
            return self.sizes[unit]
        head, norm = 0 if units.tied else units.head, self.model.hidden
        if self.apart:
            return [head, norm] if unit == HEAD and head else [units.embedding] if unit == EMBEDDING else []
        return [units.embedding, head, norm, units.root] if unit == EMBEDDING else []

    def _request(self, unit: int) -> None:
        """An all-gather is issued: the shards as they are sent, and the buffer."""
        elements = sum(self._unit(unit)) if EMBEDDING <= unit < self.depth or unit == HEAD else 0
        if not elements or unit in self.coming or unit in self.whole:
            return
        sent = self.memory.take(elements * self.compute / self.ranks, GATHERS)
        self.coming[unit] = self.memory.take(elements * self.compute, GATHERS)
        self.memory.give(sent)

    def _gather(self, unit: int, *, forward: bool) -> None:
        """The unit's weights are copied out of their buffer."""
        if unit in self.whole or not sum(self._unit(unit)):
            return
        self._request(unit)
        self.whole[unit] = [self.memory.take(n * self.compute) for n in self._unit(unit)]
        buffer = self.coming.pop(unit)
        if forward:
            self.memory.give(self.left)
            self.left = buffer
        else:
            self.memory.give(buffer)

    def _let_go(self, unit: int) -> None:
        self.memory.give(*self.whole.pop(unit, []))

    def enter(self, unit: int) -> None:
        """Gathered before it runs."""
        self._gather(unit, forward=True)

    def leave(self, unit: int) -> None:
        """Cut up again, but the unit of the head, a root of all that is left, and the last block where the recipe says so."""
        sharding = self.recipe.sharding
        stays = unit == HEAD or (unit == self.depth - 1 and sharding.last_at_loss == "whole")
        if sharding.reshard and not stays and (unit >= 0 or self.apart):
            self._let_go(unit)

    def turn(self) -> None:
        """The root drops the last buffer; its backward may ask for the last block."""
        self.memory.give(self.left)
        self.left = None
        if self.recipe.sharding.last_at_loss == "backward":
            self._request(self.depth - 1)

    def enter_backward(self, unit: int) -> None:
        """Gathered again, and the unit that backward takes next asked for."""
        self.at = unit
        self._gather(unit, forward=False)
        if self.recipe.sharding.reshard and unit != EMBEDDING:
            self._request(self.depth - 1 if unit == HEAD else unit - 1)

    def leave_backward(self, unit: int) -> None:
        """Cut up, its gradients too; those of a root of all that is left wait for the embedding's."""
        if unit == HEAD and not self.apart:
            return
        self._let_go(unit)
        mine, self.fresh = self.fresh, []
        if unit == EMBEDDING:
            mine, self.waiting = [*self.waiting, *mine], []
        self._reduce(mine)
        if unit == EMBEDDING:
            self.memory.give(self.reducing)
            self.reducing = None

    def _reduce(self, gradients: list[tuple[Held, Any]]) -> None:
        """Whole gradients become one buffer, then this rank's part."""
        if not gradients:
            return
        take, give = self.memory.take, self.memory.give
        elements = sum(size for _, size in gradients) / width(self.recipe.precision.backward_gradients)
        give(self.reducing)
        self.reducing = take(elements * self.reduce)
        give(*(block for block, _ in gradients))
        self.gradients.append(self._part_of(elements))

    def _waits(self) -> bool:
        return self.at == HEAD and not self.apart


def _scaled(own: list[float], elements: float) -> list[float]:
    """Elements of each weight of a block, which together come to ``elements``."""
    return [n * elements / sum(own) for n in own]
