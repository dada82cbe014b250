"""What one kind of layer asks of memory: its tape walked once, in autograd's order, and written down as events.

An event takes a block into a place of the layer's own list, gives the block of a place back, or takes a weight's gradient, which
outlives the pass. replay.py runs them once for each layer of that kind.
"""

from collections.abc import Callable
from typing import Any

from vramcast.training.activations.tape import Operation, Tape

GRADIENT = -1  # the place of what stays


class _Written:
    """Memory that only writes down what is asked of it: blocks are places in the list of one layer's pass."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int]] = []
        self.places = 0

    def place(self) -> int:
        """A place for a block that comes from outside."""
        self.places += 1
        return self.places - 1

    def take(self, size: Any) -> int | None:
        """A block of that size; none for nothing."""
        if not size >= 1:
            return None
        self.events.append((self.places, int(size)))
        return self.place()

    def give(self, *places: int | None) -> None:
        """Blocks given back."""
        self.events += [(place, 0) for place in places if place is not None]

    def gradient(self, size: Any) -> None:
        """A weight's gradient, which outlives the pass."""
        self.events.append((GRADIENT, int(size)))

    def cut(self) -> list[tuple[int, int]]:
        """The events since the last cut."""
        found, self.events = self.events, []
        return found


class _Pass:
    """One layer's forward that waits for its backward: what is saved, by tensor and by operation, and what is handed on."""

    def __init__(self, layer: "_Layer", memory: _Written, *, keeps: bool, cached: list[int | None]) -> None:
        self.layer, self.memory, self.cached = layer, memory, cached
        self.live: dict[int, int | None] = {}
        self.kept: dict[int, int | None] = {}
        for place, op in enumerate(layer.tape.operations):
            self._forward(place, op, keeps=keeps, cached=cached)
        self.output = self.live.pop(layer.whole)
        if not keeps:
            memory.give(*self.live.values())
            self.live = {}

    def _forward(self, place: int, op: Operation, *, keeps: bool, cached: list[int | None]) -> None:
        layer, take, give = self.layer, self.memory.take, self.memory.give
        scratch = take(op.scratch)
        if op.writes not in layer.tape.views:
            self.live[op.writes] = take(layer.tape.sizes[op.writes])
        if op.cached:
            cached.append(take(op.cached))
        kept = take(op.keeps - op.cached)
        if keeps:
            self.kept[place] = kept
        else:
            give(kept)
        give(scratch)
        for tensor in layer.ends.get(place, ()):
            if tensor in self.live and not (keeps and tensor in layer.saved):
                give(self.live.pop(tensor))

    def backward(self, gradient: int, gradients: Callable[[Any], None]) -> int | None:
        """From the gradient of the output to that of the input; weight gradients go to ``gradients``."""
        return _Backward(self, gradient, gradients).run()


class _Layer:
    """A tape with what its forward frees where."""

    def __init__(self, tape: Tape) -> None:
        self.tape, self.output = tape, tape.operations[-1].writes
        self.whole = tape.views.get(self.output, self.output)
        self.saved = {i for op in tape.operations for i in op.saves}
        self.ends: dict[int, list[int]] = {}
        for tensor, place in tape.last_uses().items():
            if tensor not in tape.outside and tensor != self.whole:
                self.ends.setdefault(place, []).append(tensor)


class _Backward:
    """Autograd's order over one layer, block by block: the rules are those of tape.py."""

    def __init__(self, forward: _Pass, gradient: int, gradients: Callable[[Any], None]) -> None:
        self.forward, self.tape, self.memory, self.gradients = forward, forward.layer.tape, forward.memory, gradients
        self.holders: dict[int, int] = {}
        for op in self.tape.operations:
            for i in op.saves:
                self.holders[i] = self.holders.get(i, 0) + 1
        self.blocks: list[int | None] = [gradient]
        self.sizes: list[Any] = [self.tape.sizes[forward.layer.output]]
        self.owners = [1]
        self.of: dict[int, int] = {forward.layer.output: 0}

    def run(self) -> int | None:
        for place in range(len(self.tape.operations) - 1, -1, -1):
            op = self.tape.operations[place]
            given = [self.of.pop(i) for i in (op.writes, *op.also) if i in self.of]
            if given:
                self._step(op, given)
            self.memory.give(self.forward.kept.pop(place, None))
            self._release(op)
        self.memory.give(*self.forward.live.values())
        first = self.of.pop(0, None)
        for index in self.of.values():
            self._drop(index)
        return None if first is None else self.blocks[first]

    def _step(self, op: Operation, given: list[int]) -> None:
        tape, made = self.tape, []
        scratch = self.memory.take(op.back_scratch)
        wanted = [r for r in op.reads if tape.needs_grad[r]]
        for tensor in wanted:
            if op.aliases and abs(tape.sizes[tensor] - tape.sizes[op.writes]) < 1:
                self.owners[given[0]] += 1
                made.append(given[0])
            else:
                made.append(self._new(tape.sizes[tensor]))
        if op.weight_gradient:
            self.gradients(op.weight_gradient)
        self.memory.give(scratch)
        for tensor, gradient in zip(wanted, made, strict=True):
            self._accumulate(tensor, gradient)
        for used in given:
            self._drop(used)

    def _release(self, op: Operation) -> None:
        for i in op.saves:
            self.holders[i] -= 1
            if not self.holders[i] and i in self.forward.live:
                self.memory.give(self.forward.live.pop(i))

    def _accumulate(self, tensor: int, gradient: int) -> None:
        old = self.of.get(tensor)
        if old is None:
            self.of[tensor] = gradient
            return
        if self.owners[old] > 1:
            self.of[tensor] = self._new(self.sizes[old])
            self._drop(old)
        self._drop(gradient)

    def _new(self, size: Any) -> int:
        self.blocks.append(self.memory.take(size))
        self.sizes.append(size)
        self.owners.append(1)
        return len(self.blocks) - 1

    def _drop(self, index: int) -> None:
        self.owners[index] -= 1
        if not self.owners[index]:
            self.memory.give(self.blocks[index])


class LayerEvents:
    """What one kind of layer asks of memory: ``(place, bytes)`` takes, ``(place, 0)`` gives back, and gradients that stay.

    ``drops``: a forward that keeps nothing but its output; ``keeps``: one that waits for its backward; ``back``: that backward.
    """

    def __init__(self, tape: Tape) -> None:
        layer = _Layer(tape)
        self.reads_input = 0 in layer.saved
        written = _Written()
        own = _Pass(layer, written, keeps=False, cached=[])
        self.drops, self.drops_output, self.drops_places = written.cut(), own.output, written.places
        self.cached_dropped = own.cached
        written = _Written()
        own = _Pass(layer, written, keeps=True, cached=[])
        self.keeps, self.output, self.cached = written.cut(), own.output, own.cached
        self.given = written.place()
        self.result = own.backward(self.given, written.gradient)
        self.back, self.places = written.cut(), written.places
