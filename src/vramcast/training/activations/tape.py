"""A tape of operations and its life-times: what forward saves, and how high forward, backward and recomputation reach.

The rules are those of PyTorch's autograd (torch/csrc/autograd/engine.cpp, input_buffer.cpp): an operation runs backward in the
reverse order of forward; what it saved is released once it has run; a gradient lives until the operation that produced its tensor
has used it; a second gradient of the same tensor is added in place unless its storage is shared.

Sizes are bytes: of one shape, or ``Size`` of every shape, which makes one replay answer for all of them.
"""

from collections.abc import Sequence

import msgspec

from vramcast.training.activations.sizes import Amount, Peak, highest

# The operation of models/operations that does the arithmetic of one on a tape: what is one kernel there may be several here.
_WORK = {
    **dict.fromkeys(("q", "k", "v", "qkv"), "qkv"),
    **dict.fromkeys(("gate", "up", "gate_up"), "gate_up"),
    **dict.fromkeys(("attention", "scores", "softmax", "weighted"), "scores"),
    **dict.fromkeys(("activation", "product", "glu", "relu", "square", "gelu"), "activation"),
    **dict.fromkeys(("permute", "unpermute", "route"), "routing"),
    **dict.fromkeys(("scan", "dt", "decay", "states"), "state"),
    "norm": "norms",
    "rope": "rope and cache",
    "expert": "experts",
    "o": "o",
    "down": "down",
    "router": "router",
}


def work_of(name: str) -> str:
    """The operation of ``models/operations`` whose FLOPs and bytes an operation on a tape belongs to.

    Nothing for one that has no arithmetic of its own there: residual sums, casts, views.
    """
    first, _, rest = name.partition(".")
    if first == "shared" and rest in _WORK:
        return f"shared.{_WORK[rest]}"
    return _WORK.get(first, "")


class Operation(msgspec.Struct, frozen=True):
    """One operation: tensors are indices into the tape's sizes.

    ``saves``: tensors held for backward; ``keeps``: further bytes held (masks, statistics, cast weights); ``cached``: those of
    ``keeps`` that autocast holds until it ends, in a pass without autograd too (copies of weights that train); ``pieces``: those
    that a loop makes one after another, never there together without autograd; ``scratch`` and ``back_scratch``: bytes alive
    only while it runs forward or backward; ``weight_gradient``: bytes it adds to the gradients of parameters; ``aliases``: its
    backward hands its gradient on without a copy (adds, views) to inputs of the output's own size;
    ``also``: further outputs, whose gradients its backward joins with that of the first.
    """

    name: str
    reads: tuple[int, ...]
    writes: int
    saves: tuple[int, ...] = ()
    keeps: Amount = 0
    cached: Amount = 0
    pieces: Amount = 0
    scratch: Amount | Peak = 0
    back_scratch: Amount | Peak = 0
    weight_gradient: Amount = 0
    aliases: bool = False
    also: tuple[int, ...] = ()


class Life(msgspec.Struct, frozen=True):
    """What a run of a tape costs, in bytes beyond its input: saved for backward, and the highest point of each direction.

    ``input_saved``: the bytes of the input when the layer holds it for backward. ``forward_peak`` and ``backward_peak`` include
    what is saved; ``transient_peak`` is the forward without autograd (a checkpointed layer's first pass). ``weight_gradients``
    is what backward leaves behind, in ``backward_peak``; ``binding``: the operation that reaches it, of several the first.
    ``savings``: saved and input by what made them.
    """

    saved: Amount
    input_saved: Amount
    forward_peak: Amount | Peak
    transient_peak: Amount | Peak
    backward_peak: Amount | Peak
    weight_gradients: Amount
    cached: Amount = 0.0
    binding: str = ""
    savings: dict[str, Amount] = {}


