"""Attention on the tape: projections, rotary embedding and the kernel, and what each kernel saves and allocates.

Sources: torch/_meta_registrations.py and aten/native/transformers (attention.cpp, cuda/sdp_utils.cpp); flash-attention,
flash_api.cpp; transformers 5.23, integrations/sdpa_attention.py and each family's eager_attention_forward.
"""

import msgspec

from vramcast.models.layers import Attention, LatentAttention
from vramcast.training.activations.adapted import exchanged, prefixed
from vramcast.training.activations.choice import Style
from vramcast.training.activations.dense import bare_norm, linear, norm
from vramcast.training.activations.sizes import Amount, Heads, reaches
from vramcast.training.activations.tape import Tape
from vramcast.training.activations.written_scores import Parts, materialised

RANDOM_STATE = {"flash": 24, "cudnn": 24, "efficient": 16}  # bytes of the dropout generator's state that a kernel returns
WIDEST_FLASH_HEAD = 256


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
    if name == "math" and style.kernels.sdpa:
        return _math(tape, style, (q, k, v), heads)
    if name in ("eager", "math", "unfused"):
        if heads.grouped and name != "unfused":
            k, v = _repeated(tape, k, v, heads, width)
        return materialised(tape, style, name, (q, k, v), heads)
    if repeats and heads.grouped:
        k, v = _repeated(tape, k, v, heads, width)
        heads = msgspec.structs.replace(heads, keys=heads.queries)
    return _fused(tape, style, name, (q, k, v), heads)


def chosen(style: Style, heads: Heads) -> tuple[str, bool]:
    """The kernel, and whether keys and values are repeated before it.

    Transformers asks for grouped heads where there is no mask and heads are equal and at most 256 wide; the efficient kernel has
    none, which leaves torch's own composition. Flash takes 16 bits, no mask and equal widths.
    """
    if not style.kernels.sdpa or style.kernels.attention in ("eager", "unfused", "math"):
        return style.kernels.attention, style.kernels.repeats_kv or style.kernels.attention == "efficient"
    if heads.softcap or heads.sinks or style.written.eager:
        return "eager", False
    if heads.biased or heads.across:
        return ("math" if heads.biased and (style.trains or heads.across) else "efficient"), False
    plain = not heads.masked and heads.key_dim == heads.value_dim <= WIDEST_FLASH_HEAD
    if plain and style.width == 2 and style.kernels.attention != "efficient":
        return style.kernels.attention, False
    return ("math", False) if plain and heads.grouped else ("efficient", True)


def _in_width(tape: Tape, source: int, wanted: Amount, turned: bool) -> int:
    """A copy in the kernel's width of a tensor held in twice it; views into a packed projection are taken as they are."""
    return source if abs(tape.sizes[source] - 2 * wanted) >= 1 or not turned else tape.run("attention.cast", [source], wanted)


def _repeated(tape: Tape, k: int, v: int, heads: Heads, width: float) -> tuple[int, int]:
    """Keys and values written out for every query head."""
    rows = heads.tokens * heads.queries * width
    return tape.run("repeat.k", [k], rows * heads.key_dim), tape.run("repeat.v", [v], rows * heads.value_dim)


def _fused(tape: Tape, style: Style, name: str, qkv: Parts, heads: Heads) -> int:
    """Inputs, output and the statistics of its rows are saved; with a mask, its additive copy too."""
    rows = heads.tokens * heads.queries
    statistics = rows * 4
    expanded = rows * (heads.key_dim + heads.value_dim) * style.width if heads.grouped else 0
    accumulator = rows * _rounded(heads.key_dim) * 4 if name != "cudnn" else 0
    mask = heads.tokens * heads.seq * style.width if heads.masked and style.kernels.sdpa else 0
    zeros = heads.across and style.written.biased and style.widens_queries  # cast by each layer
    mask += heads.seq**2 * heads.queries * (style.width if style.autocast else style.residual) if heads.biased or zeros else 0
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
    if style.kernels.attention_dropout:
        probabilities = tape.run("dropout", [probabilities], heads.scores * 4, keeps=heads.scores)
    narrow = tape.run("math.narrow", [probabilities], heads.scores * style.width) if style.width < 4 else probabilities
    out = tape.run("weighted", [probabilities, v], rows * heads.value_dim, saves=[probabilities, v])
    tape.hold(*given, *wide, scaled, causal, narrow)
    return out if style.width >= 4 else tape.run("math.back", [out], rows / 4 * heads.value_dim * style.width)


