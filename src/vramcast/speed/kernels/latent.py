"""Latent attention (MLA): its kernels, prefilled with expanded keys and decoded absorbed; and whole modules, dense or sparse.

One latent of ``latent + rope`` numbers per token serves all heads, on every tensor-parallel rank. Sparse forms choose keys: an
indexer scores every key and attention reads the best (DSA), or keys stand for several tokens (CSA, HCA). A module is the
projections, the indexer and the attention of one layer: ``t = launch + (bandwidth^p + (linear + attention + index)^p)^(1/p)``.
FLOPs and bytes: SPEED 2; constants: ``laws.json``.
"""

from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.layers import causal, windowed
from vramcast.speed.kernels.attention import CACHE_BYTES, DECODE_FORMULA, decode_seconds
from vramcast.speed.kernels.gemm import RECIPES
from vramcast.speed.kernels.law import Estimate, larger, law_for, smaller, whole
from vramcast.speed.kernels.machine import Machine, machine

KEY_TILE = 64  # keys of one tile in FlashMLA and its kin
PREFILL_FORMULA = "launch + compute + bandwidth"
MODULE_FORMULA = "launch + (bandwidth^p + (linear + attention + index)^p)^(1/p)"


class Latent(msgspec.Struct, frozen=True, kw_only=True):
    """Widths of one attention layer, named as in the models' configurations; defaults are DeepSeek-V3's.

    ``top_k`` 0: every key is read. ``compress``: tokens behind one key. ``out_rank``: of a factored output projection.
    """

    hidden: int = 7168
    q_rank: int = 1536
    latent: int = 512
    rope: int = 64
    key: int = 128
    value: int = 128
    top_k: int = 0
    index_heads: int = 0
    index_dim: int = 128
    compress: int = 1
    window: int = 0
    out_rank: int = 0

    def weights(self, heads: Any) -> Any:
        """Numbers in the projections of a rank with this many heads."""
        out = self.out_rank * (heads * self.value + self.hidden) if self.out_rank else heads * self.value * self.hidden
        expand = heads * self.latent * (self.key + self.value)
        index = self.index_heads * self.index_dim * self.q_rank
        return (
            self.hidden * (self.q_rank + self.latent + self.rope)
            + self.q_rank * heads * (self.key + self.rope)
            + (expand + out + index)
        )


DEEPSEEK_V3 = Latent()
_ATTENTION_LAUNCHES = 0.5  # of a module's kernels, those of indexer and attention rather than projections and norms