class Tape:
    """Records operations; tensor 0 is the input, whose bytes belong to whoever made it."""

    def __init__(self, input_bytes: Amount, *, input_needs_grad: bool = True) -> None:
        self.sizes: list[Amount] = [input_bytes]
        self.needs_grad: list[bool] = [input_needs_grad]
        self.operations: list[Operation] = []
        self.stands_for: dict[int, int] = {}
        self.copied: set[int] = set()
        self.named_until: dict[int, int] = {}
        self.views: dict[int, int] = {}
        self.outside: set[int] = {0}

    def hold(self, *tensors: int) -> None:
        """Python's names of these tensors go out of scope now: forward frees none of them before the operation recorded last."""
        self.named_until |= dict.fromkeys(tensors, len(self.operations) - 1)

    def gather(self, name: str, source: int, bytes_out: Amount) -> int:
        """A gathered copy of a sharded tensor: whoever saves it saves the shard, and gathers it again in backward."""
        out = self.run(name, [source], bytes_out, back_scratch=bytes_out)
        self.stands_for[out] = source
        return out

    def given(self, size: Amount) -> int:
        """A tensor that somebody else made and holds (an encoder's output), whose gradient passes through."""
        self.sizes.append(size)
        self.needs_grad.append(True)
        self.outside.add(len(self.sizes) - 1)
        return len(self.sizes) - 1

    def slices(self, name: str, source: int, sizes: Sequence[Amount], *, joined: bool = False) -> list[int]:
        """Views of parts of a tensor: who saves one saves the whole.

        ``joined``: backward writes one gradient for all of them (chunk, split); else each one's has the size of the whole, filled
        with zeros, and they are added (indexing). Source: torch, derivatives.yaml, split_with_sizes and slice.
        """
        first = len(self.sizes)
        views = list(range(first, first + len(sizes)))
        self.sizes += sizes
        self.needs_grad += [self.needs_grad[source]] * len(views)
        self.views |= dict.fromkeys(views, self.views.get(source, source))
        self.stands_for |= dict.fromkeys(views, self.stands_for.get(source, source))
        groups = [views] if joined else [[view] for view in views]
        self.operations += [Operation(name, (source,), one, also=tuple(rest)) for one, *rest in groups]
        return views

    def in_place(self, name: str, target: int, added: int, *, back_scratch: Amount = 0) -> int:
        """A tensor with another added to it where it lies: its gradient is that of both."""
        whole = len(self.sizes)
        self.sizes.append(self.sizes[target])
        self.needs_grad.append(self.needs_grad[target] or self.needs_grad[added])
        self.views[whole] = self.views.get(target, target)
        self.stands_for[whole] = self.stands_for.get(target, target)
        self.operations.append(Operation(name, (target, added), whole, back_scratch=back_scratch, aliases=True))
        return whole

    def first_copy(self, source: int) -> bool:
        """Whether nobody has made a narrow copy of this tensor yet; later ones share it."""
        new = source not in self.copied
        self.copied.add(source)
        return new

    def cast(self, source: int, wanted: Amount) -> int:
        """A tensor in another width, as the bytes that it is ``wanted`` in; itself where it has them."""
        return source if abs(self.sizes[source] - wanted) < 1 else self.run("cast", [source], wanted)

    def run(
        self,
        name: str,
        reads: Sequence[int],
        bytes_out: Amount,
        *,
        saves: Sequence[int] = (),
        saves_output: bool = False,
        keeps: Amount = 0,
        cached: Amount = 0,
        pieces: Amount = 0,
        scratch: Amount | Peak = 0,
        back_scratch: Amount | Peak = 0,
        weight_gradient: Amount = 0,
        trains: bool = False,
        aliases: bool = False,
    ) -> int:
        """Append an operation and return its output. Nothing is saved when neither its inputs nor its weights need gradients."""
        needs = trains or any(self.needs_grad[r] for r in reads)
        out = len(self.sizes)
        self.sizes.append(bytes_out)
        self.needs_grad.append(needs)
        held = tuple(self.stands_for.get(i, i) for i in (*saves, *((out,) if saves_output else ())))
        self.operations.append(
            Operation(
                name,
                tuple(reads),
                out,
                held if needs else (),
                keeps + cached + pieces if needs else 0,
                cached,
                pieces if needs else 0,
                scratch + (0 if needs else keeps),
                back_scratch,
                weight_gradient,
                aliases,
            )
        )
        return out

    def life(self) -> Life:
        """Replay forward and backward and return the peaks."""
        saved = {i for op in self.operations for i in op.saves}
        kept = sum(op.keeps for op in self.operations)
        forward = self._forward(saved)
        backward, binding = self._backward()
        return Life(
            saved=sum(self.sizes[i] for i in saved - self.outside) + kept,
            input_saved=self.sizes[0] if 0 in saved else 0.0,
            forward_peak=forward,
            transient_peak=self._forward(None),
            backward_peak=backward,
            weight_gradients=sum(op.weight_gradient for op in self.operations),
            cached=sum(op.cached for op in self.operations),
            binding=binding,
            savings=self.savings(),
        )

    def savings(self) -> dict[str, Amount]:
        """Bytes held for backward by what made them: an operation's output, mask, statistics or copy; "input" is the layer's."""
        makers = {0: "input"} | {op.writes: _maker(op.name) for op in self.operations}
        held = sorted({i for op in self.operations for i in op.saves} - (self.outside - {0}))
        found: dict[str, Amount] = dict.fromkeys(makers.values(), 0.0)
        for maker, size in [(makers[i], self.sizes[i]) for i in held] + [(_maker(op.name), op.keeps) for op in self.operations]:
            found[maker] += size
        return {maker: size for maker, size in found.items() if size}

    def last_uses(self) -> dict[int, int]:
        """The place of the operation after which Python lets go of each tensor that is read or named."""
        last = {self.views.get(r, r): n for n, op in enumerate(self.operations) for r in op.reads}
        for r, n in self.named_until.items():
            whole = self.views.get(r, r)
            last[whole] = max(n, last.get(whole, -1))
        return last

    def _forward(self, saved: set[int] | None) -> Amount | Peak:
        ends: dict[int, list[int]] = {}
        for r, n in self.last_uses().items():
            if r not in self.outside and not (saved and r in saved):
                ends.setdefault(n, []).append(r)
        alive: Amount = 0.0
        candidates: list[tuple[Amount | Peak, str]] = []
        for n, op in enumerate(self.operations):
            alive += 0 if op.writes in self.views else self.sizes[op.writes]
            dropped = 0 if saved is not None else op.keeps - op.cached
            alive += op.keeps - dropped
            once = dropped - op.pieces if saved is None else dropped
            candidates.append((alive + once + op.scratch, op.name))
            alive -= sum(self.sizes[r] for r in ends.get(n, ()))
        return highest(candidates)[0]

    def _backward(self) -> tuple[Amount | Peak, str]:
        replay = _Backward(self)
        for op in reversed(self.operations):
            replay.step(op)
        return highest(replay.candidates)