def attention(
    tape: Tape, style: Style, kind: Attention, source: int, *, tokens: Amount, seq: Amount, hidden: float, qk_width: int = 0,
    outputs: float = 0,
) -> int:  # fmt: skip
    """Grouped attention from the normed input to the output projection's result; ``qk_width``: of queries' and keys' norms.

    ``outputs``: features of the result where it has not the width of the input.
    """
    heads, kv = kind.heads / style.tp, max(1.0, kind.kv_heads / style.tp)
    q_width, k_width, v_width = heads * kind.head_dim, kv * kind.head_dim, kv * kind.values
    width = style.width
    q, k, v = _projections(
        tape, style, source, tokens=tokens, hidden=hidden, widths=(q_width * (2 if kind.gated else 1), k_width, v_width)
    )
    if style.written.clamps_qkv:
        q, k, v = _clamped(tape, (q, k, v))
    if style.written.expands_kv and kv < heads:
        kind, kv, k_width = msgspec.structs.replace(kind, kv_heads=kind.heads), heads, q_width  # a key for every query
        q, k, v = _copied_out(tape, style, (q, k, v), tokens * q_width, tokens * heads * kind.values)
    gate = 0
    if kind.gated:
        gate = tape.run("gate.split", [q], tokens * q_width * width)
        q = tape.run("query.split", [q], tokens * q_width * width)
    if kind.qk_norm:
        whole = qk_width not in (0, kind.head_dim)
        q = norm(tape, style, q, tokens=tokens * (1 if whole else heads), width=q_width if whole else kind.head_dim)
        k = norm(tape, style, k, tokens=tokens * (1 if whole else kv), width=k_width if whole else kind.head_dim)
    if style.written.value_norm:
        v = bare_norm(tape, style, v, tokens=tokens * kv, width=v_width / kv)
    if kind.rope_dim:
        q, k = _rotated(tape, style, (q, k), (q_width, k_width), tokens=tokens, angles=_repeated_angles(style, kind, seq))
    out = _brought_back(tape, style, kernel(tape, style, (q, k, v), heads_of(kind, style, tokens=tokens, seq=seq)), kind)
    if kind.gated:
        gate = tape.run("gate.sigmoid", [gate], tape.sizes[gate], saves_output=True)
        out = tape.run("gate.product", [out, gate], tape.sizes[out], saves=[out, gate])
    if style.written.sub_norms:
        out = norm(tape, style, out, tokens=tokens, width=heads * kind.values)
    made = linear(tape, style, out, tokens=tokens, inputs=heads * kind.values, outputs=outputs or hidden, role="o")
    tape.hold(source, q, k, v, out)
    return made


def _rotated(
    tape: Tape, style: Style, qk: tuple[int, int], widths: tuple[float, float], *, tokens: Amount, angles: Amount
) -> tuple[int, int]:
    """Queries and keys with their places in them; the queries' products save ``angles`` bytes of cosines and sines."""
    eager = style.kernels.rope == "eager"  # cos and sin have the hidden stream's dtype
    element = max(style.width, style.residual) if eager else style.width
    q = rope(tape, style, qk[0], tokens * widths[0] * element, keeps=angles)
    k = rope(tape, style, qk[1], tokens * widths[1] * element)
    tape.hold(*qk)
    return q, k


def _brought_back(tape: Tape, style: Style, out: int, kind: Attention) -> int:
    """The kernel's result as the output projection reads it: every token's heads side by side."""
    out = prefixed(tape, out) if style.prefixed else out
    out = exchanged(tape, out) if style.exchanges else out
    if style.joined:
        out = tape.run("attention.join", [out], tape.sizes[out])
    if style.kernels.rope == "eager" and kind.rope_dim > 0:  # joined parts lie head by head, and the output like them
        out = tape.run("attention.rows", [out], tape.sizes[out])
    return out


