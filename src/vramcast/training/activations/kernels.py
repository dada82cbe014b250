"""Softmax(QK)V on the tape: which kernel runs, and what each one saves and allocates.

Sources: torch/_meta_registrations.py and aten/native/transformers (attention.cpp, cuda/sdp_utils.cpp); flash-attention,
flash_api.cpp; transformers 5.23, integrations/sdpa_attention.py and each family's eager_attention_forward.
"""

import msgspec

from vramcast.models.layers import Attention
from vramcast.training.activations.sizes import Amount, reaches
from vramcast.training.activations.style import Style
from vramcast.training.activations.tape import Tape

RANDOM_STATE = {"flash": 24, "cudnn": 24, "efficient": 16}  # bytes of the dropout generator's state that a kernel returns
WIDEST_FLASH_HEAD = 256


Parts = tuple[int, int, int]  # queries, keys and values, places on the tape


class Heads(msgspec.Struct, frozen=True, kw_only=True):
    """The problem of one layer: ``tokens`` rows in sequences of ``seq``, heads of queries and of keys, their widths.

    ``masked``: a mask is written out (a window shorter than the sequence); ``softcap``, ``sinks``: only eager code has them.
    ``biased``: positions that train are added to the scores; ``across``: keys are another sequence's.
    """

    tokens: Amount
    seq: Amount
    queries: float
    keys: float
    key_dim: float
    value_dim: float
    masked: bool = False
    softcap: bool = False
    sinks: bool = False
    biased: bool = False
    across: bool = False

    @property
    def grouped(self) -> bool:
        """Whether several query heads share a key."""
        return self.keys < self.queries

    @property
    def scores(self) -> Amount:
        """Elements of the score matrix of all rows."""
        return self.tokens * self.queries * self.seq


def heads_of(kind: Attention, style: Style, *, tokens: Amount, seq: Amount) -> Heads:
    """The heads one rank computes."""
    return Heads(
        tokens=tokens,
        seq=seq,
        queries=kind.heads / style.tp,
        keys=max(1.0, kind.kv_heads / style.tp),
        key_dim=kind.head_dim,
        value_dim=kind.values,
        masked=reaches(seq, kind.window or kind.chunk),
        softcap=kind.softcap,
        sinks=kind.sinks,
        biased=style.written.biased,
    )


def kernel(tape: Tape, style: Style, qkv: Parts, heads: Heads) -> int:
    """The weighted values: one row of heads x value width for each token."""
    name, repeats = chosen(style, heads)
    width, (q, k, v) = style.width, qkv
    whole = len({q, k, v}) == 3
    q = _in_width(tape, q, heads.tokens * heads.queries * heads.key_dim * width, whole)
    k = _in_width(tape, k, heads.tokens * heads.keys * heads.key_dim * width, whole)
    v = _in_width(tape, v, heads.tokens * heads.keys * heads.value_dim * width, whole)
    if name == "math" and style.sdpa:
        return _math(tape, style, (q, k, v), heads)
    if name in ("eager", "math", "unfused"):
        return _materialised(tape, style, name, (q, k, v), heads)
    if repeats and heads.grouped:
        k, v = _repeated(tape, k, v, heads, width)
        heads = msgspec.structs.replace(heads, keys=heads.queries)
    return _fused(tape, style, name, (q, k, v), heads)


def chosen(style: Style, heads: Heads) -> tuple[str, bool]:
    """The kernel, and whether keys and values are repeated before it.

    Transformers asks for grouped heads where there is no mask and heads are equal and at most 256 wide; the efficient kernel has
    none, which leaves torch's own composition. Flash takes 16 bits, no mask and equal widths.
    """
    if not style.sdpa or style.attention in ("eager", "unfused", "math"):
        return style.attention, style.repeats_kv or style.attention == "efficient"
    if heads.softcap or heads.sinks or style.written.eager:
        return "eager", False
    if heads.biased or heads.across:
        return ("math" if heads.biased and (style.trains or heads.across) else "efficient"), False
    plain = not heads.masked and heads.key_dim == heads.value_dim <= WIDEST_FLASH_HEAD
    if plain and style.width == 2 and style.attention != "efficient":
        return style.attention, False
    return ("math", False) if plain and heads.grouped else ("efficient", True)


def _in_width(tape: Tape, source: int, wanted: Amount, turned: bool) -> int:
    """A copy in the kernel's width of a tensor held in twice it; views into a packed projection are taken as they are."""
    return source if abs(tape.sizes[source] - 2 * wanted) >= 1 or not turned else tape.run("attention.cast", [source], wanted)


def _repeated(tape: Tape, k: int, v: int, heads: Heads, width: float) -> tuple[int, int]:
    rows = heads.tokens * heads.queries * width
    return tape.run("repeat.k", [k], rows * heads.key_dim), tape.run("repeat.v", [v], rows * heads.value_dim)


