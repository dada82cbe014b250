"""What each kind of adapter trains beside one linear weight, as shapes: one function per kind.

Sources: peft 0.21.2, tuners/<kind>/layer.py (update_layer) and config.py (default sizes); shapes are compared with peft's own.
"""

from collections.abc import Callable, Mapping
from math import ceil, isqrt

import msgspec

Shapes = tuple[tuple[int, ...], ...]
Sizes = Mapping[str, int]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter kind. ``sizes``: what it can be given besides the rank, by PEFT's names, with the defaults.

    ``shapes(out, in, sizes)``: trained tensors beside one weight; ``shared``: tensors that all layers share, from the widest out
    and in, and whether they are trained; ``held``: floats per layer that are kept but not trained.
    """

    shapes: Callable[[int, int, Sizes], Shapes]
    sizes: dict[str, int]
    shared: Callable[[int, int, Sizes], Shapes] | None = None
    trains_shared: bool = False
    held: Callable[[int, int, Sizes], int] | None = None


def _lora(out: int, inner: int, s: Sizes) -> Shapes:
    return (s["r"], inner), (out, s["r"])


def _adalora(out: int, inner: int, s: Sizes) -> Shapes:
    return (s["r"], inner), (out, s["r"]), (s["r"], 1)


def _dora(out: int, inner: int, s: Sizes) -> Shapes:
    return (*_lora(out, inner, s), (out,))


def _vera(out: int, _inner: int, s: Sizes) -> Shapes:
    return (out,), (s["r"],)


def _ia3(out: int, inner: int, s: Sizes) -> Shapes:
    return ((1, inner),) if s["feedforward"] else ((out, 1),)


def _loha(out: int, inner: int, s: Sizes) -> Shapes:
    return ((out, s["r"]), (s["r"], inner)) * 2


def factors(size: int, wanted: int) -> tuple[int, int]:
    """Two factors of ``size``, the first at most ``wanted`` (or near the root): LoKr's Kronecker split."""
    if wanted > 0 and size % wanted == 0:
        return wanted, size // wanted
    limit = isqrt(size) if wanted < 0 else min(wanted, isqrt(size))
    first = max((m for m in range(1, limit + 1) if size % m == 0), default=1)
    return first, size // first


def _lokr(out: int, inner: int, s: Sizes) -> Shapes:
    (left, right), (first, second) = factors(out, s["decompose_factor"]), factors(inner, s["decompose_factor"])
    rank = s["r"]
    small = s["decompose_both"] and rank < max(left, first) / 2
    outer: Shapes = ((left, rank), (rank, first)) if small else ((left, first),)
    if rank < max(right, second) / 2:
        return (*outer, (right, rank), (rank, second))
    return (*outer, (right, second))


def _dividing(size: int, wanted: int) -> int:
    """The divisor of ``size`` nearest to ``wanted``, the larger of two equally near (OFT's adjustment)."""
    if wanted >= size:
        return size
    above = next(n for n in range(wanted, size + 1) if size % n == 0)
    below = next(n for n in range(wanted, 0, -1) if size % n == 0)
    return below if wanted - below <= above - wanted else above


def _oft(_out: int, inner: int, s: Sizes) -> Shapes:
    if s["r"]:
        blocks = _dividing(inner, s["r"])
        width = inner // blocks
    else:
        width = _dividing(inner, s["oft_block_size"])
        blocks = inner // width
    return ((1 if s["block_share"] else blocks, width * (width - 1) // 2),)


def _boft(out: int, inner: int, s: Sizes) -> Shapes:
    width = s["boft_block_size"] or inner // s["boft_block_num"]
    return (s["boft_n_butterfly_factor"], inner // width, width, width), (out, 1)


def _vblora(out: int, inner: int, s: Sizes) -> Shapes:
    length, vectors = s["vector_length"], s["num_vectors"]
    return (s["r"], inner // length, vectors), (out // length, s["r"], vectors)


def _randlora(out: int, inner: int, s: Sizes) -> Shapes:
    bases = ceil(min(out, inner) / s["r"])
    return (s["r"], bases), (bases, min(out, inner))


def _randlora_held(out: int, inner: int, s: Sizes) -> Shapes:
    bases = ceil(min(out, inner) / s["r"])
    return (s["r"], 1, min(out, inner)), (max(out, inner), bases, s["r"])


def _c3a(out: int, inner: int, s: Sizes) -> Shapes:
    return ((out // s["block_size"], inner // s["block_size"], s["block_size"]),)


def _bat(out: int, _inner: int, s: Sizes) -> Shapes:
    return ((out // s["r"], s["r"], s["r"]),)


KINDS: dict[str, Kind] = {
    "lora": Kind(shapes=_lora, sizes={"r": 8}),
    "rslora": Kind(shapes=_lora, sizes={"r": 8}),
    "pissa": Kind(shapes=_lora, sizes={"r": 8}),
    "dora": Kind(shapes=_dora, sizes={"r": 8}),
    "adalora": Kind(shapes=_adalora, sizes={"r": 12}),
    "vera": Kind(shapes=_vera, sizes={"r": 256}, shared=lambda out, inner, s: ((s["r"], inner), (out, s["r"]))),
    "ia3": Kind(shapes=_ia3, sizes={"feedforward": 0}),
    "loha": Kind(shapes=_loha, sizes={"r": 8}),
    "lokr": Kind(shapes=_lokr, sizes={"r": 8, "decompose_factor": -1, "decompose_both": 0}),
    "oft": Kind(shapes=_oft, sizes={"r": 0, "oft_block_size": 32, "block_share": 0}),
    "boft": Kind(
        shapes=_boft,
        sizes={"boft_block_size": 4, "boft_block_num": 0, "boft_n_butterfly_factor": 1},
        held=lambda _out, inner, s: s["boft_n_butterfly_factor"] * inner * inner,
    ),
    "vblora": Kind(
        shapes=_vblora,
        sizes={"r": 4, "vector_length": 256, "num_vectors": 256},
        shared=lambda _out, _inner, s: ((s["num_vectors"], s["vector_length"]),),
        trains_shared=True,
    ),
    "fourierft": Kind(
        shapes=lambda _out, _inner, s: ((s["n_frequency"],),),
        sizes={"n_frequency": 1000},
        held=lambda _out, _inner, s: 4 * s["n_frequency"],
    ),
    "hra": Kind(shapes=lambda _out, inner, s: ((inner, s["r"]),), sizes={"r": 8}),
    "c3a": Kind(shapes=_c3a, sizes={"block_size": 256}),
    "randlora": Kind(shapes=_randlora, sizes={"r": 32}, shared=_randlora_held),
    "shira": Kind(
        shapes=lambda out, inner, s: ((s["r"] * (out + inner),),),
        sizes={"r": 32},
        held=lambda out, inner, s: 2 * s["r"] * (out + inner),
    ),
    "miss": Kind(shapes=lambda out, _inner, s: ((s["r"], out),), sizes={"r": 64}),
    "bone": Kind(shapes=lambda out, _inner, s: ((s["r"], out),), sizes={"r": 64}),
    "bat": Kind(shapes=_bat, sizes={"r": 64}),
    "miss_mini": Kind(shapes=lambda _out, _inner, s: ((s["r"], s["mini_r"]),), sizes={"r": 64, "mini_r": 1}),
}
