"""Latent attention (MLA): prefilled with expanded keys, decoded absorbed into the latent; and its sparse descendants.

One latent of ``rank + rope`` numbers per token serves all heads, on every tensor-parallel rank. Sparse forms (DSA: an indexer
scores every key, attention reads the best; CSA, HCA: compressed keys) add the indexer's work. FLOPs and bytes: SPEED 2.
"""

from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.pairs import causal, windowed
from vramcast.speed.kernels.arrays import larger, smaller
from vramcast.speed.kernels.attention import CACHE_BYTES, DECODE_FORMULA, decode_seconds
from vramcast.speed.kernels.law import Estimate, law_for
from vramcast.speed.kernels.machine import Machine, machine

LATENT, ROPE = 512, 64  # DeepSeek-V2/V3's kv_lora_rank and qk_rope_head_dim
KEY, VALUE = 192, 128  # expanded key (128 + 64) and value width
FORMULA = "launch + compute + bandwidth"


def mla_decode(
    *, card: Accelerator, batch: Any, context_tokens_sum: Any, heads: Any, latent: int = LATENT, rope: int = ROPE,
    kv_dtype: str = "bf16", backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of one decode step's absorbed attention kernel of one layer; ``heads`` are those of this rank."""
    chosen = law_for("mla_decode", backend, "bf16" if CACHE_BYTES[kv_dtype] >= 2 else "fp8", card)
    parts = mla_decode_parts(
        chosen.law.constants, machine(card), batch=batch, context_tokens_sum=context_tokens_sum, heads=heads,
        latent=latent, rope=rope, kv_bytes=CACHE_BYTES[kv_dtype],
    )  # fmt: skip
    return Estimate(seconds=decode_seconds(parts), parts=parts, formula=DECODE_FORMULA, chosen=chosen)


def mla_decode_parts(
    constants: dict[str, float], on: Machine, *, batch: Any, context_tokens_sum: Any, heads: Any, latent: int, rope: int,
    kv_bytes: float,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, latent bytes, FLOPs and work units before they are combined as a decode step's."""
    cache = context_tokens_sum * (latent + rope) * kv_bytes
    return {
        "launch": constants["launch_us"] * 1e-6,
        "bandwidth": cache / (on.bandwidth_bytes_per_s * constants["bandwidth"]) + constants["cold_us"] * 1e-6,
        "compute": 2 * heads * (2 * latent + rope) * context_tokens_sum / (on.flops_per_s * constants["compute"]),
        "unit": batch * constants["unit_us"] * 1e-6 / on.units,
    }


def mla_prefill(
    *, card: Accelerator, new: Any, past: Any = 0, heads: Any, batch: Any = 1, key_dim: int = KEY, value_dim: int = VALUE,
    dtype: str = "bf16", backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of the attention kernel over expanded keys and values of one layer; the up-projection is a GEMM of its own."""
    chosen = law_for("mla_prefill", backend, dtype, card)
    parts = mla_prefill_parts(
        chosen.law.constants, machine(card, dtype), new=new, past=past, heads=heads, batch=batch, width=key_dim + value_dim
    )
    return Estimate(seconds=prefill_sum(parts), parts=parts, formula=FORMULA, chosen=chosen)


def mla_prefill_parts(
    constants: dict[str, float], on: Machine, *, new: Any, past: Any, heads: Any, batch: Any, width: Any
) -> dict[str, Any]:
    """Seconds of launch, FLOPs over causal pairs, and bytes of queries, keys, values and output."""
    moved = batch * heads * 2 * width * (2 * new + past)
    return {
        "launch": constants["launch_us"] * 1e-6,
        "compute": 2 * width * batch * heads * causal(new, past) / (on.flops_per_s * constants["compute"]),
        "bandwidth": moved / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
    }


def prefill_sum(parts: dict[str, Any]) -> Any:
    """Launch + compute + bandwidth."""
    return parts["launch"] + parts["compute"] + parts["bandwidth"]


def sparse_attention(
    *, card: Accelerator, new: Any, past: Any, batch: Any, heads: Any, top_k: int = 2048, index_heads: int = 64,
    index_dim: int = 128, latent: int = LATENT, rope: int = ROPE, compress: int = 1, kv_dtype: str = "fp8",
    indexes: bool = True, backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of sparse latent attention of one layer: an indexer over all keys, then attention on at most ``top_k`` of them.

    ``compress``: tokens behind one key (4 in CSA, 128 in HCA). ``indexes`` False: this layer reuses another's choice.
    """
    chosen = law_for("sparse_attention", backend or "vllm/flashmla", "fp8" if CACHE_BYTES[kv_dtype] < 2 else "bf16", card)
    parts = sparse_parts(
        chosen.law.constants, machine(card), new=new, past=past, batch=batch, heads=heads, top_k=top_k,
        index_work=index_heads * index_dim * indexes, latent=latent, rope=rope, compress=compress, kv_bytes=CACHE_BYTES[kv_dtype],
    )  # fmt: skip
    seconds = parts["launch"] + parts["index"] + larger(parts["compute"], parts["bandwidth"])
    return Estimate(seconds=seconds, parts=parts, formula="launch + index + max(compute, bandwidth)", chosen=chosen)


def sparse_parts(
    constants: dict[str, float], on: Machine, *, new: Any, past: Any, batch: Any, heads: Any, top_k: int, index_work: float,
    latent: int, rope: int, compress: int, kv_bytes: float,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, of the indexer over all keys, of the chosen keys' FLOPs and of their bytes."""
    scored = batch * causal(new, past) / compress
    read = batch * windowed(new, past, top_k * compress) / compress
    gathered = smaller(read, batch * (past + new) / compress) * (latent + rope) * kv_bytes
    return {
        "launch": constants["launch_us"] * 1e-6,
        "index": 2 * scored * index_work / (on.flops_per_s * constants["index"]),
        "compute": 2 * heads * (2 * latent + rope) * read / (on.flops_per_s * constants["compute"]),
        "bandwidth": gathered / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
    }
