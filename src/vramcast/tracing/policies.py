"""What a GPU and a library version decide behind PyTorch's operators: one row per fact, each with its source.

A trace runs without a GPU, so every choice that a kernel library would make at run time is looked up here.
"""

import msgspec

from vramcast.hardware.runtime import known_capability


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


def attention_order(torch_version: tuple[int, int], capability: tuple[int, int]) -> tuple[str, ...]:
    """The kernels in the order scaled_dot_product_attention tries them; "math" alone on cards before any fused kernel."""
    major = known_capability(capability)[0]
    for rule in ATTENTION_ORDER:
        if torch_version >= rule.torch and major in rule.capabilities:
            return rule.order
    return ("math",)