def mla_decode(
    *, card: Accelerator, batch: Any, context_tokens_sum: Any, heads: Any, latent: int = 512, rope: int = 64,
    kv_dtype: str = "bf16", backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of one decode step's absorbed attention kernel of one layer; ``heads`` are those of this rank."""
    chosen = law_for("mla_decode", backend, "bf16" if CACHE_BYTES[kv_dtype] >= 2 else "fp8", card)
    parts = mla_decode_parts(
        chosen.constants, machine(card), batch=batch, context_tokens_sum=context_tokens_sum, heads=heads,
        latent=latent, rope=rope, kv_bytes=CACHE_BYTES[kv_dtype],
    )  # fmt: skip
    return Estimate(seconds=decode_seconds(chosen.constants, parts), parts=parts, formula=DECODE_FORMULA, chosen=chosen)


def mla_decode_parts(
    constants: dict[str, float], on: Machine, *, batch: Any, context_tokens_sum: Any, heads: Any, latent: int = 512,
    rope: int = 64, kv_bytes: float = 2,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, latent bytes, FLOPs and work units, combined as a decode step's."""
    tiles = whole(context_tokens_sum / batch / KEY_TILE)
    item = constants["unit_us"] + constants["tile_us"] * tiles * whole(heads / 64)
    return {
        "launch": constants["launch_us"] * 1e-6,
        "cold": 0.0,
        "bandwidth": context_tokens_sum * (latent + rope) * kv_bytes / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
        "compute": 2 * heads * (2 * latent + rope) * tiles * KEY_TILE * batch / (on.flops_per_s * constants["compute"]),
        "unit": batch * item * 1e-6 / on.units,
    }


def mla_prefill(
    *, card: Accelerator, new: Any, past: Any = 0, heads: Any, batch: Any = 1, key_dim: int = 192,
    value_dim: int = 128, dtype: str = "bf16", backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of the attention kernel over expanded keys and values of one layer; the up-projection is a GEMM of its own."""
    chosen = law_for("mla_prefill", backend, dtype, card)
    width = key_dim + value_dim
    parts = mla_prefill_parts(chosen.constants, machine(card), new=new, past=past, heads=heads, batch=batch, width=width)
    return Estimate(seconds=sum(parts.values()), parts=parts, formula=PREFILL_FORMULA, chosen=chosen)


def mla_prefill_parts(
    constants: dict[str, float], on: Machine, *, new: Any, past: Any, heads: Any, batch: Any, width: Any = 320
) -> dict[str, Any]:
    """Seconds of launch, FLOPs over causal pairs with half a tile in vain, and bytes of queries, keys, values and output."""
    moved = batch * heads * 2 * width * (2 * new + past)
    pairs = causal(new, past) + new * KEY_TILE / 2
    return {
        "launch": constants["launch_us"] * 1e-6,
        "compute": 2 * width * batch * heads * pairs / (on.flops_per_s * constants["compute"]),
        "bandwidth": moved / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
    }


def latent_module(
    *, card: Accelerator, phase: str, new: Any, past: Any, batch: Any, heads: Any, shape: Latent = DEEPSEEK_V3,
    weight: str = "bf16", kv_dtype: str = "bf16", indexes: bool = True, backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of one whole attention layer on a rank: projections, indexer where it has one, attention.

    ``phase``: "prefill" or "decode"; ``new`` tokens of each of ``batch`` sequences on ``past`` cached ones. ``indexes`` False:
    the layer takes another layer's choice of keys.
    """
    chosen = law_for(f"{module_kind(shape)}_module_{phase}", backend, f"{weight}, {kv_precision(kv_dtype)} cache", card)
    parts = module_parts(
        chosen.constants, machine(card), new=new, past=past, batch=batch, heads=heads, shape=shape,
        weight_bytes=RECIPES[weight].weight_bytes, kv_bytes=CACHE_BYTES[kv_dtype], indexes=indexes,
    )  # fmt: skip
    return Estimate(seconds=module_seconds(chosen.constants, parts), parts=parts, formula=MODULE_FORMULA, chosen=chosen)


def sparse_attention(
    *, card: Accelerator, new: Any, past: Any, batch: Any, heads: Any, top_k: int = 2048, index_heads: int = 64,
    index_dim: int = 128, latent: int = 512, rope: int = 64, compress: int = 1, kv_dtype: str = "fp8", indexes: bool = True,
    phase: str = "prefill", backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of indexer and attention of one sparse latent layer, its projections apart (they are products of their own).

    ``compress``: tokens behind one key (4 in CSA, 128 in HCA). ``indexes`` False: the layer takes another layer's choice. The
    module's launch less that of its projections is counted.
    """
    shape = Latent(latent=latent, rope=rope, top_k=top_k, index_heads=index_heads, index_dim=index_dim, compress=compress)
    chosen = law_for(f"{module_kind(shape)}_module_{phase}", backend, f"bf16, {kv_precision(kv_dtype)} cache", card)
    parts = module_parts(
        chosen.constants, machine(card), new=new, past=past, batch=batch, heads=heads, shape=shape, weight_bytes=0,
        kv_bytes=CACHE_BYTES[kv_dtype], indexes=indexes,
    )  # fmt: skip
    apart = {"launch": parts["launch"] * _ATTENTION_LAUNCHES, "linear": 0.0, "host": 0.0}
    seconds = module_seconds(chosen.constants, parts | apart)
    return Estimate(seconds=seconds, parts=parts | apart, formula=MODULE_FORMULA, chosen=chosen)


def module_kind(shape: Latent) -> str:
    """The family of the law: mla (every key), dsa (chosen keys) or csa (compressed keys)."""
    return "csa" if shape.compress > 1 else "dsa" if shape.top_k else "mla"


def module_parts(
    constants: dict[str, float], on: Machine, *, new: Any, past: Any, batch: Any, heads: Any, shape: Latent,
    weight_bytes: Any, kv_bytes: Any, indexes: Any = True,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, of weights and cache, of the projections, of attention on the chosen keys and of the indexer.

    Attention over a latent multiplies 2 x latent + rope numbers a pair when absorbed (a past or few new tokens), the expanded
    key and value otherwise; the cheaper of the two is counted.
    """
    seen = _read(new, past, shape)
    scored = causal(new, past) / shape.compress * shape.index_heads * shape.index_dim * indexes
    absorbed = 2 * shape.latent + shape.rope
    width = absorbed if shape.top_k or shape.compress > 1 else _narrower(new, absorbed, shape.key + shape.rope + shape.value)
    weights = shape.weights(heads)
    cache = batch * (smaller(seen, past + new) * (shape.latent + shape.rope) * kv_bytes + (past + new) * _index_bytes(shape))
    moved = weights * weight_bytes + cache + batch * new * 2 * (2 * shape.hidden + heads * (shape.key + shape.rope + shape.value))
    return {
        "launch": constants["launch_us"] * 1e-6,
        "bandwidth": moved / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
        "linear": 2 * batch * new * weights / (on.flops_per_s * constants["linear"]),
        "attention": 2 * batch * heads * seen * width / (on.flops_per_s * constants["compute"]),
        "index": 2 * batch * scored / (on.flops_per_s * constants["index"]),
        "host": constants.get("host_us", 0.0) * 1e-6,
    }


def module_seconds(constants: dict[str, float], parts: dict[str, Any]) -> Any:
    """The parts combined; a module measured from Python takes at least the host's time to launch its kernels."""
    p = constants["blend"]
    busy = parts["linear"] + parts["attention"] + parts["index"]
    return larger(parts["launch"] + (parts["bandwidth"] ** p + busy**p) ** (1 / p), parts["host"])


def kv_precision(kv_dtype: str) -> str:
    """bf16 or fp8."""
    return "bf16" if CACHE_BYTES[kv_dtype] >= 2 else "fp8"


def _read(new: Any, past: Any, shape: Latent) -> Any:
    """(query, key) pairs of one head and sequence that attention reads."""
    pairs = windowed(new, past, shape.top_k * shape.compress) if shape.top_k else causal(new, past)
    return pairs / shape.compress + (windowed(new, past, shape.window) if shape.window else 0)


def _narrower(new: Any, absorbed: int, expanded: int) -> Any:
    """Width of a pair: the expanded one where more tokens are new than a few, since expanding costs per key, not per pair."""
    many = (new > 1) * 1.0
    return many * expanded + (1 - many) * absorbed


def _index_bytes(shape: Latent) -> float:
    return shape.index_dim / shape.compress if shape.index_heads else 0
