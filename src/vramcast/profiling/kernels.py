"""What a kernel is, told by its name: its class, whether it runs on matrix units, and a short name for people.

Names are the only evidence a trace gives. Each row is a family of names as their libraries spell them (cuBLAS, CUTLASS, cuDNN,
FlashAttention, FlashInfer, TensorRT-LLM, vLLM, Triton and Inductor, Transformer Engine, hipBLASLt, CK, MIOpen, aiter); the
first row that matches decides.
"""

import re
from functools import lru_cache

COMMUNICATION, OTHER = "communication", "other"
_TELLING = 240
# (class, names). Order matters: an attention kernel has "gemm" in its template, a fused norm "elementwise".
_FAMILIES = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        (
            COMMUNICATION,
            r"nccl|rccl|msccl|multimem_|cross_device_reduce|one_shot_all_reduce|two_shot_all_reduce|custom_?all_?reduce|"
            r"allreduce_fusion|userbuffers|deep_?ep|dpsk::ep|::ep::(?:internode|intranode)|nvshmem|low_latency::|moe_?a2a|"
            r"all_?to_?all_?(?:dispatch|combine)|quick_?reduce|reduce_scatter_cross|mscclpp",
        ),
        (
            "attention",
            r"flash|fmha|attn|attention|mha_|\bmla|_mla_|sdpa|paged_|xqa|pagedattention|merge_state|cudnn_generated_.*sdpa|"
            r"fwd_kernel_stage2|_fwd_grouped_kernel|kernel_mha",
        ),
        (
            "MoE",
            r"moe|grouped_?gemm|group_?gemm|topk_?gating|permute_?tokens|expert|_matmul_ogs|bmm_\w*(?:swiglu|dynb|routemap)|"
            r"routing(?:main|indices)|finalize_?kernel|scatter2scatter|_grouped_mm|m_grouped",
        ),
        (
            "state space",
            r"mamba|selective_scan|_chunk_(?:scan|state|cumsum)|ssd_|causal_conv1d|gated_delta|delta_rule|chunk_fwd|"
            r"chunk_gated|fused_recurrent|wkv",
        ),
        (
            "optimizer",
            r"adam|lamb(?!da)|multi_tensor|fused_sgd|muon|adagrad_(?:update|step)|fused_optimizer|newton_schulz",
        ),
        (
            "embedding",
            r"embedding|indexselect|index_select|embs_kernel|bounds_check_indices|linearize_index|permute_(?:1d|2d|indices)",
        ),
        (
            "convolution",
            r"conv(?!ert)|implicit_?gemm|fprop|dgrad|wgrad(?!_accum)|winograd|igemm_(?:fwd|bwd|wrw)|naive_conv|nchwtonhwc|"
            r"nhwctonchw|scudnn",
        ),
        (
            "GEMM",
            r"gemm|gemv|cijk_|cutlass|nvjet|xmma|hgemm|sgemm|splitk|matmul|_mm_|triton_(?:tem|mm)|bmm|kernel_dot|dot_kernel|"
            r"device_kernel.*(?:sm90|sm100)|marlin|dequant.*mul|cublas|mmq|mul_mat|epilogue::impl|wvsplitk|awq_|exllama",
        ),
        ("norm", r"norm|bn_(?:fw|bw)|gammabeta|batchnorm|welford|subtensorop"),
        ("softmax and loss", r"softmax|cross_?entropy|nll_loss|loss|log_sum_exp|logsumexp"),
        ("quantisation", r"quant|fp8|mxfp|nvfp4|hadamard|scaled_fp|cvt_fp|amax|cast_transpose|hfp8"),
        ("rotary", r"rotary|rope"),
        ("activation", r"silu|gelu|swiglu|relu|act_and_mul|sigmoid|tanh|geglu|threshold"),
        ("dropout and random", r"dropout|philox|random|bernoulli|distribution|uniform_|normal_kernel"),
        ("sort and sample", r"sort|topk|top_k|sampl|argmax|argmin|unique|cub::|rocprim|scan|histogram"),
        ("index and copy", r"index|gather|scatter|copy|cat_?array|concat|transpose|slice|pad_|permute|fill|where|arange|reshape"),
        ("reduction", r"reduce|triton_(?:red|per)|sum_|mean_"),
        ("elementwise", r"elementwise|triton_poi|pointwise|binaryfunctor|unaryfunctor|add_|mul_|div_|pow_|optensor"),
    )
)
# Kernels of matrix units: instruction shapes (884, 1688, 16816 ...), hmma, wgmma and the libraries that use nothing else.
_MATRIX = re.compile(
    r"tensorop|[hsdi]?(?:884|1688|16816|16832|8816)(?:gemm|cudnn|fprop|dgrad|wgrad|_|$)|hmma|imma|qmma|utcmma|wgmma|xmma|"
    r"nvjet|flash|fmha|mma_|sm(?:90|100|103|120)_|warpgroup|cijk_.*_mi\d|mfma|xdl|gtcx|deep_?gemm|marlin|bmm_\w*_t\d|"
    r"_matmul_ogs|triton_(?:tem|mm)|gmma|tcgen05|16dp256b|attn_fwd|attn_bwd|unified_attention",
)
# fp32 arithmetic on the ordinary units, whatever else the name holds.
_VECTOR = re.compile(r"_sgemm_|^(?:ampere|volta|maxwell|turing)_s(?:gemm|cudnn)|gemv|ffma|_dgemm_|simt")


@lru_cache(maxsize=65536)
def kernel_class(name: str) -> str:
    """The class of a kernel's name, ``other`` when no family knows it; the first 240 letters tell."""
    lowered = name[:_TELLING].lower()
    return next((family for family, pattern in _FAMILIES if pattern.search(lowered)), OTHER)


@lru_cache(maxsize=65536)
def on_matrix_units(name: str) -> bool:
    """Whether the kernel runs on tensor cores (matrix cores of AMD): told by its name, so a lower bound."""
    lowered = name[:_TELLING].lower()
    return kernel_class(name) != COMMUNICATION and not _VECTOR.search(lowered) and bool(_MATRIX.search(lowered))


_FUNCTION = re.compile(r"(\w*(?:Functor(?!<)\w*|Functor_\w+|_kernel_cuda|_kernel_impl|_functor|Ops)\b)")
_WRAPPERS = re.compile(r"gpu_kernel_impl|[AB]?(?:Unary|Binary)Functor$|ReduceOp|^Functor$")


@lru_cache(maxsize=65536)
def short_name(name: str) -> str:
    """The name without arguments, template arguments, return type and ``at::native``; never empty.

    PyTorch's generic kernels carry what they compute as a template argument, which is kept: ``elementwise_kernel[MulFunctor]``.
    """
    if not re.search(r"[<(]", name):
        return name
    words = _outside_brackets(name).replace("::::", "::").split()
    short = words[-1].strip(":").removeprefix("at::native::") if words else ""
    if re.search(r"(?:elementwise|reduce|multi_tensor_apply)_kernel", short):
        inner = [f for f in _FUNCTION.findall(name) if not _WRAPPERS.search(f)]
        short += f"[{inner[0]}]" if inner else ""
    return short or name[:80]


def _outside_brackets(name: str) -> str:
    depth, kept = 0, []
    for part in re.split(r"(\(anonymous namespace\)|->|[<>()])", name):
        if part in ("<", "("):
            depth += 1
        elif part in (">", ")"):
            depth = max(0, depth - 1)
        elif depth == 0 and part not in ("(anonymous namespace)", "->"):
            kept.append(part)
    return "".join(kept)
