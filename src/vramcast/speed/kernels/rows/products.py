"""Rows of matrix products and of expert layers."""

from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.gemm import RECIPES, tiled
from vramcast.speed.kernels.moe import DISTRIBUTIONS
from vramcast.speed.kernels.rows.base import FORMATS, Call

# Engines whose own build of PyTorch brings its own cuBLAS: the same product takes up to 7 % more or less time on every card.
BUILDS = ("vllm", "sglang", "trtllm")
COPIES = 6  # weights that the benchmark's captured graph cycles through: they stay in L2 together or not at all


def gemm_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    precision = FORMATS.get(words["dtype"])
    if precision is None:
        return None
    recipe = tiled(RECIPES[precision], card)
    m, n, k = numbers["m"], numbers["n"], numbers["k"]
    resident = COPIES * n * k * recipe.weight_bytes + m * (k * recipe.activation_bytes + n * 2) <= card.l2_bytes
    return Call(
        operator="gemm", backend=_gemm_backend(words, precision), precision=precision, computes=recipe.computes,
        arguments={"m": m, "n": n, "k": k, "recipe": recipe, "warm": resident * 1.0},
    )  # fmt: skip


def _gemm_backend(words: dict[str, str], precision: str) -> str:
    engine, kernel = words.get("engine", ""), words.get("kernel", "").lower()
    if "lib" in words or engine == "aiter":
        return "aiter"
    if precision in {"bf16", "fp32"}:
        return f"{engine}/cublas" if engine in BUILDS and precision == "bf16" else "cublas"
    if "deepgemm" in kernel or "flashinferfp8block" in kernel:
        return "vllm/deepgemm_eager" if engine == "vllm" else "deepgemm"
    if precision == "nvfp4":
        return "trtllm" if engine == "trtllm" else "cutedsl"
    if "triton" in kernel:  # launched from Python: 290 to 340 us up to 512 tokens whatever the weight (L40S)
        return f"{engine}/triton_eager"
    return "trtllm" if engine == "trtllm" else f"{engine}/cutlass"


_EXPERT_FORMATS = {
    "bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "w4a16_mxfp4": "mxfp4_weight_only",
    "w4a8_mxfp4_mxfp8": "mxfp4_mxfp8", "int4_wo": "int4_weight_only", "w4afp8": "int4_fp8", "mxfp4": "mxfp4",
}  # fmt: skip


# Nemotron-3's experts have two matrices (squared ReLU, no gate): (hidden or latent, inter) of its sizes.
_UNGATED = ((2688, 1856), (1024, 2688), (2048, 5120))


def expert_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    precision, backend = _EXPERT_FORMATS.get(words["dtype"]), _expert_backend(words)
    if precision is None or words["distribution"] not in DISTRIBUTIONS:
        return None
    recipe = RECIPES[precision]
    two = sum((numbers["hidden"] == h) * (numbers["inter"] == i) for h, i in _UNGATED) * (words["engine"] == "vllm")
    return Call(
        operator="moe", backend=backend, precision=precision, computes=recipe.computes,
        arguments={
            "tokens": numbers["tokens"], "hidden": numbers["hidden"], "inter": numbers["inter"] / numbers["moe_tp"],
            "experts": numbers["experts"], "top_k": numbers["topk"], "ep": numbers["moe_ep"], "recipe": recipe,
            "exponent": DISTRIBUTIONS[words["distribution"]] + 0 * numbers["tokens"],
            "matrices": 3 - (1 if "nongated" in words["kernel"] else two),
        },
    )  # fmt: skip


def _expert_backend(words: dict[str, str]) -> str:
    engine, kernel = words["engine"], words["kernel"]
    if engine == "aiter":
        return "aiter"
    if "min_latency" in kernel or "nongated" in kernel:
        return f"{engine}/{'min_latency' if 'min_latency' in kernel else 'ungated'}"
    if kernel == "vllm_fused_moe":
        return "vllm/triton"  # its name before 0.24
    name = next((n for n in ("deepgemm", "marlin", "triton", "cutlass") if f"_{n}" in kernel or kernel == n), "")
    if "trtllm_moe" in kernel or "flashinfer_trtllm" in kernel:
        name = "trtllm_gen"
    return f"{engine}/{name or 'fused'}"
