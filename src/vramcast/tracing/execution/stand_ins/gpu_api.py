"""torch.cuda as a program would find it on a machine with the traced card: present, one or several of them, empty.

Streams are real values: what is allocated while a stream is current goes to that stream's pools.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.cuda.nccl
import torch.distributed

from vramcast.hardware.runtime import workspace_of_capability
from vramcast.tracing.execution.recorder import Recorder
from vramcast.tracing.execution.stand_ins import memory_counters, typed_tensors
from vramcast.tracing.policies import DeviceModel

CUDA_VERSION = "13.0"
NCCL_VERSION = (2, 28, 9)
POOL = (0, 1)


class Event:
    """A CUDA event of which nobody ever has to wait for anything."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        """Nothing happens at a time."""

    wait = synchronize = record

    def query(self) -> bool:
        """Always done."""
        return True

    def elapsed_time(self, _: Any) -> float:
        """One millisecond; a trace has no time."""
        return 1.0


class Stream:
    """A CUDA stream: a number, under which allocations are recorded while it is current."""

    made = 0
    current: "Stream"

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.stream_id = self.cuda_stream = Stream.made
        Stream.made += 1
        self.device = torch.device("cuda", 0)
        self.device_index, self.device_type, self.priority = 0, 1, priority
        del device

    def record_event(self, event: Event | None = None) -> Event:
        """See torch.cuda.Stream."""
        return event or Event()

    def wait_event(self, _: Any) -> None:
        """See torch.cuda.Stream."""

    wait_stream = wait_event

    def synchronize(self) -> None:
        """See torch.cuda.Stream."""

    def query(self) -> bool:
        """See torch.cuda.Stream."""
        return True

    is_capturing = staticmethod(lambda: False)

    def __enter__(self) -> "Stream":
        self._before = Stream.current
        Stream.current = self
        return self

    def __exit__(self, *_: Any) -> None:
        Stream.current = self._before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return self.stream_id


class Graph:
    """A CUDA graph: what is captured runs as it stands, in the pools of its stream; a replay allocates nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """See torch.cuda.CUDAGraph."""

    capture_end = replay = reset = enable_debug_mode = capture_begin

    def pool(self) -> tuple[int, int]:
        """See torch.cuda.CUDAGraph."""
        return POOL


class _StreamContext:
    """``with torch.cuda.stream(s):`` for a stream or None."""

    recorder: Recorder

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self._before = Stream.current
        _set_stream(self.stream or self._before)

    def __exit__(self, *_: Any) -> None:
        _set_stream(self._before)


def _set_stream(stream: Stream) -> None:
    Stream.current = stream
    _StreamContext.recorder.stream = stream.stream_id


def install(device: DeviceModel, recorder: Recorder) -> None:
    """Replace the parts of torch.cuda and torch.accelerator that would ask a driver."""
    _StreamContext.recorder = recorder
    Stream.made = 0
    Stream.current = Stream()
    everywhere = _answers(device) | _functions(recorder)
    _put(torch.cuda, everywhere)
    for module in (torch.cuda.memory, torch.cuda.random):  # the same names, held by modules of their own
        _put(module, {name: function for name, function in everywhere.items() if hasattr(module, name)})
    _put(torch.accelerator, _accelerator(device, recorder))
    _as_built_with_cuda(device)
    memory_counters.install(recorder)
    typed_tensors.install()
    _profiling()


def _answers(device: DeviceModel) -> dict[str, Callable[..., Any]]:
    """What torch.cuda's questions are answered with, whatever stands in their brackets."""
    constants: dict[str, Any] = {
        "is_available": True, "device_count": device.count, "current_device": 0, "set_device": None, "synchronize": None,
        "get_device_capability": device.capability, "get_device_name": device.name, "ipc_collect": None,
        "is_bf16_supported": True, "is_initialized": True, "init": None, "_lazy_init": None, "manual_seed": None,
        "manual_seed_all": None, "is_current_stream_capturing": False, "get_rng_state_all": [], "set_rng_state": None,
        "set_rng_state_all": None, "can_device_access_peer": True, "utilization": 0, "memory_usage": 0, "temperature": 40,
        "power_draw": 0, "clock_rate": 0, "device_memory_used": 0, "list_gpu_processes": "no processes are running",
        "get_arch_list": [f"sm_{device.capability[0]}{device.capability[1]}"], "get_gencode_flags": "", "get_sync_debug_mode": 0,
        "set_sync_debug_mode": None, "initial_seed": 0, "is_tf32_supported": device.capability >= (8, 0), "_sleep": None,
        "cudart": _Runtime(), "current_solver_handle": 0, "reset_accumulated_host_memory_stats": None,
        "reset_peak_host_memory_stats": None, "host_memory_stats": {},
        "host_memory_stats_as_nested_dict": {}, "caching_allocator_enable": None,
        "mem_get_info": (device.memory_bytes, device.memory_bytes), "seed": None, "seed_all": None,
        "graph_pool_handle": POOL, "get_device_properties": _properties(device), "current_blas_handle": 0,
        "_exchange_device": 0, "_maybe_exchange_device": 0,
    }  # fmt: skip
    return {name: _always(value) for name, value in constants.items()}


