"""Ollama's messages: what its server refuses before it loads, and what its runner dies of.

Texts: ollama llm/server.go ("model requires more system memory"), llm/status.go (the runner's last line).
"""

import re

from vramcast.reading.engine_messages import Figure, Finding, Signature, size

_SIZE = r"([\d.]{1,12}) (GiB|MiB|GB|MB)"


def _host(found: re.Match[str]) -> Finding:
    wanted, free = size(found[1], found[2]), size(found[3], found[4])
    return Finding(
        engine="ollama",
        moment="before loading",
        what="the part of the model that no GPU holds does not fit the host's memory",
        figures=(
            Figure("wanted of the host", wanted, "bytes"),
            Figure("available", free, "bytes"),
            Figure("short of", wanted - free, "bytes"),
        ),
        advice=(
            "a smaller model, or the same one in fewer bits (the tag's -q4_K_M, -q3_K_M)",
            "a smaller num_ctx: the cache is counted too",
            "closing what else holds memory, or adding swap",
        ),
    )


def _runner(found: re.Match[str]) -> Finding:
    del found
    return Finding(
        engine="ollama",
        moment="loading",
        what="the runner asked the GPU for more than was free: Ollama's estimate was too low, or another program came first",
        advice=(
            "num_gpu N: fewer layers on the GPU",
            "a smaller num_ctx, or OLLAMA_KV_CACHE_TYPE=q8_0 with OLLAMA_FLASH_ATTENTION=1",
            "OLLAMA_NUM_PARALLEL=1: each parallel request has a cache of its own",
        ),
    )


SIGNATURES = (
    Signature(
        re.compile(rf"model requires more system memory \({_SIZE}\) than is available \({_SIZE}\)"),
        _host,
    ),
    Signature(re.compile(r"llama runner process has terminated:.{0,200}?(?:cudaMalloc failed|out of memory)"), _runner),
)
