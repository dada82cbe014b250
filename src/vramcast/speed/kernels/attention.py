"""Attention over a cache of keys and values: decoding one token per sequence, and prefilling new tokens on a past.

Decoding: ``t = launch + cold + (bandwidth^p + compute^p + unit^p)^(1/p)``; ``unit`` is the work of one SM: a fixed part for each
sequence and KV head, and a part for each tile of keys. Prefilling: ``t = launch + store + (compute^p + tail^p +
bandwidth^p)^(1/p)``: compute over tiles of queries with the softmax's cost for each pair, the longest tile alone on its SM
(``tail``), and keys and values stored in the cache. FLOPs and bytes: SPEED 2; constants: ``laws.json``.
"""

from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.layers import causal, everything, windowed
from vramcast.speed.kernels.law import Estimate, larger, law_for, smaller, whole
from vramcast.speed.kernels.machine import Machine, machine

CACHE_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "nvfp4": 0.5625, "fp32": 4}
KEY_TILE = 128  # keys of one tile in FlashAttention's, TensorRT-LLM's and FlashInfer's decode kernels
GROUP_ROWS = 16  # query heads of a group are padded to the rows of one tensor-core instruction (m16n8k16)
QUERY_TILE = (
    64  # queries whose causal half-tile is computed in vain; fitted over 32 to 256, the best for nine kernels of thirteen
)
DECODE_FORMULA = "launch + cold + (bandwidth^p + compute^p + unit^p)^(1/p)"
PREFILL_FORMULA = "launch + store + (compute^p + tail^p + bandwidth^p)^(1/p)"
# Query rows that a decoding sequence's tile computes in a call that holds a prompt too: FlashAttention then takes its tiles for
# prompts (64 to 128 rows) for every query head. From 7 tables of mixed steps, 4 and 8 query heads to a KV head, contexts of
# 500 to 16,000: 70 to 95, whatever the group (casys-kaist/LLMServingSim@5daddb2, attention inside vLLM).
MIXED_ROWS = 85
MIXING = ("fa2", "fa3")
# FlashAttention 2 packs the query heads of a KV head into one tile only without a window (flash_api.cpp, ngroups_swapped).
UNPACKED_WITH_WINDOW = ("vllm/fa2", "sglang/fa2")


