"""A model in words: what each layer kind is called and what one sequence keeps, before any engine's rules."""

from itertools import pairwise

from vramcast.models.inventory import Block, FeedForward, Mixer, Model
from vramcast.models.layers import Attention, Experts, LatentAttention
from vramcast.units import count

_SIXTEEN_BITS = 2
_RECURRENT = {
    "mamba1": "Mamba", "mamba2": "Mamba-2", "delta": "gated delta net", "linear": "linear attention", "conv": "short convolution",
    "rwkv": "RWKV",
}  # fmt: skip


def cache_bytes_per_token(model: Model) -> int:
    """Bytes of 16-bit cache that one token adds over all layers when every layer keeps every token (engines may keep less)."""
    return _SIXTEEN_BITS * sum(
        m.cache_elements * b.count
        for b in model.blocks
        for m in b.mixers
        if isinstance(m, Attention | LatentAttention) and not b.shares_cache
    )


def cache_bytes(model: Model, tokens: int, *, element_bytes: int = _SIXTEEN_BITS) -> int:
    """Bytes of cache one sequence of ``tokens`` needs at least: windows and chunks keep only what they can see.

    The floor under every engine's rule; engines round up to blocks, keep whole layers or pad (``vramcast serve`` says which).
    """
    return element_bytes * sum(
        m.cache_elements * b.count * min(tokens, _reach(m) or tokens)
        for b in model.blocks
        for m in b.mixers
        if isinstance(m, Attention | LatentAttention) and not b.shares_cache
    )


def index_bytes(model: Model, tokens: int) -> int:
    """Bytes of the lightning indexers' keys over all layers at one byte per element (DeepSeek-V3.2 keeps them in fp8)."""
    indexers = [(m.indexer, b.count) for b in model.blocks for m in b.mixers if isinstance(m, LatentAttention) and m.indexer]
    return sum(indexer.head_dim * layers * tokens for indexer, layers in indexers)


def _reach(mixer: Attention | LatentAttention) -> int:
    return mixer.window if isinstance(mixer, LatentAttention) else mixer.window or mixer.chunk


def state_bytes_per_sequence(model: Model) -> int:
    """Bytes of 16-bit recurrent state that one sequence keeps over all layers, whatever its length."""
    fixed = [m for b in model.blocks for m in b.mixers * b.count if not isinstance(m, Attention | LatentAttention)]
    return _SIXTEEN_BITS * sum(m.conv_elements + m.state_elements for m in fixed)


def block_line(block: Block) -> tuple[tuple[str, str], ...]:
    """One line for a group of equal layers: which layers, what they are, parameters of one."""
    what = " + ".join(
        [*(mixer_words(m) for m in block.mixers), *([feedforward_words(block.feedforward)] if block.feedforward else [])]
    )
    size = count(block.elements)
    active = f", {count(block.active_elements)} active" if block.active_elements != block.elements else ""
    return (f"{index_words(block.indices)}".ljust(24), "title"), (what, ""), (f"  ({size} parameters each{active})", "faint")


def index_words(indices: tuple[int, ...]) -> str:
    """``layers 0-31``, ``every 6th layer from 5 (8)``, or the first few and a count."""
    if len(indices) == 1:
        return f"layer {indices[0]}"
    steps = {b - a for a, b in pairwise(indices)}
    if steps == {1}:
        return f"layers {indices[0]}-{indices[-1]}"
    if len(steps) == 1:
        return f"every {_ordinal(steps.pop())} from {indices[0]} ({len(indices)})"
    return f"{len(indices)} layers ({', '.join(map(str, indices[:3]))} ...)"


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def mixer_words(mixer: Mixer) -> str:
    """``attention 32 heads / 8 KV x 128, window 4096``."""
    if isinstance(mixer, LatentAttention):
        return f"latent attention {mixer.heads} heads, cache {mixer.kv_rank}+{mixer.rope_dim}" + (
            ", indexer" if mixer.indexer else ""
        )
    if isinstance(mixer, Attention):
        reach = f", window {mixer.window}" if mixer.window else f", chunk {mixer.chunk}" if mixer.chunk else ""
        return f"attention {mixer.heads} heads / {mixer.kv_heads} KV x {mixer.head_dim}{reach}"
    return _RECURRENT[mixer.__struct_config__.tag]  # type: ignore[index]


def feedforward_words(kind: FeedForward) -> str:
    """``MLP 14336`` or ``8 of 256 experts x 2048 + shared 2048``."""
    if isinstance(kind, Experts):
        shared = f" + shared {kind.shared_intermediate}" if kind.shared_intermediate else ""
        return f"{kind.active} of {kind.routed} experts x {kind.intermediate}{shared}"
    return f"{'gated ' if kind.gated else ''}MLP {kind.intermediate}"
