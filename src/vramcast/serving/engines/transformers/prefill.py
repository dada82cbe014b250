"""The transient tensors of a prefill in plain PyTorch: the widest moment of one layer, and the logits after the last.

Read from the modeling files: down_proj(act_fn(gate_proj(x)) * up_proj(x)) holds three intermediate-width tensors at the product,
beside the residual, the normalised input, the layer's input and the embeddings; eager attention holds its score matrix in the
model's type, in fp32 after the softmax, and again in the model's type.
"""

import msgspec

from vramcast.ledger import Term
from vramcast.models.attention import Attention, LatentAttention
from vramcast.models.feedforward import Dense, Experts
from vramcast.models.inventory import Block, Model
from vramcast.models.stages import Stage
from vramcast.units import MiB

RESIDUALS = 4


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """One forward: sequences, tokens of each, bytes per element, attention kernel, and the cache each score row spans.

    ``workspace_bytes``: what torch gives cuBLAS on the card.
    """

    batch: int
    tokens: int
    span: int
    element: float
    attention: str
    score_bytes: float = 8
    workspace_bytes: int = 0

    @property
    def rows(self) -> int:
        """Tokens of all sequences."""
        return self.batch * self.tokens


def activations_term(model: Model, stage: Stage, step: Pass) -> Term:
    """The largest layer's transient tensors on that stage."""
    size, why = max((_layer(model, block, step) for block, _ in stage.blocks), default=(0.0, "no layers"))
    parts = (
        Term(name="widest_layer", bytes=round(size), why=why),
        Term(name="cublas", bytes=step.workspace_bytes, why="workspace torch gives cuBLAS"),
    )
    return Term.total("activations", parts, source="transformers modeling files")


def logits_term(model: Model, step: Pass, *, full: bool) -> Term:
    """Logits of every token in fp32 beside the model's type, or of the last token only."""
    rows = step.rows if full else step.batch
    each = step.element + 4
    size = rows * model.vocab * each + step.rows * model.hidden * step.element * 2
    why = f"{rows:,} rows x {model.vocab:,} vocabulary x ({step.element:g} + 4) B, and the last hidden states"
    return Term(
        name="logits", bytes=round(size) + step.workspace_bytes, why=why, source="transformers: logits.float() of the kept rows"
    )


def returned_term(model: Model, step: Pass) -> Term:
    """fp32 logits of the whole prompt brought back to the first card, where the inputs were (accelerate, io_same_device)."""
    why = f"{step.rows:,} rows x {model.vocab:,} vocabulary x 4 B, moved to the inputs' card"
    return Term(name="logits", bytes=step.rows * model.vocab * 4, why=why, source="accelerate hooks.py AlignDevicesHook")


def _layer(model: Model, block: Block, step: Pass) -> tuple[float, str]:
    residual = RESIDUALS * model.hidden
    wide, what = _feedforward(block)
    forward = step.rows * (residual + wide) * step.element
    scores = _scores(block, step)
    mixing = step.rows * (residual + _projections(block)) * step.element + scores
    if mixing > forward:
        kernel = f", and {scores / MiB:,.0f} MiB of scores" if scores else ""
        return mixing, f"{step.rows:,} tokens x ({RESIDUALS} x {model.hidden:,} + projections) x {step.element:g} B{kernel}"
    return forward, f"{step.rows:,} tokens x ({RESIDUALS} x {model.hidden:,} + {what}) x {step.element:g} B"


def _feedforward(block: Block) -> tuple[int, str]:
    kind = block.feedforward
    if isinstance(kind, Dense):
        copies = 3 if kind.gated else 2
        return copies * kind.intermediate, f"{copies} x {kind.intermediate:,}"
    if isinstance(kind, Experts):
        width = 3 * max(kind.shared_intermediate, kind.intermediate * kind.active // 2)
        return width + kind.routed, f"{width:,} in experts + router"
    return 0, "0"


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


def _scores(block: Block, step: Pass) -> float:
    if step.attention not in ("eager", "eager_grouped"):
        return 0
    grouped_only = step.attention == "eager_grouped"
    heads = max((_scored_heads(mixer, grouped_only=grouped_only) for mixer in block.mixers), default=0)
    return float(step.batch * heads * step.tokens * step.span * step.score_bytes)


def _scored_heads(mixer: object, *, grouped_only: bool) -> int:
    if isinstance(mixer, Attention):
        return 0 if grouped_only and mixer.kv_heads == mixer.heads else mixer.heads
    return mixer.heads if isinstance(mixer, LatentAttention) else 0
