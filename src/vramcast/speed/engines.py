"""What each engine adds to its kernels, by version: host time per step and sequence, ingestion, batching, what runs in a graph.

Rows of data, the newest that is not newer than the version holds. "Host" is the time of a step that the GPU waits for; engines
with an overlapping scheduler prepare the next step while the GPU runs, so that little of it is left. Sources stand in each row;
where several agree, the first is named.
"""

from math import inf

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.serving.engines.base import RUNS


class EngineSpeed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One engine from version ``since`` on.

    ``host_s``: exposed seconds of every step; ``sequence_s``: more for each sequence in it. ``ingest_s``: a request's way in
    (HTTP, tokeniser, queues); ``ingest_token_s``: more for each prompt token; ``front_s``: of it, what one request occupies the
    server's one front-end process (an event loop), in which requests that come together wait for each other; ``return_s``: from
    a last token to its client's next request. ``ahead``: steps that an overlapping scheduler delays a first token by.
    ``lookahead``: the next step is
    composed while one runs, so that a request waits for the one after it. ``mixes``: decodes and prompts share a step;
    otherwise prompts go first, alone. ``chunk_tokens``, ``max_seqs``: the scheduler's own defaults, where the memory side has
    none. ``kernels``: whose kernel rules hold; ``all_reduce``: whose in-graph all-reduce. ``prefill_launch_s``: gap between
    kernels of a step with a prompt, which runs outside a graph. ``pads``: decodes run in graphs captured for certain batch
    sizes. ``fuses_quantising``: norms and all-reduces before a product write its rows in 4 bits. ``spare_tokens``: of cache,
    that each running sequence may still take before a new prompt is let in; ``watermark``: share of the cache that stays free.
    ``launch_s``: host time of one kernel of a decode step outside a graph; ``captured_tokens``: the longest context in one.
    """

    engine: str
    since: tuple[int, ...] = ()
    host_s: float
    sequence_s: float
    ingest_s: float
    ingest_token_s: float = 1.5e-6
    front_s: float = 0.0
    return_s: float = 4e-3
    ahead: float = 0.0
    lookahead: bool = False
    mixes: bool = True
    chunk_tokens: int = 8192
    max_seqs: int = 256
    kernels: str = "vllm"
    all_reduce: str = "nccl"
    prefill_launch_s: float = 0.0
    runs_ahead: bool = False
    pads: bool = True
    fuses_quantising: bool = False
    spare_tokens: int = 32
    watermark: float = 0.0
    launch_s: float = 0.0
    captured_tokens: float = inf
    source: str = ""


_BLOG = "vLLM blog 2024-09-05; vllm-project/vllm RFC 6854: server and scheduling take more than half of a step of Llama-3-8B"
_TRACE = "requests of one H100 under vLLM 0.23 (Qwen3-14B, Poisson): host terms by subtraction of kernel laws"
_BLIS = "inference-sim: fitted request overhead 15.6 ms, 0.78 ms at the end"

# vLLM lets a prompt in when its own blocks are free: V0 keeps 1 % of all blocks (vllm/core/block_manager.py, watermark), V1
# none (vllm/v1/core/kv_cache_manager.py, allocate_slots; the scheduler config's watermark of 2026 is 0). SGLang keeps a share
# of the tokens to come (schedule_policy.py, PrefillAdder), TensorRT-LLM all of them; theirs is a plain allowance.

# One event loop takes requests in: with prompts of 12 tokens the first tokens of 32 and 128 clients come 2.3 to 4 ms later for
# each client that sends at once (vLLM 0.18 and TensorRT-LLM 0.20, waynehacking8/trtllm-triton-serving), their own client's
# share among it; half of that is the server's.
_FRONT_S = 2e-3

# Kernels launched from Python: Qwen2-0.5B and 1.5B under vLLM 0.4.2 take 9.2 to 10.8 ms a token beyond 8,192 tokens of context,
# whatever their format, which its graphs do not hold (vllm/config.py, max_seq_len_to_capture): 26 to 29 us for each kernel.
# Later V0 has the same limit, but rows of 0.6.3 show none; --enforce-eager launches every step so.
_LAUNCH_S = 27e-6

ROWS: tuple[EngineSpeed, ...] = (
    EngineSpeed(
        engine="vllm", host_s=2.5e-3, sequence_s=60e-6, ingest_s=20e-3, mixes=False, all_reduce="vllm",
        spare_tokens=0, watermark=0.01, launch_s=_LAUNCH_S, captured_tokens=8192, source=_BLOG,
    ),
    EngineSpeed(
        engine="vllm", since=(0, 6), host_s=1.5e-3, sequence_s=15e-6, ingest_s=20e-3, mixes=False, all_reduce="vllm",
        spare_tokens=0, watermark=0.01, launch_s=_LAUNCH_S,
        source="vllm-project/vllm issue 10634: 5 to 6 ms between steps at batch 256",
    ),
    EngineSpeed(
        engine="vllm", since=(0, 8), prefill_launch_s=8e-6, runs_ahead=True, host_s=0.7e-3, sequence_s=4e-6, ingest_s=16e-3,
        front_s=_FRONT_S, spare_tokens=0, launch_s=_LAUNCH_S, all_reduce="vllm", source=_BLIS,
    ),
    EngineSpeed(
        engine="vllm", since=(0, 14), prefill_launch_s=8e-6, runs_ahead=True, host_s=0.1e-3, sequence_s=3e-6, ingest_s=6e-3,
        front_s=_FRONT_S, lookahead=True, spare_tokens=0, launch_s=_LAUNCH_S, all_reduce="vllm",
        source=_TRACE,
    ),
    EngineSpeed(
        engine="sglang", host_s=2e-3, sequence_s=8e-6, ingest_s=20e-3, max_seqs=4096, mixes=False,
        kernels="sglang", all_reduce="sglang",
        source="before the overlap scheduler of 0.4",
    ),
    EngineSpeed(
        engine="sglang", since=(0, 4), host_s=0.3e-3, sequence_s=1e-6, ingest_s=12e-3, ahead=1.0, max_seqs=4096, mixes=False,
        kernels="sglang", all_reduce="sglang", prefill_launch_s=55e-6, front_s=_FRONT_S,
        source="LMSYS blog 2024-12-04: zero-overhead batch scheduler; prompts run eagerly",
    ),
    EngineSpeed(
        engine="sglang", since=(0, 5, 10), host_s=0.3e-3, sequence_s=1e-6, ingest_s=12e-3, ahead=1.0, max_seqs=4096, mixes=False,
        kernels="sglang", all_reduce="sglang", prefill_launch_s=12e-6, front_s=_FRONT_S,
        source="piecewise graphs of prompts are on by default",
    ),
    EngineSpeed(
        engine="tensorrt_llm", max_seqs=2048, host_s=0.25e-3, sequence_s=1e-6, ingest_s=8e-3, ahead=1.0, kernels="tensorrt_llm",
        front_s=_FRONT_S, all_reduce="trtllm", prefill_launch_s=15e-6, fuses_quantising=True,
        source="overlap scheduler, on by default in the PyTorch backend",
    ),
    EngineSpeed(
        engine="llama_cpp", host_s=0.2e-3, sequence_s=20e-6, ingest_s=2e-3, chunk_tokens=2048, max_seqs=64, pads=False,
        source="llama.cpp server: one thread, sampling on the CPU",
    ),
    EngineSpeed(
        engine="transformers", host_s=0.5e-3, sequence_s=0.0, ingest_s=2e-3, mixes=False, chunk_tokens=2**20, pads=False,
        source="transformers generate(): static batches, no server",
    ),
)  # fmt: skip


def engine_speed(engine: str, version: tuple[int, ...]) -> EngineSpeed:
    """The row of that engine, or of the one whose kernels it runs, and version. Raises UnmodelledError without rows."""
    found = [row for row in ROWS if row.engine == RUNS.get(engine, engine) and row.since <= version]
    if not found:
        raise UnmodelledError(f"no rules say how fast {engine} is: known are {', '.join(sorted({r.engine for r in ROWS}))}")
    return found[-1]
