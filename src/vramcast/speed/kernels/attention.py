"""Attention over a cache of keys and values: decoding one token per sequence, and prefilling new tokens on a past.

Decoding: ``t = launch + max(bandwidth, compute, unit) + min(bandwidth, unit) / 4``; ``unit`` is the floor of many short
sequences, one piece of work for each sequence and KV head. Prefilling: ``t = launch + max(compute, bandwidth)``, compute over
tiles of queries, at least the longest tile. FLOPs and bytes: SPEED 2; constants: ``laws.json``.
"""

from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.pairs import causal, everything, windowed
from vramcast.speed.kernels.arrays import larger, smaller, whole
from vramcast.speed.kernels.law import Estimate, law_for
from vramcast.speed.kernels.machine import Machine, machine

CACHE_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "nvfp4": 0.5625, "fp32": 4}
QUERY_TILE = 128
DECODE_FORMULA = "launch + max(bandwidth, compute, unit) + min(bandwidth, unit) / 4"
PREFILL_FORMULA = "launch + max(compute, bandwidth)"
_SHARED = 0.25  # part of the smaller of bandwidth and unit that the larger does not hide (SPEED 3)


def decode_attention(
    *, card: Accelerator, batch: Any, context_tokens_sum: Any, heads: Any, kv_heads: Any, head_dim: Any,
    v_dim: Any = 0, kv_dtype: str = "bf16", backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of one decode step's attention of one layer on one rank: ``batch`` sequences, one new token each.

    ``context_tokens_sum``: keys read, summed over the sequences (a window caps each at its width before the sum).
    ``heads``, ``kv_heads``: of this rank. ``v_dim``: where values are narrower than keys. The cache is cold, as in a server.
    """
    chosen = law_for("decode_attention", backend, kv_precision(kv_dtype), card)
    parts = decode_parts(
        chosen.law.constants, machine(card), batch=batch, context_tokens_sum=context_tokens_sum, heads=heads,
        kv_heads=kv_heads, key_value_dim=head_dim + (v_dim or head_dim), kv_bytes=CACHE_BYTES[kv_dtype],
    )  # fmt: skip
    return Estimate(seconds=decode_seconds(parts), parts=parts, formula=DECODE_FORMULA, chosen=chosen)


def decode_parts(
    constants: dict[str, float], on: Machine, *, batch: Any, context_tokens_sum: Any, heads: Any, kv_heads: Any,
    key_value_dim: Any, kv_bytes: float,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, cache bytes, FLOPs and work units before they are combined."""
    cache = context_tokens_sum * kv_heads * key_value_dim * kv_bytes
    return {
        "launch": constants["launch_us"] * 1e-6,
        "bandwidth": cache / (on.bandwidth_bytes_per_s * constants["bandwidth"]) + constants["cold_us"] * 1e-6,
        "compute": 2 * heads * key_value_dim * context_tokens_sum / (on.flops_per_s * constants["compute"]),
        "unit": batch * kv_heads * constants["unit_us"] * 1e-6 / on.units,
    }


def decode_seconds(parts: dict[str, Any]) -> Any:
    """The parts combined."""
    both = smaller(parts["bandwidth"], parts["unit"])
    return parts["launch"] + larger(larger(parts["bandwidth"], parts["compute"]), parts["unit"]) + _SHARED * both


def prefill_attention(
    *, card: Accelerator, new: Any, past: Any = 0, heads: Any, kv_heads: Any, head_dim: Any, v_dim: Any = 0, window: int = 0,
    batch: Any = 1, kv_dtype: str = "bf16", dtype: str = "bf16", masked: bool = True, backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of attention of ``batch`` sequences of ``new`` tokens each on ``past`` cached ones, one layer on one rank.

    ``window``: keys in sight (0: all). ``masked``: causal; False for an encoder. ``dtype``: the format of the products.
    """
    chosen = law_for("prefill_attention", backend, dtype, card)
    parts = prefill_parts(
        chosen.law.constants, machine(card, dtype), new=new, past=past, heads=heads, kv_heads=kv_heads,
        key_value_dim=head_dim + (v_dim or head_dim), batch=batch, kv_bytes=CACHE_BYTES[kv_dtype],
        pairs=attended(new, past, window=window, masked=masked), window=window,
    )  # fmt: skip
    return Estimate(seconds=prefill_seconds(parts), parts=parts, formula=PREFILL_FORMULA, chosen=chosen)


def attended(new: Any, past: Any, *, window: int = 0, masked: bool = True) -> Any:
    """(query, key) pairs of one sequence and head."""
    if not masked:
        return everything(new, past)
    return windowed(new, past, window) if window else causal(new, past)


def prefill_parts(
    constants: dict[str, float], on: Machine, *, new: Any, past: Any, heads: Any, kv_heads: Any, key_value_dim: Any,
    batch: Any, kv_bytes: float, pairs: Any, window: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, of the tiles and of the bytes before they are combined."""
    rate = on.flops_per_s * constants["compute"]
    keys = smaller(past + new, window + new) if window else past + new
    tile_pairs = QUERY_TILE * (smaller(keys, window + QUERY_TILE) if window else keys)
    work = 2 * key_value_dim * batch * heads * (pairs + whole(new / QUERY_TILE) * QUERY_TILE**2 / 2)
    moved = batch * key_value_dim * (2 * 2 * new * heads / 2 + keys * kv_heads * kv_bytes)
    return {
        "launch": constants["launch_us"] * 1e-6,
        "compute": larger(work / rate, 2 * key_value_dim * tile_pairs * on.units / rate * constants["tail"]),
        "bandwidth": moved / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
    }


def prefill_seconds(parts: dict[str, Any]) -> Any:
    """The parts combined."""
    return parts["launch"] + larger(parts["compute"], parts["bandwidth"])


def kv_precision(kv_dtype: str) -> str:
    """The precision a decode law is filed under: the cache's."""
    return "bf16" if kv_dtype in {"bf16", "fp16", "fp32"} else "fp8"
