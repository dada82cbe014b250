"""What the catalogue needs from a card, read on the card: memory, context, workspace, bandwidths, matmul rates, NCCL's buffers.

Bandwidth works on buffers far larger than the L2 cache (a 4090 "reached" 3.9 TB/s inside its 72 MB); rates are the best of
several runs on large dense matrices.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from vramcast.units import GiB

_COPY_BYTES = 2 * GiB
_MATMUL = 8192
_CALLS, _ROUNDS = 4, 5
_FP8_SINCE = (8, 9)  # the first architecture with FP8 tensor cores is Ada
_DTYPES = ("float32", "float16", "bfloat16")

Clock = Callable[[], float]


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one card: bytes, bytes per second, FLOP/s; a figure that the card or the driver does not give is None or absent.

    ``matmul_flops`` by format: float32, tf32, float16, bfloat16, fp8. ``communicator_bytes``: NCCL's first and each further one
    over ``communicator_ranks`` cards. ``versions`` of the libraries that read them.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    l2_bytes: int
    visible_bytes: int
    driver_bytes: int | None
    context_bytes: int | None
    cublas_workspace_bytes: int
    copy_bytes_per_s: float
    to_device_bytes_per_s: float
    to_host_bytes_per_s: float
    matmul_flops: dict[str, float]
    communicator_bytes: tuple[int, int] | None
    communicator_ranks: int
    versions: dict[str, str]


def device_facts() -> DeviceFacts:
    """The facts of the first visible card. Raises MissingError without torch or CUDA."""
    from vramcast.measuring.run import need_device

    need_device("cuda")
    import torch

    return read_device_facts(torch)


def read_device_facts(torch: Any) -> DeviceFacts:
    """Read every fact of torch's first card; about ten seconds, and ten more where there are several cards."""
    from vramcast.measuring import communicators, counters, nvml

    watched = counters.Counters(torch, "cuda")
    torch.zeros(1, device="cuda")
    context = watched.peaks().get("context")
    properties = torch.cuda.get_device_properties(0)
    pair = communicators.measure_communicators(torch.cuda.device_count())
    rates = copy_rates(torch, watched.clock, min(_COPY_BYTES, properties.total_memory // 8))
    return DeviceFacts(
        name=properties.name,
        capability=(properties.major, properties.minor),
        multiprocessors=properties.multi_processor_count,
        l2_bytes=properties.L2_cache_size,
        visible_bytes=properties.total_memory,
        driver_bytes=nvml.total_bytes(0),
        context_bytes=None if context is None else int(context),
        cublas_workspace_bytes=workspace_bytes(torch),
        copy_bytes_per_s=rates["copy"],
        to_device_bytes_per_s=rates["to_device"],
        to_host_bytes_per_s=rates["to_host"],
        matmul_flops=matmul_rates(torch, watched.clock, (properties.major, properties.minor)),
        communicator_bytes=pair,
        communicator_ranks=torch.cuda.device_count() if pair else 1,
        versions=counters.library_versions("cuda"),
    )


def workspace_bytes(torch: Any) -> int:
    """What stays allocated once a matmul's tensors are gone: cuBLAS's workspace of this handle and stream."""
    before = torch.cuda.memory_allocated()
    product = torch.ones(256, 256, device="cuda") @ torch.ones(256, 256, device="cuda")
    del product
    torch.cuda.synchronize()
    return int(torch.cuda.memory_allocated() - before)


def copy_rates(torch: Any, clock: Clock, size: int) -> dict[str, float]:
    """Bytes per second: read and written by a copy on the card, and over the link from and to pinned host memory."""
    source = torch.empty(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    return {
        "copy": 2 * size / best_seconds(clock, lambda: target.copy_(source)),
        "to_device": size / best_seconds(clock, lambda: target.copy_(pinned, non_blocking=True)),
        "to_host": size / best_seconds(clock, lambda: pinned.copy_(source, non_blocking=True)),
    }


def matmul_rates(torch: Any, clock: Clock, capability: tuple[int, int]) -> dict[str, float]:
    """FLOP/s of a square matmul by format; fp8 where the card has it."""
    left = torch.randn(_MATMUL, _MATMUL, device="cuda")
    right = torch.randn(_MATMUL, _MATMUL, device="cuda")
    rates = {name: _matmul_rate(clock, left.to(getattr(torch, name)), right.to(getattr(torch, name))) for name in _DTYPES}
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    rates["tf32"] = _matmul_rate(clock, left, right)
    torch.backends.cuda.matmul.allow_tf32 = before
    if capability >= _FP8_SINCE:
        rates["fp8"] = _fp8_rate(torch, clock, left, right)
    return rates


def _matmul_rate(clock: Clock, left: Any, right: Any) -> float:
    return float(2 * _MATMUL**3 / best_seconds(clock, lambda: left @ right))


def _fp8_rate(torch: Any, clock: Clock, left: Any, right: Any) -> float:
    """Scaled matmul of E4M3 values, the right side column by column as the tensor cores want it."""
    one = torch.ones((), device="cuda")
    low, high = left.to(torch.float8_e4m3fn), right.to(torch.float8_e4m3fn).t()
    product = best_seconds(clock, lambda: torch._scaled_mm(low, high, scale_a=one, scale_b=one, out_dtype=torch.bfloat16))
    return float(2 * _MATMUL**3 / product)


def best_seconds(clock: Clock, run: Callable[[], Any]) -> float:
    """Seconds of one call, the best of several rounds of several calls; the first round only warms up."""
    best = float("inf")
    for attempt in range(1 + _ROUNDS):
        start = clock()
        for _ in range(_CALLS):
            run()
        spent = (clock() - start) / _CALLS
        best = min(best, spent) if attempt else best
    return best
