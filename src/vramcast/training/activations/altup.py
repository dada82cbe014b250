"""A layer of Gemma 3n on the tape: AltUp's streams (arXiv 2301.13310) around a sandwich layer with a low-rank residual.

The stream is several as wide ones in one tensor. A layer predicts all of them from a mixture of each other, runs on the first,
and corrects the others by what that run changed. Its stacked parts are float under autocast, as their magnitudes are (a power).

Source: transformers 5.23, models/gemma3n/modeling_gemma3n.py: Gemma3nTextDecoderLayer, Gemma3nTextAltUp, Gemma3nTextLaurelBlock.
"""

from collections.abc import Callable

import msgspec

from vramcast.models.inventory import Block
from vramcast.training.activations.choice import Style
from vramcast.training.activations.dense import linear, norm
from vramcast.training.activations.sizes import Amount
from vramcast.training.activations.tape import Tape

Branch = Callable[[int], int]


def in_float(style: Style) -> Style:
    """The style of layers whose stream autocast made float, where no sharded unit makes it narrow again."""
    return msgspec.structs.replace(style, residual=4) if style.autocast and not style.units_cast else style


class AltUp:
    """One layer being written down between prediction and correction: ``count`` streams, of ``size`` bytes each."""

    def __init__(self, tape: Tape, block: Block, style: Style, *, count: int, hidden: int, tokens: Amount) -> None:
        self.tape, self.style, self.hidden, self.tokens = tape, style, hidden, tokens
        self.inputs, self.size = count, tokens * hidden * style.residual
        self.rank = next(t.shape[0] for t in block.tensors if t.name == "laurel.linear_left.weight")

    def write(self, mixed: Branch, fed: Branch, told: Branch) -> None:
        """The layer: ``mixed`` and ``fed`` run a normed stream to its branch, ``told`` the first stream to what is added."""
        tape = self.tape
        predicted = self._predicted()
        active = self._first(predicted)
        normed = self._norm(active)
        low = self._laurel(normed)
        branch = self._norm(mixed(normed))
        gated = tape.run("residual", [active, branch], self.size, aliases=True)
        summed = tape.run("laurel.add", [gated, low], self.size, aliases=True)
        stream = tape.run("laurel.scale", [summed], self.size)
        again = self._norm(stream)
        out = fed(again)
        added = self._norm(out)
        done = tape.run("residual", [stream, added], self.size, aliases=True)
        corrected = self._corrected(predicted, done)
        self._told(corrected, told)
        tape.hold(predicted, normed, low, branch, gated, stream, again, out, added, done)  # names of the layer's forward

    def _norm(self, source: int) -> int:
        return norm(self.tape, self.style, source, tokens=self.tokens, width=self.hidden)

    def _first(self, streams: int) -> int:
        """The first stream of all, whose gradient is as large as all of them."""
        return self.tape.slices("altup.first", streams, (self.size,))[0]

    def _routed(self, source: int) -> int:
        """A few numbers for each token: a norm, a matrix, a tanh in float."""
        tape, style, tokens = self.tape, self.style, self.tokens
        scaled = tape.run("altup.scale", [self._norm(source)], self.size)
        routed = linear(tape, style, scaled, tokens=tokens, inputs=self.hidden, outputs=self.inputs, role="mixer")
        return tape.run("altup.tanh", [routed], tokens * self.inputs * style.residual, saves_output=True)

    def _predicted(self) -> int:
        """A mixture of the streams by coefficients of each token, to which they are added in place; copied into order."""
        tape, style, every = self.tape, self.style, self.inputs * self.size
        routed = self._routed(self._first(0))
        few = self.inputs**2
        coefficients = linear(tape, style, routed, tokens=self.tokens, inputs=self.inputs, outputs=few, role="mixer")
        narrow = every * style.width / style.residual
        given = tape.cast(0, narrow)
        mixed = tape.run("altup.mix", [given, coefficients], narrow, saves=[given, coefficients])
        added = tape.in_place("altup.add", mixed, 0)
        made = tape.run("altup.order", [added], narrow)
        wide = tape.cast(made, every)
        tape.hold(mixed, made)
        return wide

    def _laurel(self, normed: int) -> int:
        tape, style, tokens = self.tape, self.style, self.tokens
        low = linear(tape, style, normed, tokens=tokens, inputs=self.hidden, outputs=self.rank, role="mixer")
        back = linear(tape, style, low, tokens=tokens, inputs=self.rank, outputs=self.hidden, role="mixer")
        return tape.run("laurel.residual", [normed, self._norm(back)], self.size, aliases=True)

    def _corrected(self, predicted: int, done: int) -> int:
        """What the run changed, once for each stream, times coefficients of each token; the prediction is added in place."""
        tape, style, every = self.tape, self.style, self.inputs * self.size
        routed = self._routed(done)
        change = tape.run("altup.change", [done, self._first(predicted)], self.size)
        repeated = tape.run("altup.repeat", [change], every)
        coefficients = linear(tape, style, routed, tokens=self.tokens, inputs=self.inputs, outputs=self.inputs, role="mixer")
        made = tape.run("altup.correct", [repeated, coefficients], every, saves=[repeated, coefficients], back_scratch=every)
        tape.hold(change, repeated)
        return tape.in_place("altup.add", made, predicted)

    def _told(self, corrected: int, told: Branch) -> None:
        """The first stream, copied and scaled, says what the others get: added in place through a view of them."""
        tape, every = self.tape, self.inputs * self.size
        first = tape.run("altup.clone", [self._first(corrected)], self.size)
        trained = self.style.trains
        scaled = tape.run("altup.rescale", [first], self.size, saves=[first] if trained else [], trains=trained)
        added = told(scaled)
        tape.in_place("altup.tell", corrected, added, back_scratch=every)


