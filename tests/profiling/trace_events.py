"""Small traces with answers that can be worked out by hand."""

import json

from vramcast.profiling.events import Trace
from vramcast.profiling.readers.chrome import read_chrome

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, 3>(int)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)"


def kernel(name: str, ts: float, dur: float, *, correlation: int = 0, stream: int = 7, device: int = 0, **args) -> dict:
    told = {"device": device, "stream": stream, "correlation": correlation, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream, "ts": ts, "dur": dur, "args": told}


def copy(name: str, ts: float, dur: float, *, correlation: int = 0, size: int = 0, stream: int = 20) -> dict:
    return {**kernel(name, ts, dur, correlation=correlation, stream=stream, bytes=size), "cat": "gpu_memcpy"}


def call(ts: float, dur: float, correlation: int, name: str = "cudaLaunchKernel", tid: int = 1) -> dict:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def annotation(name: str, ts: float, dur: float, cat: str = "user_annotation", tid: int = 1, **args) -> dict:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def document(events: list[dict], **header) -> dict:
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}],
        **header,
        "traceEvents": events,
        "traceName": "made by hand",
    }


def read_events(events: list[dict], **header) -> Trace:
    return read_chrome(iter([json.dumps(document(events, **header)).encode()]))


# 100 us: compute 0-10 and 40-50 (launched late) and 60-70 (launched early, behind it), communication 5-25, a copy 50-55.
HAND = [
    kernel(GEMM, 0, 10, correlation=1),
    kernel(REDUCE, 5, 20, correlation=2, stream=9),
    kernel(ADD, 40, 10, correlation=3),
    copy("Memcpy HtoD (Pinned -> Device)", 48, 7, correlation=4, size=14_000),
    kernel(ADD, 60, 40, correlation=5),
    call(-9, 4, 1),
    call(-4, 4, 2),
    call(33, 4, 3),
    call(38, 4, 4, "cudaMemcpyAsync"),
    call(43, 4, 5),
]