class _Backward:
    """The state of a backward replay: holders of each storage, gradients by tensor, bytes alive and their candidate maxima."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.holders: dict[int, int] = {}
        for op in tape.operations:
            for i in op.saves:
                self.holders[i] = self.holders.get(i, 0) + 1
        held = sum(tape.sizes[i] for i in self.holders if i not in tape.outside)
        self.alive: Amount = held + sum(op.keeps for op in tape.operations)
        last = tape.operations[-1].writes
        self.sizes: list[Amount] = [tape.sizes[last]]
        self.owners: list[int] = [1]
        self.gradients: dict[int, int] = {last: 0}
        self.alive += tape.sizes[last]
        self.candidates: list[tuple[Amount | Peak, str]] = [(self.alive, "start")]

    def step(self, op: Operation) -> None:
        given = [self.gradients.pop(i) for i in (op.writes, *op.also) if i in self.gradients]
        if given:
            wanted = [r for r in op.reads if self.tape.needs_grad[r]]
            own = self.tape.sizes[op.writes]
            shared = [op.aliases and abs(self.tape.sizes[r] - own) < 1 for r in wanted]
            made = [
                self._share(given[0]) if share else self._new(self.tape.sizes[r]) for r, share in zip(wanted, shared, strict=True)
            ]
            self.alive += op.weight_gradient
            self._mark(op.back_scratch, op.name)
            for tensor, gradient in zip(wanted, made, strict=True):
                self._accumulate(tensor, gradient)
            for used in given:
                self._drop(used)
        self.alive -= op.keeps
        for i in op.saves:
            self.holders[i] -= 1
            if i not in self.tape.outside and not self.holders[i]:
                self.alive -= self.tape.sizes[i]

    def _accumulate(self, tensor: int, gradient: int) -> None:
        old = self.gradients.get(tensor)
        if old is None:
            self.gradients[tensor] = gradient
            return
        if self.owners[old] > 1:
            fresh = self._new(self.sizes[old])
            self._mark(0, "accumulate")
            self._drop(old)
            self.gradients[tensor] = fresh
        self._drop(gradient)

    def _new(self, size: Amount) -> int:
        self.sizes.append(size)
        self.owners.append(1)
        self.alive += size
        return len(self.sizes) - 1

    def _share(self, index: int) -> int:
        self.owners[index] += 1
        return index

    def _drop(self, index: int) -> None:
        self.owners[index] -= 1
        if not self.owners[index]:
            self.alive -= self.sizes[index]

    def _mark(self, scratch: Amount | Peak, name: str) -> None:
        self.candidates.append((self.alive + scratch, name))


def _maker(name: str) -> str:
    """An operation without its step: norm.scale is the norm, expert.gate the experts' gate."""
    first, *steps = name.split(".")
    return f"{first}.{steps[0]}" if steps and first in ("expert", "shared") else first