def _copied_out(tape: Tape, style: Style, qkv: Parts, elements: Amount, values: Amount) -> Parts:
    """Queries, and keys and values of every head, each written out beside the packed result (models/falcon, _split_heads)."""
    packed = tape.views.get(qkv[0], qkv[0])
    made = [
        tape.run(f"split.{r}", [x], n * style.width) for r, x, n in zip("qkv", qkv, (elements, elements, values), strict=True)
    ]
    tape.hold(packed)
    return made[0], made[1], made[2]


def _clamped(tape: Tape, qkv: Parts) -> Parts:
    """A packed result cut off at a largest value, which saves what it was (models/dbrx, clip_qkv)."""
    packed = tape.views.get(qkv[0], qkv[0])
    made = tape.run("qkv.clamp", [packed], tape.sizes[packed], saves=[packed])
    q, k, v = tape.slices("qkv.slice", made, [tape.sizes[x] for x in qkv])
    return q, k, v


def cross_attention(tape: Tape, style: Style, kind: Attention, source: int, *, tokens: Amount, seq: Amount, hidden: float) -> int:
    """Queries of this sequence, keys and values of an encoder's output of the same length."""
    states = tape.given(tokens * hidden * style.residual)
    width = kind.heads * kind.head_dim / style.tp
    q, k, v = (
        linear(tape, style, x, tokens=tokens, inputs=hidden, outputs=width, role=r)
        for x, r in zip((source, states, states), "qkv", strict=True)
    )
    biased = style.written.biased and style.recomputed  # zeros that ask for a gradient (models/t5, T5Attention.forward)
    problem = msgspec.structs.replace(heads_of(kind, style, tokens=tokens, seq=seq), biased=biased, across=True)
    out = kernel(tape, style, (q, k, v), problem)
    made = linear(tape, style, out, tokens=tokens, inputs=width, outputs=hidden, role="o")
    tape.hold(source, q, k, v, out)
    return made


def _projections(
    tape: Tape, style: Style, source: int, *, tokens: Amount, hidden: float, widths: tuple[float, float, float]
) -> tuple[int, int, int]:
    """Queries, keys and values from three projections, or from one whose parts are copied out or viewed."""
    if style.kernels.qkv == "separate":
        made = [
            linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=w, role=r)
            for r, w in zip("qkv", widths, strict=True)
        ]
        return made[0], made[1], made[2]
    padded = style.adapter.padded if style.adapter else frozenset()
    added = sum(w for r, w in zip("qkv", widths, strict=True) if r in padded)
    packed = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=sum(widths), role="qkv", added=added)
    if style.kernels.qkv == "views":
        held = tape.sizes[packed] / sum(widths)
        q, k, v = tape.slices("qkv.slice", packed, [w * held for w in widths])
        return q, k, v
    parts = [tape.run(f"split.{r}", [packed], tokens * w * style.width) for r, w in zip("qkv", widths, strict=True)]
    return parts[0], parts[1], parts[2]


def _repeated_angles(style: Style, kind: Attention, seq: Amount) -> Amount:
    """Cosines and sines of every place, where a layer writes them out anew and its products save them."""
    if style.kernels.rope != "eager" or not style.written.repeated_rope:
        return 0.0
    features = kind.head_dim if kind.rope_dim < 0 else kind.rope_dim
    return 2 * seq * features * (4 if style.written.repeated_rope == "float" else style.residual)


def rope(tape: Tape, style: Style, source: int, size: Amount, *, keeps: Amount = 0) -> int:
    """Rotary embedding: eager saves nothing of its input (cos and sin need no gradient) but makes two copies on the way."""
    if style.kernels.rope != "eager":
        return tape.run("rope", [source], size)
    return tape.run("rope", [source], size, keeps=keeps, scratch=2 * size, back_scratch=2 * size)