def _functions(recorder: Recorder) -> dict[str, Any]:
    """What of torch.cuda does something: streams, graphs, the cache."""
    default = Stream.current
    return {
        "current_stream": lambda *_, **__: Stream.current, "default_stream": lambda *_, **__: default,
        "Stream": Stream, "Event": Event,
        "CUDAGraph": Graph,
        "_compile_kernel": _Kernel,
        "stream": _StreamContext, "StreamContext": _StreamContext, "set_stream": _set_stream,
        "empty_cache": recorder.empty_cache,
        "get_rng_state": lambda *_, **__: torch.zeros(16, dtype=torch.uint8),  # Philox: seed and offset
    }  # fmt: skip


def _accelerator(device: DeviceModel, recorder: Recorder) -> dict[str, Any]:
    """The same questions under torch.accelerator's names."""
    return {
        "is_available": _always(True), "device_count": _always(device.count), "current_device_index": _always(0),
        "set_device_index": _always(None), "synchronize": _always(None), "empty_cache": recorder.empty_cache,
        "current_stream": lambda *_, **__: Stream.current, "set_stream": _set_stream,
        "get_device_capability": _always(device.capability), "empty_host_cache": _always(None),
        "get_memory_info": _always((device.memory_bytes, device.memory_bytes)),
    }  # fmt: skip


def _as_built_with_cuda(device: DeviceModel) -> None:
    """What only a build of PyTorch for CUDA holds, and what libraries ask to learn which build this is."""
    torch.cuda.amp.common.amp_definitely_not_available = _always(False)
    torch.distributed.is_nccl_available = torch.distributed.distributed_c10d.is_nccl_available = _always(True)
    torch.cuda.nccl.version = _always(NCCL_VERSION)
    torch.Tensor.record_stream = _always(None)  # the counter of allocated bytes falls at the free, whoever still reads
    torch.version.cuda = torch.version.cuda or CUDA_VERSION
    torch._C._cuda_getCurrentRawStream = lambda *_: Stream.current.stream_id
    torch._C._host_emptyCache = _always(None)
    torch._C._show_config = _always(f"PyTorch built with:\n  - CUDA Runtime {torch.version.cuda}\n")
    for name in ("_cuda_getCublasWorkspaceSize", "_cuda_getCublasLtWorkspaceSize"):
        setattr(torch._C, name, _always(workspace_of_capability(device.capability)))
    torch.Generator = _Generator


class _Kernel:
    """``torch.cuda._compile_kernel``: a kernel fills what its caller made, as Triton's do; launched, it does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> None:
        """A launch."""

    def __getattr__(self, name: str) -> Any:
        return _always(None)


class _Runtime:
    """``torch.cuda.cudart()``: every call of the runtime succeeds and does nothing."""

    def __getattr__(self, name: str) -> Any:
        return _always((0, 0) if name == "cudaMemGetInfo" else 0)


class _Generator(torch._C.Generator):  # type: ignore[misc]
    """A random generator on the card is one of the host: nothing that it makes has a value."""

    def __new__(cls, device: Any = None) -> "_Generator":
        del device
        return super().__new__(cls, device="cpu")  # type: ignore[no-any-return]


def _profiling() -> None:
    """Ranges and marks for profilers lead nowhere."""
    import torch.cuda.nvtx
    import torch.cuda.profiler

    _put(torch.cuda.nvtx, {n: _always(0) for n in ("range_push", "range_pop", "range_start", "range_end", "mark")})
    _put(torch.cuda.profiler, {n: _always(None) for n in ("start", "stop", "init")})


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _put(module: Any, replacements: dict[str, Any]) -> None:
    for name, value in replacements.items():
        setattr(module, name, value)


def _properties(device: DeviceModel) -> SimpleNamespace:
    return SimpleNamespace(
        name=device.name,
        major=device.capability[0],
        minor=device.capability[1],
        total_memory=device.memory_bytes,
        multi_processor_count=device.multiprocessors,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_multiprocessor=164 * 1024,
        max_threads_per_multi_processor=device.threads_per_multiprocessor,
        warp_size=32,
        regs_per_multiprocessor=65536,
        shared_memory_per_block_optin=166912,
        L2_cache_size=40 * 2**20,
        gcnArchName="",
        is_integrated=False,
        uuid="0",
    )
