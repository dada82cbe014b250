"""The transient tensors of a prefill in plain PyTorch: the widest moment of one layer, and the logits after the last.

Read from the modeling files: down_proj(act_fn(gate_proj(x)) * up_proj(x)) holds three intermediate-width tensors at the product,
beside the residual, the normalised input, the layer's input and the embeddings; eager attention holds its score matrix in the
model's type, in fp32 after the softmax, and again in the model's type.
"""

import msgspec

from vramcast.ledger import Term
from vramcast.models.inventory import Block, Model
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention
from vramcast.models.sharding import Stage
from vramcast.quantity import Number, Quantity, binding, bytes_, named

RESIDUALS = 4
FLOAT32_BYTES = 4


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """One forward: sequences, tokens of each, bytes per element, attention kernel, and the cache each score row spans.

    ``workspace_bytes``: what torch gives cuBLAS on the card.
    """

    batch: Number
    tokens: Number
    span: Number
    element: float
    attention: str
    score_bytes: float = 8
    workspace_bytes: int = 0

    @property
    def rows(self) -> Number:
        """Tokens of all sequences."""
        return self.batch * self.tokens


def activations_term(model: Model, stage: Stage, step: Pass) -> Term:
    """The largest layer's transient tensors on that stage."""
    moments = [moment for block, _ in stage.blocks for moment in _moments(model, block, step)]
    parts = (
        Term(name="widest_layer", amount=binding(*moments) if moments else bytes_(0, "no layers")),
        Term(name="cublas", bytes=step.workspace_bytes, why="workspace torch gives cuBLAS"),
    )
    return Term.total("activations", parts, source="transformers modeling files")


def logits_term(model: Model, step: Pass, *, full: bool, scored: bool = False) -> Term:
    """Logits of every token in fp32 beside the model's type, or of the last token only; and the last hidden states.

    ``scored``: beam search makes log-probabilities of the fp32 copy, and adds each beam's score into a third (_beam_search).
    """
    rows = named(step.rows if full else step.batch, "rows")
    each = max(step.element + 2 * FLOAT32_BYTES, 3 * FLOAT32_BYTES) if scored else step.element + FLOAT32_BYTES
    logits = rows * named(model.vocab, "vocabulary") * bytes_(each)
    states = named(step.rows, "tokens") * named(model.hidden, "hidden") * bytes_(step.element) * 2
    size = logits + states + bytes_(step.workspace_bytes, "of cuBLAS")
    return Term(name="logits", amount=size, source="transformers: logits.float() of the kept rows")


def returned_term(model: Model, step: Pass) -> Term:
    """fp32 logits of the whole prompt brought back to the first card, where the inputs were (accelerate, io_same_device)."""
    size = named(step.rows, "rows moved to the inputs' card") * named(model.vocab, "vocabulary") * bytes_(FLOAT32_BYTES)
    return Term(name="logits", amount=size, source="accelerate hooks.py AlignDevicesHook")


def _moments(model: Model, block: Block, step: Pass) -> tuple[Quantity, Quantity]:
    """What the MLP of a layer holds at its widest, and what its mixer does."""
    rows, residual = named(step.rows, "tokens"), RESIDUALS * named(model.hidden, "hidden")
    element = bytes_(step.element)
    mixing = rows * (residual + named(_projections(block), "of projections")) * element
    scores = _scores(block, step)
    return rows * (residual + _feedforward(block)) * element, mixing if scores is None else mixing + scores


def _feedforward(block: Block) -> Quantity:
    kind = block.feedforward
    if isinstance(kind, Dense):
        return (3 if kind.gated else 2) * named(kind.intermediate, "intermediate")
    if isinstance(kind, Experts):
        width = max(kind.shared_intermediate, kind.intermediate * kind.active // 2)
        return 3 * named(width, "in experts") + named(kind.routed, "router")
    return named(0, "no MLP")


def _projections(block: Block) -> int:
    widths = [0]
    for mixer in block.mixers:
        if isinstance(mixer, Attention):
            widths.append(2 * mixer.heads * (mixer.head_dim + mixer.values) + mixer.cache_elements)
        elif isinstance(mixer, LatentAttention):
            widths.append(mixer.heads * (3 * mixer.head_dim + 2 * mixer.value_dim))
        else:
            widths.append(4 * getattr(mixer, "conv_width", 0))
    return max(widths)


def _scores(block: Block, step: Pass) -> Quantity | None:
    """The scores of eager attention; None where no kernel keeps them."""
    if step.attention not in ("eager", "eager_grouped"):
        return None
    grouped_only = step.attention == "eager_grouped"
    heads = max((_scored_heads(mixer, grouped_only=grouped_only) for mixer in block.mixers), default=0)
    rows = named(step.batch, "sequences") * named(heads, "heads") * named(step.tokens, "tokens") * named(step.span, "scores")
    return rows * bytes_(step.score_bytes)


def _scored_heads(mixer: object, *, grouped_only: bool) -> int:
    if isinstance(mixer, Attention):
        return 0 if grouped_only and mixer.kv_heads == mixer.heads else mixer.heads
    return mixer.heads if isinstance(mixer, LatentAttention) else 0
