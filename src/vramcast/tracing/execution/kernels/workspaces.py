"""Device memory that kernels take for themselves while they run: no tensors, yet allocations of the caching allocator.

Each rule gives the sizes from the operator's arguments and result, after the kernel's source.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from vramcast.tracing.policies import DeviceModel

aten = torch.ops.aten
Rule = Callable[[Any, Any, DeviceModel], list[int]]

_LEAST_VALUES, _MOST_VALUES = 16, 256  # per thread, Reduce.cuh


def rules() -> dict[Any, Rule]:
    """Operator overload to the rule for its workspace."""
    found: dict[Any, Rule] = {
        aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
        aten._flash_attention_backward.default: _flash_backward_by_token,
        aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
        aten.sum.dim_IntList: _reduction,
        aten.mean.dim: _reduction,
        aten.embedding_dense_backward.default: _embedding_backward,
        aten._log_softmax_backward_data.default: _softmax_backward,
        aten._softmax_backward_data.default: _softmax_backward,
    }
    if hasattr(torch.ops, "bitsandbytes") and hasattr(torch.ops.bitsandbytes, "gemm_4bit"):
        found[torch.ops.bitsandbytes.gemm_4bit.default] = _matmul_4bit
    return found


def _flash_backward(args: Any, out: Any, device: DeviceModel) -> list[int]:
    """softmax_d and dq_accum in fp32, and dk, dv expanded to all heads for GQA (csrc/flash_attn/flash_api.cpp, mha_bwd)."""
    del out, device
    q, k = args[1], args[2]
    batch, heads, length, width = q.shape
    rows, columns = _up(length, 128), _up(width, 32 if width <= 128 else 64)
    sizes = [batch * heads * rows * 4, batch * rows * heads * columns * 4]
    if k.shape[1] != heads:
        sizes += [batch * k.shape[2] * heads * width * q.element_size()] * 2
    return sizes


def _flash_backward_by_token(args: Any, out: Any, device: DeviceModel) -> list[int]:
    """The same for (batch, tokens, heads, width), or packed (tokens, heads, width), where each sequence adds up to 128 rows."""
    del out, device
    q, k, cumulative = args[1], args[2], args[6]
    tokens, heads, width = q.shape[-3:]
    packed = q.dim() == 3
    sequences = cumulative.numel() if packed and isinstance(cumulative, torch.Tensor) else 1
    rows = tokens + 128 * sequences if packed else q.shape[0] * _up(tokens, 128)
    sizes = [heads * rows * 4, rows * heads * _up(width, 32 if width <= 128 else 64) * 4]
    return sizes + ([k.shape[:-2].numel() * heads * width * q.element_size()] * 2 if k.shape[-2] != heads else [])


def _efficient_backward(args: Any, out: Any, device: DeviceModel) -> list[int]:
    """Delta in fp32, and for 16-bit inputs an fp32 accumulator of dq (mem_eff_attention/kernel_backward.h)."""
    del out, device
    q = args[1]
    batch, heads, length, width = q.shape
    delta = batch * heads * length * 4
    return [delta] if q.element_size() == 4 else [delta, batch * heads * _up(length, 64) * _up(width, 64) * 4]


def _embedding_backward(args: Any, out: Any, device: DeviceModel) -> list[int]:
    """Above 3,072 indices: sorted and original indices and the counts (aten/native/cuda/Embedding.cu)."""
    del out, device
    indices = args[1]
    size = indices.numel() * indices.element_size()
    return [size, size, size] if indices.numel() > 3072 else []


def _softmax_backward(args: Any, out: Any, device: DeviceModel) -> list[int]:
    """Contiguous copies of what is not: gradient and output (aten/native/cuda/SoftMax.cu, host_softmax_backward)."""
    del out, device
    return [t.numel() * t.element_size() for t in args[:2] if not t.is_contiguous()]


def _matmul_4bit(args: Any, out: Any, device: DeviceModel) -> list[int]:
    """For more than 64 rows the weight is dequantised first, with its nested fp32 scales."""
    del out, device
    activations, (rows, columns) = args[0], args[2]
    if activations.numel() // columns <= 64:
        return []
    return [rows * columns // 64 * 4, rows * columns * activations.element_size()]


def _reduction(args: Any, out: Any, device: DeviceModel) -> list[int]:
    """The staging buffer of a reduction split over thread blocks (aten/native/cuda/Reduce.cuh, setReduceConfig).

    Only reductions over the slow dimensions (norm and bias gradients) need a large one; those along the fastest dimension stage
    a few bytes.
    """
    source, result = args[0], out if isinstance(out, torch.Tensor) else out[0]
    outputs = result.numel()
    if not outputs or not source.numel() or _reduces_fastest(source, args[1]):
        return []
    size = staging_bytes(outputs, source.numel() // outputs, device)
    return [size] if size else []


def staging_bytes(outputs: int, inputs: int, device: DeviceModel) -> int:
    """Bytes staged when ``inputs`` rows are summed into ``outputs`` columns of at most 32-bit elements; 0 when one block does."""
    vector = 4 if outputs % 4 == 0 else 2 if outputs % 2 == 0 else 1
    threads = 512 // vector
    columns, rows = min(threads, _power_of_two(outputs // vector)), min(threads, _power_of_two(inputs))
    width = min(columns, 32)
    height = min(rows, threads // width)
    width = min(columns, threads // height)
    if inputs < height * 16 and inputs < _MOST_VALUES:
        return 0
    values = -(-inputs // height)
    grid = -(-(outputs // vector) // width)
    target = device.multiprocessors * (device.threads_per_multiprocessor // (width * height))
    if values < _MOST_VALUES or grid > target:
        return 0
    split = max(min(-(-target // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    return 4 * outputs * split * width * vector if split > 1 else 0


def _reduces_fastest(source: torch.Tensor, dims: Any) -> bool:
    if not dims:
        return True
    reduced = {d % source.dim() for d in dims}
    moving = [d for d in range(source.dim()) if source.shape[d] > 1]
    if not moving or prod(source.shape[d] for d in reduced) == 1:
        return True
    return min(moving, key=source.stride) in reduced


def _power_of_two(number: int) -> int:
    return 1 << max(number.bit_length() - 1, 0)


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
