"""What a measured kernel's time holds of the benchmark that timed it, and a server's step does not.

The tables' benchmark captures a few calls in one CUDA graph and times a few replays of it between two events
(ai-dynamo/aiconfigurator@095f58a, collector/helper.py benchmark_with_power): the first replay starts only when its launch has
reached the card, and each replay is a launch of its own. A server captures its whole step in one graph, so neither is there.
Laws are fitted to the tables as they are; a step takes this off the launch.
"""

from msgspec.structs import replace

from vramcast.speed.kernels.law import Estimate

# From the first event to the first kernel: FlashAttention 3 of one shape takes 2.7 us more timed over 6 replays (vLLM's table)
# than over 20 (SGLang's), on H100 and on B200 2.1: about 20 us spread over the replays.
START_S = 20e-6
# From one replay to the next: causal_conv1d_update, the same Triton kernel, takes 1.2 to 2.8 us more captured alone
# (TensorRT-LLM's table) than ten at a time (SGLang's, vLLM's), on five cards.
REPLAY_S = 1.5e-6
# What is left of a launch at least: from one kernel to the next inside a graph.
LEAST_S = 1e-6
# (engine, operator): replays timed together, calls captured in each (the collectors of each engine, same commit). Experts under
# a power law are timed once, five draws in the graph.
TIMED = {
    ("vllm", "gemm"): (6, 6), ("sglang", "gemm"): (6, 6), ("trtllm", "gemm"): (6, 5),
    ("vllm", "moe"): (1, 5), ("trtllm", "moe"): (1, 5),
    **{("vllm", name): (6, 1) for name in ("decode_attention", "prefill_attention")},
    **{("trtllm", name): (6, 1) for name in ("decode_attention", "prefill_attention", "mla_decode", "mla_prefill")},
    **{("sglang", name): (20, 1) for name in ("decode_attention", "prefill_attention", "mla_decode", "mla_prefill")},
    **{("trtllm", name): (6, 1) for name in ("recurrent_decode", "recurrent_prefill")},
}  # fmt: skip
# Products that vLLM's collector captures one at a time.
ALONE = ("fp8_block", "nvfp4")


# aiter's tables are of the best of hundreds of kernels for each shape; a server has these for the shapes that its release knows
# and takes a default elsewhere (aiter/ops/gemm_op_a8w8.py: "not found tuned config"). Models of 8-bit blocks on an MI300X
# take twice the forecast under SGLang, at one client and at a hundred. Products of 16 bits and of 8 with one scale wait for their
# compute part alone half as long again: at one client they take the forecast, at 32 to 128 more (truth/speed, 13 sources).
_TUNED, UNTUNED, UNTUNED_COMPUTE = "aiter", 2.0, 1.5


def overhead_s(operator: str, backend: str, precision: str) -> float:
    """Seconds of one measured call that are its benchmark's; 0 where a table was timed otherwise (profilers, other tools)."""
    engine = "trtllm" if backend == "trtllm" else "vllm" if backend == "cutedsl" else backend.partition("/")[0]
    replays, calls = TIMED.get((engine, operator), (0, 0))
    if not replays:
        return 0.0
    if operator == "gemm" and engine == "vllm" and precision in ALONE:
        calls = 1
    return (START_S / replays + REPLAY_S) / calls


def in_step(found: Estimate, *, asked: str = "") -> Estimate:
    """The estimate as one kernel of a server's step: its launch without the benchmark's share.

    ``asked``: the back end that the engine takes, where the law of another may stand for it; empty for the law's own.
    """
    law = found.chosen.law
    if law.backend == _TUNED and law.precision == "fp8_block":
        parts = {name: value * UNTUNED for name, value in found.parts.items()}
        return replace(found, seconds=found.seconds * UNTUNED, parts=parts)
    if (asked or law.backend) == law.backend == _TUNED and law.operator == "gemm":
        more = (UNTUNED_COMPUTE - 1) * found.parts["compute"]
        return replace(found, seconds=found.seconds + more, parts={**found.parts, "compute": found.parts["compute"] + more})
    launch = found.parts.get("launch", 0.0)
    saved = min(overhead_s(law.operator, law.backend, law.precision), max(0.0, float(launch) - LEAST_S))
    if saved <= 0:
        return found
    return replace(found, seconds=found.seconds - saved, parts={**found.parts, "launch": launch - saved})
