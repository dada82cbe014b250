"""Rows of attention over a cache: decode steps (``generation_attention``) and prefills (``context_attention``)."""

from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.layers import windowed
from vramcast.speed.kernels.attention import CACHE_BYTES, QUERY_TILE, work_heads
from vramcast.speed.kernels.law import smaller
from vramcast.speed.kernels.rows.base import Call

_ATTENTION = {
    "trtllm_mha": "trtllm_gen", "vllm_flashinfer_trtllmdecode": "trtllm_gen", "vllm_flashinfer_trtllmprefill": "trtllm_gen",
    "fa3": "fa3", "vllm_flash_attn_fa3": "fa3", "vllm_flash_attn_fa2": "fa2", "vllm_flash_attn": "fa2", "flash_attention": "fa2",
    "vllm_flash_attn_fa4": "fa4", "flashinfer": "flashinfer", "vllm_flashinfer_fidecode": "flashinfer",
    "vllm_flashinfer_fiprefill": "flashinfer", "triton": "triton", "vllm_triton_attn": "triton",
    "torch_flow_flashinfer": "flashinfer",
}  # fmt: skip


def _attention_backend(words: dict[str, str]) -> str | None:
    if words["kernel"] == "torch_flow":
        return "trtllm"
    kernel = _ATTENTION.get(words["kernel"])
    return f"{words['engine']}/{kernel}" if kernel else None


def decode_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    backend = _attention_backend(words)
    if backend is None:
        return None
    kv = "fp8" if words["kv_dtype"].startswith("fp8") else "bf16"
    keys = _seen(numbers["past"] + 1, numbers["window_size"])
    groups = numbers["kv_heads"] + (numbers["kv_heads"] == 0) * numbers["heads"]
    width = 2 * numbers["head_dim"]
    resident = numbers["batch"] * keys * groups * width * CACHE_BYTES[kv] <= card.l2_bytes
    return Call(
        operator="decode_attention", backend=backend, precision=kv, computes="bf16",
        arguments={
            "batch": numbers["batch"], "context_tokens_sum": numbers["batch"] * keys, "heads": numbers["heads"],
            "kv_heads": groups, "key_value_dim": width, "kv_bytes": CACHE_BYTES[kv], "warm": resident * 1.0,
            "items": numbers["batch"] * work_heads(backend, numbers["heads"], groups, numbers["window_size"]),
        },
    )  # fmt: skip


def _seen(keys: Any, window: Any) -> Any:
    """Keys in sight; a window of 0 is none."""
    return smaller(keys, window + (window == 0) * 2**40)


def prefill_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    backend = _attention_backend(words)
    if backend is None:
        return None
    new, past = numbers["isl"], numbers["past"]
    window = _seen(2.0**40 + 0 * new, numbers["window_size"])
    groups = numbers["kv_heads"] + (numbers["kv_heads"] == 0) * numbers["heads"]
    precision = "fp8" if words["dtype"].startswith("fp8") else "bf16"
    return Call(
        operator="prefill_attention", backend=backend, precision=precision, computes=precision,
        arguments={
            "new": new, "past": past, "heads": numbers["heads"], "kv_heads": groups, "key_value_dim": 2 * numbers["head_dim"],
            "batch": numbers["batch"], "pairs": windowed(new, past, window), "keys": smaller(past + new, window + QUERY_TILE),
        },
    )  # fmt: skip
