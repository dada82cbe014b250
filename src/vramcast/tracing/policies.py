"""What a GPU and a library version decide behind PyTorch's operators: one row per fact, each with its source.

A trace runs without a GPU, so every choice that a kernel library would make at run time is looked up here.
"""

import msgspec

from vramcast.units import KiB, MiB


class DeviceModel(msgspec.Struct, frozen=True, kw_only=True):
    """The card that a trace pretends to run on: what torch.cuda.get_device_properties would say."""

    name: str = "NVIDIA A100-SXM4-80GB"
    capability: tuple[int, int] = (8, 0)
    memory_bytes: int = 80 * 2**30
    multiprocessors: int = 108
    threads_per_multiprocessor: int = 2048
    count: int = 1


class AttentionRule(msgspec.Struct, frozen=True, kw_only=True):
    """The order in which scaled_dot_product_attention tries its kernels on some cards from some torch version on."""

    torch: tuple[int, int]
    capabilities: tuple[int, ...]
    order: tuple[str, ...]
    source: str


# The first row that matches holds. cuDNN leads only where at::native's check_prefer_cudnn_attention says so: Hopper and
# data-centre Blackwell with a recent cuDNN, which the wheels ship from torch 2.10 on.
_SDP_UTILS = "aten/src/ATen/native/transformers/cuda/sdp_utils.cpp"
ATTENTION_ORDER = (
    AttentionRule(torch=(2, 10), capabilities=(9, 10), order=("cudnn", "flash", "efficient", "math"), source=_SDP_UTILS),
    AttentionRule(torch=(2, 0), capabilities=(8, 9, 10, 11, 12), order=("flash", "efficient", "math"), source=_SDP_UTILS),
    AttentionRule(torch=(2, 0), capabilities=(5, 6, 7), order=("efficient", "math"), source=_SDP_UTILS + " (flash needs sm80)"),
)

# cuBLAS keeps one workspace per handle and stream, taken from the caching allocator on its first matrix product and never given
# back. A thread has its own handle, so the autograd thread has a second workspace.
# Source: aten/src/ATen/cuda/CublasHandlePool.cpp, getChosenWorkspaceSize; both sizes seen as live blocks in recorded snapshots.
CUBLAS_WORKSPACE_BYTES = dict.fromkeys((9, 10, 12), 32 * MiB)
CUBLAS_WORKSPACE_DEFAULT_BYTES = 2 * 4096 * KiB + 8 * 16 * KiB


def attention_order(torch_version: tuple[int, int], capability_major: int) -> tuple[str, ...]:
    """The kernels in the order scaled_dot_product_attention tries them; "math" alone where no rule is known."""
    for rule in ATTENTION_ORDER:
        if torch_version >= rule.torch and capability_major in rule.capabilities:
            return rule.order
    return ("math",)


def cublas_workspace_bytes(capability_major: int) -> int:
    """Bytes of one cuBLAS workspace on cards of that compute capability."""
    return CUBLAS_WORKSPACE_BYTES.get(capability_major, CUBLAS_WORKSPACE_DEFAULT_BYTES)
