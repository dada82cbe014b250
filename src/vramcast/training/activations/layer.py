"""One decoder layer on the tape: norms, mixer, feed-forward and residuals, in the order the model's block gives."""

from functools import lru_cache

from vramcast.models.inventory import Block
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention
from vramcast.training.activations.altup import AltUp, in_float
from vramcast.training.activations.attention import attention, cross_attention, latent
from vramcast.training.activations.choice import Style
from vramcast.training.activations.dense import add, dense, experts, linear, norm
from vramcast.training.activations.recurrent import recurrent
from vramcast.training.activations.shared_blocks import write
from vramcast.training.activations.sizes import Amount
from vramcast.training.activations.tape import Tape

_OWN_EMBEDDING = "per_layer_input_gate"


def streams(block: Block) -> int:
    """How many streams a layer carries; one where it has no AltUp (Gemma 3n)."""
    return next((t.shape[0] for t in block.tensors if t.name == "altup.correction_coefs.weight"), 1)


def has_own_embedding(block: Block) -> bool:
    """Whether tokens have an embedding of their own in each layer (Gemma 3n and 4)."""
    return any(t.name.startswith(_OWN_EMBEDDING) for t in block.tensors)


def is_shared(block: Block) -> bool:
    """Whether the layer passes a block that several layers share (Zamba)."""
    return any(t.name.startswith("mamba_decoder.") for t in block.tensors)


def layer_tape(block: Block, style: Style, *, hidden: int, tokens: Amount, seq: Amount) -> Tape:
    """The tape of one layer. With sequence parallelism the stream and the norms hold 1/tp of the tokens."""
    if style.kernels.norm == "eager" and (has_layer_norm(block) or style.written.layer_norm):
        style = style.under(norm="native")
    style = _as_packed(block, style)
    own, carried = tokens / style.tp if style.sp else tokens, streams(block)
    style = in_float(style) if carried > 1 else style
    tape = Tape(own * hidden * style.residual * carried, input_needs_grad=style.reached)
    layer = _Layer(tape, block, style, hidden=hidden, tokens=tokens, seq=seq, own=own)
    if carried > 1:
        AltUp(tape, block, style, count=carried, hidden=hidden, tokens=tokens).write(layer.mixed, layer.fed, layer.told)
    elif is_shared(block):
        write(tape, block, style, hidden=hidden, tokens=tokens, seq=seq)
    elif style.written.norms == "pre":
        layer.normed_before()
    else:
        layer.normed_after()
    return tape


class _Layer:
    """A layer being written down: the stream, and branches that read it and are added to it."""

    def __init__(self, tape: Tape, block: Block, style: Style, *, hidden: int, tokens: Amount, seq: Amount, own: float) -> None:
        self.tape, self.block, self.style = tape, block, style
        self.hidden, self.tokens, self.seq, self.own = hidden, tokens, seq, own
        self.norms = norm_count(block, hidden)

    def normed_before(self) -> None:
        """Llama's order: a branch reads the normed stream; sandwich norms norm its result too."""
        block, stream = self.block, 0
        normed = self._read(self._norm(stream))
        if block.mixers:
            stream = self._add(stream, self._after(self.mixed(normed)))
        if block.cross:
            stream = self._add(stream, self._crossed(self._norm(stream)))
        if block.feedforward is None:
            return
        shared = self.norms == 1 and bool(block.mixers)  # Phi and Falcon-7B: one norm for both branches
        if block.mixers and not shared:
            normed = self._read(self._norm(0 if block.parallel else stream))
        stream = self._add(stream, self._after(self.fed(normed)))
        if has_own_embedding(block):
            self._add(stream, self.told(stream))

    def told(self, stream: int) -> int:
        """Gemma 3n and 4: the token's own narrow embedding of this layer, gated by the stream, widened and normed."""
        tape, style, tokens = self.tape, self.style, self.tokens
        width = next(t.shape[0] for t in self.block.tensors if t.name.startswith(_OWN_EMBEDDING))
        given = tape.given(tokens * width * style.residual)
        gate = linear(tape, style, stream, tokens=tokens, inputs=self.hidden, outputs=width, role="mixer")
        active = tape.run("activation", [gate], tape.sizes[gate], saves=[gate])
        told = tape.run("product", [active, given], tape.sizes[active], saves=[active, given])
        wide = linear(tape, style, told, tokens=tokens, inputs=width, outputs=self.hidden, role="mixer")
        return self._norm(wide)

    def normed_after(self) -> None:
        """BERT's order, where the sum is normed, and OLMo-2's, where the branch's result is."""
        stream = 0
        for branch in (self.mixed, *([self._crossed] if self.block.cross else []), self.fed):
            stream = self._closed(stream, branch(stream))

    def _closed(self, stream: int, branch: int) -> int:
        if self.style.written.norms == "sum":
            return self._norm(self._add(stream, branch))
        return self._add(stream, self._norm(branch))

    def _norm(self, source: int) -> int:
        return norm(self.tape, self.style, source, tokens=self.own, width=self.hidden)

    def _after(self, branch: int) -> int:
        """The second norm of a sandwich (Gemma-2)."""
        return self._norm(branch) if self.norms >= 4 else branch

    def _add(self, stream: int, branch: int) -> int:
        return add(self.tape, self.style, stream, branch)

    def _read(self, normed: int) -> int:
        return _gathered(self.tape, self.style, normed, self.tokens, self.hidden)

    def mixed(self, source: int) -> int:
        """Every mixer reads the same tensor; of parallel ones, which are added, the scan runs first (models/falcon_h1)."""
        width, joined = _qk_width(self.block), 0
        for place, mixer in enumerate(sorted(self.block.mixers, key=lambda m: isinstance(m, Attention))):
            out = _mixer(
                self.tape, self.style, mixer, source, tokens=self.tokens, seq=self.seq, hidden=self.hidden, qk_width=width
            )
            out = _scattered(self.tape, self.style, out, self.own, self.hidden)
            joined = self.tape.run("join", [joined, out], self.tape.sizes[out], aliases=True) if place else out
        return joined

    def _crossed(self, source: int) -> int:
        assert self.block.cross is not None
        kind, tokens, hidden = self.block.cross, self.tokens, self.hidden
        return cross_attention(self.tape, self.style, kind, source, tokens=tokens, seq=self.seq, hidden=hidden)

    def fed(self, source: int) -> int:
        assert self.block.feedforward is not None
        gated = any("shared_expert_gate" in t.name for t in self.block.tensors)
        kind, tokens, hidden = self.block.feedforward, self.tokens, self.hidden
        out = _feedforward(self.tape, self.style, kind, source, tokens=tokens, hidden=hidden, gated_shared=gated)
        return _scattered(self.tape, self.style, out, self.own, hidden)


