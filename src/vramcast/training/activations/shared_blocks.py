"""A hybrid layer of Zamba on the tape: a transformer block that several layers share, whose result a Mamba layer reads.

The block reads the stream and the embeddings side by side, twice as wide; what it makes goes through a matrix of the layer's own
and is added to what the Mamba layer norms, not to the stream. Its weights' gradients are made by the last layer that uses it.

Sources: transformers 5.23, models/zamba2 (Zamba2HybridLayer, Zamba2AttentionDecoderLayer, Zamba2MLP), models/zamba.
"""

import msgspec

from vramcast.models.inventory import Block
from vramcast.models.layers import Attention, Dense
from vramcast.training.activations.attention import attention
from vramcast.training.activations.choice import Style
from vramcast.training.activations.dense import dense, linear, norm
from vramcast.training.activations.recurrent import recurrent
from vramcast.training.activations.sizes import Amount
from vramcast.training.activations.tape import Tape


def write(tape: Tape, block: Block, style: Style, *, hidden: int, tokens: Amount, seq: Amount) -> None:
    """The whole layer; its input is tensor 0, the embeddings are somebody else's."""
    there = msgspec.structs.replace(style, gradient_width=0) if block.count > 1 else style
    told = _transformed(tape, block, there, hidden=hidden, tokens=tokens, seq=seq)
    told = linear(tape, style, told, tokens=tokens, inputs=hidden, outputs=hidden, role="mixer")
    summed = tape.run("residual", [0, told], tape.sizes[0], aliases=True)
    normed = norm(tape, style, summed, tokens=tokens, width=hidden)
    made = recurrent(tape, style, block.mixers[1], normed, tokens=tokens, seq=seq, hidden=hidden)
    tape.run("residual", [0, made], tape.sizes[0], aliases=True)
    tape.hold(told, summed)


def _transformed(tape: Tape, block: Block, style: Style, *, hidden: int, tokens: Amount, seq: Amount) -> int:
    """Norm, attention and MLP without residual sums."""
    kind, feed = block.mixers[0], block.feedforward
    assert isinstance(kind, Attention)
    assert isinstance(feed, Dense)
    stream = tape.sizes[0]
    both = tape.run("join", [0, tape.given(stream)], 2 * stream)
    read = norm(tape, style, both, tokens=tokens, width=2 * hidden)
    seen = attention(tape, style, kind, read, tokens=tokens, seq=seq, hidden=2 * hidden, outputs=hidden)
    normed = norm(tape, style, seen, tokens=tokens, width=hidden)
    return dense(tape, style, feed, normed, tokens=tokens, hidden=hidden)