def latent(tape: Tape, style: Style, kind: LatentAttention, source: int, *, tokens: Amount, seq: Amount, hidden: float) -> int:
    """Multi-head latent attention trained in its decompressed form (DeepSeek-V2, arXiv 2405.04434)."""
    heads, width = kind.heads / style.tp, style.width
    if kind.query_rank:
        low = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=kind.query_rank, role="q_a")
        low = norm(tape, style, low, tokens=tokens, width=kind.query_rank)
        q = linear(tape, style, low, tokens=tokens, inputs=kind.query_rank, outputs=heads * kind.head_dim, role="q_b")
    else:
        q = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=heads * kind.head_dim, role="q")
    packed = linear(tape, style, source, tokens=tokens, inputs=hidden, outputs=kind.kv_rank + kind.rope_dim, role="kv_a")
    join = _joined if style.kernels.rope == "eager" else _fused_rope
    q, k, v = join(tape, style, kind, q, packed, tokens=tokens, heads=heads)
    value_dim = kind.value_dim
    runs = style.kernels
    flash = runs.attention.startswith("flash") and not runs.sdpa and runs.glu != "packed"
    if flash and kind.value_dim < kind.head_dim:
        v = tape.run("value.pad", [v], tokens * heads * kind.head_dim * width)
        value_dim = kind.head_dim
    problem = Heads(tokens=tokens, seq=seq, queries=heads, keys=heads, key_dim=kind.head_dim, value_dim=value_dim)
    out = kernel(tape, style, (q, k, v), problem)
    made = linear(tape, style, out, tokens=tokens, inputs=heads * kind.value_dim, outputs=hidden, role="o")
    tape.hold(source, q, k, v, packed, out)
    return made


def _joined(
    tape: Tape, style: Style, kind: LatentAttention, q: int, packed: int, *, tokens: Amount, heads: float
) -> tuple[int, int, int]:
    """Views of the projections, turned parts beside them (transformers 5.23, models/deepseek_v3)."""
    width = style.width
    turned = max(width, style.residual)
    nope, held = tokens * heads * kind.nope_dim, tape.sizes[q] / (tokens * heads * kind.head_dim)
    straight, turning = tape.slices("query.split", q, (nope * held, tape.sizes[q] - nope * held), joined=True)
    each = tape.sizes[packed] / (kind.kv_rank + kind.rope_dim)
    compressed, key = tape.slices("latent.split", packed, (kind.kv_rank * each, kind.rope_dim * each), joined=True)
    low = norm(tape, style, compressed, tokens=tokens, width=kind.kv_rank)
    q_turned = rope(tape, style, turning, tokens * heads * kind.rope_dim * turned)
    k_turned = rope(tape, style, key, tokens * kind.rope_dim * turned)
    joined = tape.run("query.concat", [straight, q_turned], tokens * heads * kind.head_dim * turned)
    up = linear(
        tape, style, low, tokens=tokens, inputs=kind.kv_rank, outputs=heads * (kind.nope_dim + kind.value_dim), role="kv_b"
    )
    part = tape.sizes[up] / (kind.nope_dim + kind.value_dim)
    k_straight, v = tape.slices("key.split", up, (kind.nope_dim * part, kind.value_dim * part), joined=True)
    keys = tape.run("key.concat", [k_straight, k_turned], tokens * heads * kind.head_dim * turned)
    tape.hold(q, low, q_turned, k_turned, up)
    return joined, keys, v


def _fused_rope(
    tape: Tape, style: Style, kind: LatentAttention, q: int, packed: int, *, tokens: Amount, heads: float
) -> tuple[int, int, int]:
    """Copies of the parts, as fused rotary kernels and Megatron make them."""
    width = style.width
    low = tape.run("latent.split", [packed], tokens * kind.kv_rank * width)
    low = norm(tape, style, low, tokens=tokens, width=kind.kv_rank)
    up = linear(
        tape, style, low, tokens=tokens, inputs=kind.kv_rank, outputs=heads * (kind.nope_dim + kind.value_dim), role="kv_b"
    )
    q = tape.run("query.concat", [q], tokens * heads * kind.head_dim * width, scratch=tokens * heads * kind.head_dim * width)
    k = tape.run("key.concat", [up, packed], tokens * heads * kind.head_dim * width)
    return q, k, tape.run("value.split", [up], tokens * heads * kind.value_dim * width)
