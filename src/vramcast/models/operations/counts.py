"""FLOPs of a forward pass by layer kind, and what other counters make of the same model.

Three conventions differ by up to a factor of several: whether attention's causal half is counted once (this module) or in full
(profilers, PaLM), whether a multiply-add is one operation or two, and whether parameters that no token meets (embeddings,
experts that were not chosen) are counted at all.
"""

import msgspec

from vramcast.models.inventory import Model, by_identity
from vramcast.models.layers import Attention, LatentAttention
from vramcast.models.operations.building import operations
from vramcast.models.operations.kinds import Exchange, LatentScores, Pointwise, Scores
from vramcast.models.operations.products import Batch


class PartCount(msgspec.Struct, frozen=True, kw_only=True):
    """One layer kind: forward FLOPs of one sequence, and bytes its operations read and write at 16 bits."""

    part: str
    flops: float
    read_bytes: float
    write_bytes: float


class Convention(msgspec.Struct, frozen=True, kw_only=True):
    """What one way of counting says of a forward pass over one sequence, and why it differs."""

    name: str
    flops: float
    because: str


def forward_counts(model: Model, *, seq: int) -> tuple[PartCount, ...]:
    """By layer kind, for one sequence of ``seq`` tokens with logits for each (training, scoring); pointwise FLOPs left out."""
    batch = Batch(prefills=1, prefill_tokens=seq, all_logits=True)
    found: dict[str, list[float]] = {}
    for one in operations(model):
        sums = found.setdefault(one.part, [0.0, 0.0, 0.0])
        sums[0] += 0 if isinstance(one, Pointwise) else float(one.count * one.flops(batch))
        if not isinstance(one, Exchange):
            sums[1] += float(one.count * one.read_bytes(batch))
            sums[2] += float(one.count * one.write_bytes(batch))
    rows = (PartCount(part=part, flops=f, read_bytes=r, write_bytes=w) for part, (f, r, w) in found.items())
    return tuple(sorted(rows, key=lambda row: -row.flops))


@by_identity()
def forward_flops(model: Model, *, seq: int) -> float:
    """Forward FLOPs of one sequence of ``seq`` tokens, causal half counted once."""
    return sum(row.flops for row in forward_counts(model, seq=seq))


def conventions(model: Model, *, seq: int) -> tuple[Convention, ...]:
    """The same pass as this program, profilers and rules of thumb count it."""
    own = forward_flops(model, seq=seq)
    full, scores = full_attention_flops(model, seq=seq), _score_flops(model, seq=seq)
    products = own - scores
    met, every = model.active_parameters - _embedding(model), model.parameters
    palm = 2 * met * seq + full
    return (
        Convention(name="vramcast", flops=own, because="every product a token meets; causal half of attention counted once"),
        Convention(name="torch FlopCounterMode", flops=products + full, because="attention without its mask: all pairs"),
        Convention(
            name="DeepSpeed profiler", flops=products + full, because="attention in full; norms and activations come on top"
        ),
        Convention(
            name="fvcore", flops=products / 2, because="a multiply-add is one; scaled_dot_product_attention is not counted"
        ),
        Convention(name="PaLM (6N + 12LHQT)/3", flops=palm, because="parameters without embedding, attention in full"),
        Convention(
            name="2N (6N/3)", flops=2.0 * every * seq, because="all parameters, embedding and idle experts too; no attention"
        ),
    )


def full_attention_flops(model: Model, *, seq: int) -> float:
    """Scores and weighted values over every pair, as counters that do not see the mask have it: 2 heads (key + value) seq^2."""
    total = 0.0
    for block in model.blocks:
        for mixer in block.mixers:
            if isinstance(mixer, Attention):
                total += block.count * 2 * mixer.heads * (mixer.head_dim + mixer.values) * seq**2
            elif isinstance(mixer, LatentAttention):
                total += block.count * 2 * mixer.heads * (mixer.head_dim + mixer.value_dim) * seq**2
    return total


def _score_flops(model: Model, *, seq: int) -> float:
    batch = Batch(prefills=1, prefill_tokens=seq, all_logits=True)
    return sum(float(one.count * one.flops(batch)) for one in operations(model) if isinstance(one, Scores | LatentScores))


def _embedding(model: Model) -> int:
    return 0 if model.tied else sum(t.elements for t in model.tensors if t.role in ("embedding", "position"))