def decode_attention(
    *, card: Accelerator, batch: Any, context_tokens_sum: Any, heads: Any, kv_heads: Any, head_dim: Any,
    v_dim: Any = 0, kv_dtype: str = "bf16", window: int = 0, backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of one decode step's attention of one layer on one rank: ``batch`` sequences, one new token each.

    ``context_tokens_sum``: keys read, summed over the sequences (a ``window`` caps each at its width before the sum).
    ``heads``, ``kv_heads``: of this rank. ``v_dim``: where values are narrower than keys. The cache is cold, as in a server.
    """
    chosen = law_for("decode_attention", backend, kv_precision(kv_dtype), card)
    parts = decode_parts(
        chosen.constants, machine(card), batch=batch, context_tokens_sum=context_tokens_sum, heads=heads, kv_heads=kv_heads,
        key_value_dim=head_dim + (v_dim or head_dim), kv_bytes=CACHE_BYTES[kv_dtype],
        items=batch * work_heads(chosen.law.backend, heads, kv_heads, window),
    )  # fmt: skip
    return Estimate(seconds=decode_seconds(chosen.constants, parts), parts=parts, formula=DECODE_FORMULA, chosen=chosen)


def beside_prompts(
    found: Estimate, *, card: Accelerator, context_tokens_sum: Any, heads: Any, key_value_dim: Any, backend: str
) -> Estimate:
    """A decode step's attention where a prompt is in the same call: whole tiles of rows at the prompt kernel's rate, if slower.

    The launch is the prompt's. ``backend``: of the prompts' attention; kernels that take decodes and prompts apart leave the
    estimate as it is.
    """
    if backend.rpartition("/")[2] not in MIXING:
        return found
    chosen = law_for("prefill_attention", backend, "bf16", card)
    on, constants = machine(card, chosen.law.precision), chosen.constants
    per_pair = 2 * key_value_dim + constants["softmax_flops"]
    padded = per_pair * heads * MIXED_ROWS * context_tokens_sum / (on.flops_per_s * constants["compute"])
    seconds = larger(found.seconds - found.parts["launch"] - found.parts["cold"], padded)
    parts = {**found.parts, "launch": 0.0, "cold": 0.0, "compute": padded}
    return Estimate(seconds=seconds, parts=parts, formula="larger(decode, compute)", chosen=chosen)


def work_heads(backend: str, heads: Any, kv_heads: Any, window: Any) -> Any:
    """Heads that a decode kernel treats one by one: KV heads, with their query heads packed, where the kernel can."""
    unpacked = (window > 0) * (backend in UNPACKED_WITH_WINDOW)
    return kv_heads + unpacked * (heads - kv_heads)


def decode_parts(
    constants: dict[str, float], on: Machine, *, batch: Any, context_tokens_sum: Any, heads: Any, kv_heads: Any,
    key_value_dim: Any, kv_bytes: float, items: Any, warm: Any = 0,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, cache bytes, FLOPs and work units before they are combined.

    A group of one head takes a kernel of its own in some engines, without a tensor core's padding of rows: ``single`` is its
    work against a group's. ``items``: pieces of work, sequences x heads. ``warm``: 1 where a benchmark that repeats the step
    finds the cache in L2.
    """
    cache = context_tokens_sum * kv_heads * key_value_dim * kv_bytes
    rate = constants["bandwidth"] + warm * (constants["l2"] - constants["bandwidth"])
    tiles = whole(context_tokens_sum / batch / KEY_TILE)
    single = (heads == kv_heads) * 1.0
    rows = single * heads + (1 - single) * whole(heads / kv_heads / GROUP_ROWS) * GROUP_ROWS * kv_heads
    work = 2 * rows * key_value_dim * tiles * KEY_TILE * batch
    item = constants["unit_us"] + constants["tile_us"] * tiles * key_value_dim / 256
    return {
        "launch": constants["launch_us"] * 1e-6,
        "cold": constants["cold_us"] * 1e-6 * (1 - warm),
        "bandwidth": cache / (on.bandwidth_bytes_per_s * rate),
        "compute": work / (on.flops_per_s * constants["compute"]),
        "unit": items * item * (1 + single * (constants.get("single", 1.0) - 1)) * 1e-6 / on.units,
    }


def decode_seconds(constants: dict[str, float], parts: dict[str, Any]) -> Any:
    """The parts combined."""
    p = constants["blend"]
    busy = (parts["bandwidth"] ** p + parts["compute"] ** p + parts["unit"] ** p) ** (1 / p)
    return parts["launch"] + parts["cold"] + busy


def prefill_attention(
    *, card: Accelerator, new: Any, past: Any = 0, heads: Any, kv_heads: Any, head_dim: Any, v_dim: Any = 0, window: int = 0,
    batch: Any = 1, kv_dtype: str = "bf16", dtype: str = "bf16", masked: bool = True, backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of attention of ``batch`` sequences of ``new`` tokens each on ``past`` cached ones, one layer on one rank.

    ``window``: keys in sight (0: all). ``masked``: causal; False for an encoder. ``dtype``: the format of the products.
    """
    chosen = law_for("prefill_attention", backend, dtype, card)
    parts = prefill_parts(
        chosen.constants, machine(card, chosen.law.precision), new=new, past=past, heads=heads, kv_heads=kv_heads,
        key_value_dim=head_dim + (v_dim or head_dim), batch=batch, pairs=attended(new, past, window=window, masked=masked),
        keys=smaller(past + new, window + QUERY_TILE) if window else past + new, kv_bytes=CACHE_BYTES[kv_dtype],
    )  # fmt: skip
    return Estimate(seconds=prefill_seconds(chosen.constants, parts), parts=parts, formula=PREFILL_FORMULA, chosen=chosen)


def attended(new: Any, past: Any, *, window: int = 0, masked: bool = True) -> Any:
    """(query, key) pairs of one sequence and head."""
    if not masked:
        return everything(new, past)
    return windowed(new, past, window) if window else causal(new, past)


def prefill_parts(
    constants: dict[str, float], on: Machine, *, new: Any, past: Any, heads: Any, kv_heads: Any, key_value_dim: Any,
    batch: Any, pairs: Any, keys: Any, kv_bytes: float = 2,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, of storing keys and values, of the tiles, of the longest tile and of the bytes.

    ``pairs``: (query, key) pairs of one sequence and head; ``keys``: most keys that one query tile meets.
    """
    rate = on.flops_per_s * constants["compute"]
    memory = on.bandwidth_bytes_per_s * constants["bandwidth"]
    tiles = whole(new / QUERY_TILE)
    per_pair = 2 * key_value_dim + constants["softmax_flops"]
    work = per_pair * batch * heads * (pairs + tiles * QUERY_TILE**2 / 2)
    return {
        "launch": constants["launch_us"] * 1e-6,
        "store": constants["stores"] * 2 * batch * new * kv_heads * key_value_dim / memory,
        "compute": work / rate + batch * heads * tiles * constants["tile_us"] * 1e-6 / on.units,
        "tail": constants["tail"] * per_pair * QUERY_TILE * keys * on.units / rate,
        "bandwidth": batch * key_value_dim * (2 * new * (heads + kv_heads) + kv_bytes * past * kv_heads) / memory,
    }


def prefill_seconds(constants: dict[str, float], parts: dict[str, Any]) -> Any:
    """The parts combined."""
    p = constants["blend"]
    busy = (parts["compute"] ** p + parts["tail"] ** p + parts["bandwidth"] ** p) ** (1 / p)
    return parts["launch"] + parts["store"] + busy


def kv_precision(kv_dtype: str) -> str:
    """The precision a decode law is filed under: the cache's."""
    return "bf16" if kv_dtype in {"bf16", "fp16", "fp32"} else "fp8"
