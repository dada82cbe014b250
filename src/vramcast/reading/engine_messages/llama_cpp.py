"""llama.cpp's messages: a failed cudaMalloc, and the line after it that says whether it was weights, cache or compute buffer.

Texts: ggml/src/ggml-cuda/ggml-cuda.cu, ggml-alloc.c, src/llama-model.cpp, llama-kv-cache.cpp and llama-context.cpp.
"""

import re

from vramcast.reading.engine_messages import Figure, Finding, Signature, size

_WEIGHTS = (
    "a smaller -ngl: fewer layers on the card",
    "for a mixture of experts --n-cpu-moe N: the experts of N layers in host memory",
    "a smaller quantisation of the file",
)
_CACHE = ("a smaller -c", "-ctk q8_0 -ctv q8_0 with -fa: half the cache", "fewer --parallel slots")
_COMPUTE = (
    "a smaller -ub: the compute buffer grows with the micro-batch",
    "-fa on: scores are not written out",
    "over several cards a build with GGML_SCHED_MAX_COPIES=1: pipelining keeps four copies of the inputs",
)


_BUFFERS = (
    (re.compile(r"unable to allocate \S+ buffer"), "model buffer", "loading weights", _WEIGHTS),
    (re.compile(r"failed to allocate buffer for (?:kv|recurrent|rs) cache"), "KV buffer", "making the cache", _CACHE),
    (re.compile(r"failed to allocate compute (?:pp |tg )?buffers"), "compute buffer", "reserving the graph", _COMPUTE),
)
_UNTOLD = ("buffer", "starting; the lines after this one would say for which buffer", (_WEIGHTS[0], _CACHE[0], _COMPUTE[0]))
_NEAR = 600  # characters after the failure in which the caller's own line follows


def _failed(found: re.Match[str]) -> Finding:
    wanted, device = size(found[1], "MiB"), found[2]
    after = found.string[found.end() : found.end() + _NEAR]
    told = ((kind, moment, advice) for line, kind, moment, advice in _BUFFERS if line.search(after))
    kind, moment, advice = next(told, _UNTOLD)
    return Finding(
        engine="llama.cpp",
        moment=moment,
        what=f"the {kind} does not fit on device {device}",
        figures=(Figure(kind, wanted, "bytes"),),
        advice=advice,
    )


SIGNATURES = (Signature(re.compile(r"allocating ([\d.]+) MiB on device (\d+): cudaMalloc failed: out of memory"), _failed),)
