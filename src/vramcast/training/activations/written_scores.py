"""Attention whose scores are written out: a product, a mask, a softmax and a second product, as each class writes them.

Source: transformers 5.23, each family's eager_attention_forward; models/gpt_oss, gemma2, bloom, mpt, gpt_neo, codegen.
"""

from vramcast.training.activations.choice import Style
from vramcast.training.activations.sizes import Amount, Heads
from vramcast.training.activations.tape import Tape

Parts = tuple[int, int, int]  # queries, keys and values, places on the tape


def materialised(tape: Tape, style: Style, name: str, qkv: Parts, heads: Heads) -> int:
    """Scores written out: eager softmaxes in fp32 and casts back; Megatron's fused softmax stays in 16 bits.

    Keys and values that several heads share come written out for every head.
    """
    scores, width, (q, k, v) = heads.scores, style.width, qkv
    named: tuple[int, ...] = ()
    held: Amount = width
    out = heads.tokens * heads.queries * heads.value_dim * width
    if name == "eager" and not heads.grouped:
        q, k, v, held, named = _in_rows(tape, (q, k, v), heads, width)
    raw = tape.run("scores", [q, k], scores * width, saves=[q, k])
    raw = tape.run("scores.scale", [raw], scores * width) if name == "eager" else raw
    if name != "eager":
        probabilities = tape.run("softmax", [raw], scores * width, saves_output=True)
    elif heads.sinks:
        probabilities = _with_sinks(tape, style, raw, scores, heads.tokens * heads.queries)
    else:
        raw = _softcapped(tape, raw, scores * width) if heads.softcap else raw
        masked, probabilities = _masked_softmax(tape, style, raw, scores, back=held)
        named += {"": (), "masked": (masked,), "both": (raw, masked)}[style.written.names_scores]
    if style.kernels.attention_dropout:
        probabilities = tape.run("dropout", [probabilities], tape.sizes[probabilities], keeps=scores)
    named += (probabilities,)
    probabilities = probabilities if heads.sinks else tape.cast(probabilities, scores * width)  # sinks are cut off by a view
    made = tape.run("weighted", [probabilities, v], out, saves=[probabilities, v])
    tape.hold(*named)
    return made


def _in_rows(tape: Tape, qkv: Parts, heads: Heads, width: int) -> tuple[int, int, int, Amount, tuple[int, ...]]:
    """Views of a packed projection as the rows that a batched product wants, narrowed by it; the width that they were held in."""
    if qkv[0] not in tape.views:
        q, k, v = qkv
        return q, k, tape.run("value.rows", [v], tape.sizes[v]) if v in tape.views else v, width, ()
    held = tape.sizes[qkv[0]] / (heads.tokens * heads.queries * heads.key_dim)
    rows = [tape.run(f"{r}.rows", [x], tape.sizes[x]) for r, x in zip("qkv", qkv, strict=True)]
    q, k, v = (tape.cast(x, tape.sizes[x] / held * width) for x in rows)
    return q, k, v, held, (*rows, tape.views[qkv[0]])


def _masked_softmax(tape: Tape, style: Style, raw: int, scores: Amount, *, back: Amount) -> tuple[int, int]:
    """The masked scores, in the embeddings' width, and their softmax in the values', or left for the product to cast."""
    width = style.width
    wide = width if style.normed_embedding else max(width, style.residual)
    masked = tape.run("mask", [raw], scores * wide, aliases=wide == width)
    if style.written.clamped_scores:
        masked = tape.run("mask.most", [masked], scores * wide, saves=[masked])
    float_width = width if style.written.softmax_as_is and not style.autocast else 4
    given = masked if wide >= float_width else tape.run("softmax.float", [masked], scores * 4)
    softmax = tape.run("softmax", [given], scores * max(float_width, wide), saves_output=True)
    narrow = width >= max(float_width, wide) or (style.written.softmax_as_is and style.autocast)
    narrow = narrow or back >= max(float_width, wide)
    return masked, softmax if narrow else tape.run("softmax.back", [softmax], scores * width)


def _softcapped(tape: Tape, raw: int, size: Amount) -> int:
    """Scores divided, squashed and multiplied: tanh saves its output (transformers, models/gemma2)."""
    divided = tape.run("softcap.divide", [raw], size)
    squashed = tape.run("softcap.tanh", [divided], size, saves_output=True)
    return tape.run("softcap.multiply", [squashed], size)


def _with_sinks(tape: Tape, style: Style, raw: int, scores: Amount, rows: Amount) -> int:
    """A column of sinks beside the masked scores, less the row's maximum; a view of the softmax cuts the column off.

    Source: transformers, models/gpt_oss, eager_attention_forward.
    """
    width = max(style.width, style.residual)
    size = (scores + rows) * width
    masked = tape.run("mask", [raw], scores * width, aliases=width == style.width)
    joined = tape.run("sinks.join", [masked], size)
    shifted = tape.run("sinks.shift", [joined], size, keeps=rows * 8)
    softmax = tape.run("softmax", [shifted], size, saves_output=True)
    tape.hold(masked, shifted)
    return softmax if width == style.width else tape.run("softmax.back", [softmax], scores * style.width)
