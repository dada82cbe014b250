"""One decoder layer on the tape: norms, mixer, feed-forward and residuals, in the order the model's block gives."""

from functools import lru_cache

import msgspec

from vramcast.models.attention import Attention, LatentAttention
from vramcast.models.feedforward import Dense, Experts
from vramcast.models.inventory import Block
from vramcast.training.activations.attention import attention, latent
from vramcast.training.activations.feedforward import dense, experts
from vramcast.training.activations.norms import add, norm
from vramcast.training.activations.recurrent import recurrent
from vramcast.training.activations.style import Style
from vramcast.training.activations.tape import Life, Tape


def layer_life(block: Block, style: Style, *, hidden: int, tokens: float, seq: float) -> Life:
    """What one layer of ``block`` saves and allocates for ``tokens`` tokens in sequences of ``seq``; bytes beyond its input."""
    return layer_tape(block, style, hidden=hidden, tokens=tokens, seq=seq).life()


def layer_tape(block: Block, style: Style, *, hidden: int, tokens: float, seq: float) -> Tape:
    """The tape of one layer. With sequence parallelism the stream and the norms hold 1/tp of the tokens."""
    if style.norm == "eager" and has_layer_norm(block):
        style = msgspec.structs.replace(style, norm="native")
    style = _as_packed(block, style)
    own = tokens / style.tp if style.sp else tokens
    tape = Tape(own * hidden * style.residual, input_needs_grad=style.reached)
    stream = 0
    norms = norm_count(block, hidden)
    parallel = norms == 1 and bool(block.mixers) and block.feedforward is not None
    normed = _gathered(tape, style, norm(tape, style, stream, tokens=own, width=hidden), tokens, hidden)
    branches = []
    for mixer in block.mixers:
        out = _mixer(tape, style, mixer, normed, tokens=tokens, seq=seq, hidden=hidden, qk_width=_qk_width(block))
        branches.append(_scattered(tape, style, out, own, hidden))
    if branches:
        joined = branches[0]
        for branch in branches[1:]:
            joined = tape.run("join", [joined, branch], tape.sizes[joined], aliases=True)
        if norms >= 4:
            joined = norm(tape, style, joined, tokens=own, width=hidden)
        stream = add(tape, style, stream, joined)
    if block.feedforward is None:
        return tape
    if branches and not parallel:
        read = 0 if block.parallel else stream
        normed = _gathered(tape, style, norm(tape, style, read, tokens=own, width=hidden), tokens, hidden)
    gated = any("shared_expert_gate" in t.name for t in block.tensors)
    out = _feedforward(tape, style, block.feedforward, normed, tokens=tokens, hidden=hidden, gated_shared=gated)
    out = _scattered(tape, style, out, own, hidden)
    if norms >= 4:
        out = norm(tape, style, out, tokens=own, width=hidden)
    add(tape, style, stream, out)
    return tape


@lru_cache(maxsize=512)
def _norm_count(tensors: tuple[tuple[str, tuple[int, ...], str], ...], hidden: int) -> int:
    return sum(role == "norm" and shape == (hidden,) and name.endswith("weight") for name, shape, role in tensors)


def norm_count(block: Block, hidden: int) -> int:
    """Norms over the hidden width in one layer: 1 in parallel blocks (Phi, Falcon-7B), 4 with sandwich norms (Gemma-2)."""
    return _norm_count(tuple((t.name, t.shape, t.role) for t in block.tensors if t.role == "norm"), hidden)


def _as_packed(block: Block, style: Style) -> Style:
    """Modules whose projections are one matrix hand out views of its result (transformers: Phi-3, GLM-4, GPT-NeoX, Falcon)."""
    roles = {t.role for t in block.tensors}
    qkv = "views" if style.qkv == "separate" and "qkv" in roles else style.qkv
    glu = "views" if style.glu == "eager" and "gate_up" in roles else style.glu
    return msgspec.structs.replace(style, qkv=qkv, glu=glu)


def _qk_width(block: Block) -> int:
    """Width of the norm of queries: one head's, or all heads' together (OLMo-2)."""
    return next((t.shape[-1] for t in block.tensors if "q_norm" in t.name), 0)


def has_layer_norm(block: Block) -> bool:
    """Whether the block's norms have biases: torch's own LayerNorm, one kernel, where an RMSNorm is written out in Python."""
    return any(t.role == "norm" and t.name.endswith("bias") for t in block.tensors)


def _mixer(tape: Tape, style: Style, mixer: object, source: int, *, tokens: float, seq: float, hidden: int, qk_width: int) -> int:
    if isinstance(mixer, Attention):
        return attention(tape, style, mixer, source, tokens=tokens, seq=seq, hidden=hidden, qk_width=qk_width)
    if isinstance(mixer, LatentAttention):
        return latent(tape, style, mixer, source, tokens=tokens, seq=seq, hidden=hidden)
    return recurrent(tape, style, mixer, source, tokens=tokens, hidden=hidden)


def _feedforward(
    tape: Tape, style: Style, kind: Dense | Experts, source: int, *, tokens: float, hidden: int, gated_shared: bool
) -> int:
    if isinstance(kind, Dense):
        return dense(tape, style, kind, source, tokens=tokens, hidden=hidden)
    return experts(tape, style, kind, source, tokens=tokens, hidden=hidden, gated_shared=gated_shared)


def _gathered(tape: Tape, style: Style, source: int, tokens: float, hidden: int) -> int:
    """Sequence parallelism gathers the whole sequence before a column-parallel layer; the gathered copy is not saved."""
    if not style.sp or style.tp == 1:
        return source
    return tape.gather("sp.gather", source, tokens * hidden * style.width)


def _scattered(tape: Tape, style: Style, source: int, own: float, hidden: int) -> int:
    """The reduce-scatter (or all-reduce) after a row-parallel layer."""
    if style.tp == 1:
        return source
    return tape.run("tp.reduce", [source], own * hidden * style.width, aliases=not style.sp)
