"""Rows of latent attention: kernels, whole modules, and their sparse descendants."""

from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.attention import CACHE_BYTES
from vramcast.speed.kernels.gemm import RECIPES
from vramcast.speed.kernels.latent import Latent
from vramcast.speed.kernels.rows.base import FORMATS, Call

_KERNEL_OPS = {"context_mla": "mla_prefill", "generation_mla": "mla_decode"}


def latent_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    kv = "fp8" if words["kv_dtype"].startswith("fp8") else "bf16"
    new, past, batch, heads = numbers["isl"], numbers["past"], numbers["batch"], numbers["heads"]
    engine = words["engine"]
    if words["op"] in _KERNEL_OPS:
        backend = f"{engine}/{words['kernel']}" if engine != "trtllm" else "trtllm"
        shared = {"batch": batch, "heads": heads}
        own = (
            {"new": new, "past": past} if words["op"] == "context_mla"
            else {"context_tokens_sum": batch * (past + 1), "kv_bytes": CACHE_BYTES[kv]}
        )  # fmt: skip
        return Call(operator=_KERNEL_OPS[words["op"]], backend=backend, precision=kv, computes="bf16", arguments=shared | own)
    weight = FORMATS[words["gemm_type"]]
    phase = "decode" if "generation" in words["op"] else "prefill"
    if words["op"].startswith("wideep"):
        return None  # its columns count otherwise than the others', and how is not stated
    arguments = _module_arguments(numbers, Latent(), weight, kv)
    return Call(
        operator=f"mla_module_{phase}", backend=engine, precision=f"{weight}, {kv} cache", computes="bf16", arguments=arguments
    )


def _module_arguments(numbers: dict[str, Any], shape: Latent, weight: str, kv: str, indexes: bool = True) -> dict[str, Any]:
    return {
        "new": numbers["isl"], "past": numbers["past"], "batch": numbers["batch"], "heads": numbers["heads"], "shape": shape,
        "weight_bytes": RECIPES[weight].weight_bytes, "kv_bytes": CACHE_BYTES[kv], "indexes": indexes * 1.0,
    }  # fmt: skip


_V32 = Latent(top_k=2048, index_heads=64)


_GLM5 = Latent(hidden=6144, q_rank=2048, key=192, value=256, top_k=2048, index_heads=32)


_FLASH = {"hidden": 4096, "q_rank": 1024, "rope": 0, "key": 512, "value": 512, "window": 128, "out_rank": 1024}


_PRO = _FLASH | {"hidden": 7168, "q_rank": 1536}


def sparse_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    shape = _sparse_shape(words["model"], words["op"])
    if shape is None:
        return None
    kv = "fp8" if words["kv_dtype"].startswith("fp8") else "bf16"
    weight, kernel = FORMATS[words["gemm_type"]], words["kernel"]
    phase = "decode" if "generation" in words["op"] else "prefill"
    kind = "csa" if "csa" in words["op"] or "hca" in words["op"] else "dsa"
    if "dense" in kernel:
        return None  # short contexts, where nothing is left out
    variant = "/skip" if "skip" in kernel else "/hca" if "hca" in words["op"] else ""
    return Call(
        operator=f"{kind}_module_{phase}", backend=words["engine"] + variant, precision=f"{weight}, {kv} cache", computes="bf16",
        arguments=_module_arguments(numbers, shape, weight, kv, "skip" not in kernel),
    )  # fmt: skip


def _sparse_shape(model: str, op: str) -> Latent | None:
    if "GLM-5" in model:
        return _GLM5
    if "V3.2" in model:
        return _V32
    if "DeepSeek-V4" not in model:
        return None
    wide = _PRO if "Pro" in model else _FLASH
    if "csa" in op:
        return Latent(**wide, compress=4, top_k=1024 if "Pro" in model else 512, index_heads=64)
    return Latent(**wide, compress=128)
