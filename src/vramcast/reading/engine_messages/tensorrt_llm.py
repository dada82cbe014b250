"""TensorRT-LLM's lines on its paged cache: what was allocated, for how many tokens, and so what a token costs.

Texts: cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp, by release.
"""

import re

from vramcast.reading.engine_messages import Figure, Finding, Signature, count, size


def _cache(held: int, tokens: int) -> Finding:
    return Finding(
        engine="tensorrt_llm",
        moment="allocating the paged cache",
        what="the cache was sized from the free memory that was left",
        figures=(
            Figure("cache", held, "bytes"),
            Figure("tokens of cache", tokens, "tokens"),
            Figure("per token", held / tokens, "bytes"),
        ),
        failed=False,
    )


SIGNATURES = (
    Signature(
        re.compile(r"Allocated ([\d.]+) (GiB|MiB|GB|MB) for max tokens in paged KV cache \((\d+)\)"),
        lambda found: _cache(size(found[1], found[2]), count(found[3])),
    ),
    Signature(
        re.compile(r"Allocate (\d+) bytes for k/v cache\. ?\.? ?(?:\[[^]]*\] ?)*Using (\d+) tokens"),
        lambda found: _cache(count(found[1]), count(found[2])),
    ),
)