def _fused(tape: Tape, style: Style, name: str, qkv: Parts, heads: Heads) -> int:
    """Inputs, output and the statistics of its rows are saved; with a mask, its additive copy too."""
    rows = heads.tokens * heads.queries
    statistics = rows * 4
    expanded = rows * (heads.key_dim + heads.value_dim) * style.width if heads.grouped else 0
    accumulator = rows * _rounded(heads.key_dim) * 4 if name != "cudnn" else 0
    mask = heads.tokens * heads.seq * style.width if heads.masked and style.sdpa else 0
    mask += heads.seq**2 * heads.queries * style.residual if heads.biased else 0
    return tape.run(
        "attention", qkv, rows * heads.value_dim * style.width, saves=qkv, saves_output=True,
        keeps=statistics + mask + RANDOM_STATE.get(name, 0), back_scratch=accumulator + statistics + expanded,
    )  # fmt: skip


def _rounded(head_dim: float) -> float:
    """Flash attention pads a head to a multiple of 32 (64 above 128)."""
    step = 32 if head_dim <= 128 else 64
    return -(-head_dim // step) * step


def _math(tape: Tape, style: Style, qkv: Parts, heads: Heads) -> int:
    """Torch's own composition: everything in float, queries and keys scaled, scores and probabilities written out.

    Source: aten/native/transformers/attention.cpp, _scaled_dot_product_attention_math.
    """
    q, k, v = qkv
    if heads.grouped:
        k, v = _repeated(tape, k, v, heads, style.width)
    given = (k, v)
    rows = heads.tokens * heads.queries * 4
    sides = [(q, heads.key_dim), (k, heads.key_dim), (v, heads.value_dim)]
    if style.width < 4:
        sides = [(tape.run("math.float", [x], rows * dim), dim) for x, dim in sides]
    (q, _), (k, _), (v, _) = sides
    wide = (q, k)
    causal = tape.run("math.causal", [], heads.seq**2 * style.width)
    scaled, k = (tape.run("math.scale", [x], rows * heads.key_dim) for x in (q, k))
    q = tape.run("math.rows", [scaled], rows * heads.key_dim)
    raw = tape.run("scores", [q, k], heads.scores * 4, saves=[q, k])
    masked = tape.run("mask", [raw], heads.scores * 4, keeps=heads.seq**2 if heads.biased else 0, aliases=True)
    probabilities = tape.run("softmax", [masked], heads.scores * 4, saves_output=True)
    if style.attention_dropout:
        probabilities = tape.run("dropout", [probabilities], heads.scores * 4, keeps=heads.scores)
    narrow = tape.run("math.narrow", [probabilities], heads.scores * style.width) if style.width < 4 else probabilities
    out = tape.run("weighted", [probabilities, v], rows * heads.value_dim, saves=[probabilities, v])
    tape.hold(*given, *wide, scaled, causal, narrow)
    return out if style.width >= 4 else tape.run("math.back", [out], rows / 4 * heads.value_dim * style.width)


def _materialised(tape: Tape, style: Style, name: str, qkv: Parts, heads: Heads) -> int:
    """Scores written out: eager softmaxes in fp32 and casts back; Megatron's fused softmax stays in 16 bits."""
    scores, width, (q, k, v) = heads.scores, style.width, qkv
    out = heads.tokens * heads.queries * heads.value_dim * width
    if heads.grouped and name != "unfused":
        k, v = _repeated(tape, k, v, heads, width)
    elif v in tape.views and name == "eager":  # a batched matmul wants rows
        v = tape.run("value.rows", [v], tape.sizes[v])
    raw = tape.run("scores", [q, k], scores * width, saves=[q, k])
    raw = tape.run("scores.scale", [raw], scores * width) if name == "eager" else raw
    if name != "eager":
        probabilities = tape.run("softmax", [raw], scores * width, saves_output=True)
    elif heads.sinks:
        probabilities = _with_sinks(tape, style, raw, scores, heads.tokens * heads.queries)
    else:
        raw = _softcapped(tape, raw, scores * width) if heads.softcap else raw
        wide = max(width, style.residual)  # the mask has the stream's width
        masked = tape.run("mask", [raw], scores * wide, aliases=wide == width)
        float_width = width if style.written.softmax_as_is and not style.autocast else 4
        masked = masked if wide >= float_width else tape.run("softmax.float", [masked], scores * 4)
        softmax = tape.run("softmax", [masked], scores * max(float_width, wide), saves_output=True)
        probabilities = softmax if width >= max(float_width, wide) else tape.run("softmax.back", [softmax], scores * width)
    if style.attention_dropout:
        probabilities = tape.run("dropout", [probabilities], scores * width, keeps=scores)
    return tape.run("weighted", [probabilities, v], out, saves=[probabilities, v])


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