def ends_saved(block: Block, style: Style, *, count: int, hidden: int, tokens: Amount, layers: int) -> Amount:
    """What is saved before the first layer and after the last: the streams' making and joining, every layer's own embedding."""
    own = next((t.shape[0] for t in block.tensors if t.name.startswith("per_layer_input_gate")), 0)
    saved: Amount = 0.0
    if own:
        saved = _own_embeddings(style, hidden=hidden, tokens=tokens, width=own * layers, each=own)
    if count > 1:
        size = tokens * hidden
        entry, out = Tape(size * style.residual, input_needs_grad=style.reached), Tape(size * in_float(style).residual * count)
        _entry(entry, style, hidden=hidden, tokens=tokens, count=count)
        _exit(out, style, hidden=hidden, tokens=tokens, count=count)
        lives = (entry.life(), out.life())
        saved = saved + sum(life.saved for life in lives) + entry.sizes[0] * style.reached + out.sizes[0]
    return saved


def _own_embeddings(style: Style, *, hidden: int, tokens: Amount, width: int, each: int) -> Amount:
    """The projection of the embeddings, normed, added to the table's rows and scaled: the last is what layers multiply with."""
    tape = Tape(tokens * hidden * style.residual)
    made = linear(tape, style, 0, tokens=tokens, inputs=hidden, outputs=width, role="mixer")
    normed = norm(tape, style, made, tokens=tokens * (width // each), width=each)
    tape.run("told", [normed], tokens * width * style.residual, saves_output=True)
    return tape.life().saved


def _entry(tape: Tape, style: Style, *, hidden: int, tokens: Amount, count: int) -> None:
    """Each further stream: a projection, brought to the magnitude of the embeddings (Gemma3nTextModel.forward)."""
    size = tokens * hidden
    wide = 4 if style.autocast else style.residual
    x = tape.cast(0, size * wide)
    tape.run("norm.pow", [x], size * wide, saves=[x])
    for _ in range(count - 1):
        made = linear(tape, style, 0, tokens=tokens, inputs=hidden, outputs=hidden, role="mixer")
        made = tape.cast(made, size * style.residual)
        _levelled(tape, style, made, size=size, tokens=tokens, trained=style.reached)


def _exit(tape: Tape, style: Style, *, hidden: int, tokens: Amount, count: int) -> None:
    """Each further stream through a projection of its own, levelled; then their mean."""
    size = tokens * hidden
    views = tape.slices("altup.streams", 0, (size * in_float(style).residual,) * (count - 1))
    for view in views:
        made = linear(tape, style, view, tokens=tokens, inputs=hidden, outputs=hidden, role="mixer")
        _levelled(tape, style, tape.cast(made, size * style.residual), size=size, tokens=tokens, trained=True)


def _levelled(tape: Tape, style: Style, source: int, *, size: Amount, tokens: Amount, trained: bool) -> None:
    """A stream times a magnitude and divided by its own: its square is saved, the quotient's side, the product's if both want.

    ``trained``: the magnitude, that of the first stream, wants a gradient.
    """
    wide = 4 if style.autocast else style.residual
    x = tape.cast(source, size * wide)
    squares = tape.run("norm.pow", [x], size * wide, saves=[x])
    own = tape.run("norm.mean", [squares], tokens * wide, saves_output=True)
    scaled = tape.run("magnitude.product", [source], size * wide, saves=[source] if trained else [])
    tape.run("magnitude.quotient", [scaled, own], size * wide, saves=[scaled])
