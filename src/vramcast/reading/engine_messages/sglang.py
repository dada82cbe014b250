"""SGLang's messages: the same flag is raised for one failure and lowered for the other, so the moment decides.

Texts: sglang/srt/model_executor/model_runner.py, managers/schedule_batch.py and the CUDA graph runner.
"""

import re
from collections.abc import Callable

from vramcast.reading.engine_messages import Figure, Finding, Signature, size


def _raise_it(found: re.Match[str]) -> Finding:
    share = found[1] if found.lastindex else None
    said = f" at {share}" if share else ""
    return Finding(
        engine="sglang",
        moment="sizing the cache, after the weights were loaded",
        what=f"--mem-fraction-static{said} covers weights and cache together, and the weights alone take it",
        advice=(
            "raise --mem-fraction-static: what is outside it only has to hold activations and graphs",
            "weights in fewer bits, or more cards with --tp",
            "if a raised one fails later, at a long prompt or while graphs are captured, no value works: take the line above",
        ),
    )


def _lower_it(moment: str, *more: str) -> Callable[[re.Match[str]], Finding]:
    def understand(found: re.Match[str]) -> Finding:
        wanted = size(found[1], found[2]) if found.lastindex and found[1] else 0
        return Finding(
            engine="sglang",
            moment=moment,
            what="activations or graphs find no room beside weights and cache",
            figures=(Figure("one request for", wanted, "bytes"),) if wanted else (),
            advice=("lower --mem-fraction-static by 0.02 to 0.05: the cache leaves more room", *more),
        )

    return understand


_OOM = r"(?:CUDA out of memory\. Tried to allocate ([\d.]+) (MiB|GiB))?"
SIGNATURES = (
    Signature(re.compile(r"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=([\d.]+)"), _raise_it),
    Signature(re.compile(r"Not enough memory[.;][^.]{0,40}increase --mem-fraction-static"), _raise_it),
    Signature(
        re.compile(rf"Capture cuda graph failed:? ?{_OOM}"),
        _lower_it("capturing CUDA graphs, after the cache was claimed", "--cuda-graph-max-bs smaller, or --disable-cuda-graph"),
    ),
    Signature(
        re.compile(r"(?:Prefill|Decode) out of memory"),
        _lower_it(
            "serving requests", "a smaller --chunked-prefill-size or --max-prefill-tokens", "a smaller --max-running-requests"
        ),
    ),
)