@lru_cache(maxsize=512)
def _norm_count(tensors: tuple[tuple[str, tuple[int, ...], str], ...], hidden: int) -> int:
    norms = (name for name, shape, role in tensors if role == "norm" and shape == (hidden,) and name.endswith("weight"))
    return sum("q_norm" not in name and "k_norm" not in name for name in norms)


def norm_count(block: Block, hidden: int) -> int:
    """Norms over the hidden width in one layer: 1 in parallel blocks (Phi, Falcon-7B), 4 with sandwich norms (Gemma-2).

    Norms of queries and keys are not among them, though all heads together may be as wide (OLMoE).
    """
    return _norm_count(tuple((t.name, t.shape, t.role) for t in block.tensors if t.role == "norm"), hidden)


def _as_packed(block: Block, style: Style) -> Style:
    """Modules whose projections are one matrix hand out views of its result (transformers: Phi-3, GLM-4, GPT-NeoX, Falcon)."""
    roles = {t.role for t in block.tensors}
    qkv = "views" if style.kernels.qkv == "separate" and "qkv" in roles else style.kernels.qkv
    glu = "views" if style.kernels.glu == "eager" and "gate_up" in roles else style.kernels.glu
    return style.under(qkv=qkv, glu=glu)


def _qk_width(block: Block) -> int:
    """Width of the norm of queries: one head's, or all heads' together (OLMo-2)."""
    return next((t.shape[-1] for t in block.tensors if "q_norm" in t.name), 0)


def has_layer_norm(block: Block) -> bool:
    """Whether the block's norms have biases: torch's own LayerNorm, one kernel, where an RMSNorm is written out in Python."""
    return any(t.role == "norm" and t.name.endswith("bias") for t in block.tensors)


def _mixer(
    tape: Tape, style: Style, mixer: object, source: int, *, tokens: Amount, seq: Amount, hidden: int, qk_width: int
) -> int:
    if isinstance(mixer, Attention):
        return attention(tape, style, mixer, source, tokens=tokens, seq=seq, hidden=hidden, qk_width=qk_width)
    if isinstance(mixer, LatentAttention):
        return latent(tape, style, mixer, source, tokens=tokens, seq=seq, hidden=hidden)
    return recurrent(tape, style, mixer, source, tokens=tokens, seq=seq, hidden=hidden)


def _feedforward(
    tape: Tape, style: Style, kind: Dense | Experts, source: int, *, tokens: Amount, hidden: int, gated_shared: bool
) -> int:
    if isinstance(kind, Dense):
        return dense(tape, style, kind, source, tokens=tokens, hidden=hidden)
    return experts(tape, style, kind, source, tokens=tokens, hidden=hidden, gated_shared=gated_shared)


def _gathered(tape: Tape, style: Style, source: int, tokens: Amount, hidden: int) -> int:
    """Sequence parallelism gathers the whole sequence before a column-parallel layer.

    Megatron's own function saves the rank's part and gathers it again in backward; a DTensor's matmul saves what it reads, and
    so does an adapter, whose first matrix is a layer of its own. Sources: Megatron-LM core 0.16.1, tensor_parallel/layers.py
    (LinearWithGradAccumulationAndAsyncCommunication: total_input); torch 2.13, distributed/tensor/_redistribute.py (Redistribute
    saves no tensor), derivatives.yaml (linear); Megatron-Bridge 0d5f5558c, peft/utils.py (ParallelLinearAdapter.forward).
    """
    if not style.sp or style.tp == 1:
        return source
    size = tokens * hidden * style.width
    again = style.gathers_again and style.adapter is None
    return tape.gather("sp.gather", source, size) if again else tape.run("sp.gather", [source], size)


def _scattered(tape: Tape, style: Style, source: int, own: float, hidden: int) -> int:
    """The reduce-scatter (or all-reduce) after a row-parallel layer."""
    if style.tp == 1:
        return source
    return tape.run("tp.reduce", [source], own * hidden * style.width, aliases=not style.sp)
