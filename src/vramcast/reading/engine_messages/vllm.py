"""vLLM's messages about its cache: V0's counts of tokens, V1's sizes, the check of free memory before it starts.

Texts: vllm/worker/worker.py (V0), vllm/v1/core/kv_cache_utils.py, vllm/v1/worker/gpu_worker.py and gpu_model_runner.py.
"""

import math
import re

from vramcast.reading.engine_messages import Figure, Finding, Signature, count, size
from vramcast.units import gib

_SIZING = "sizing the cache, after the weights and the profile run"
_LINEAR = "where every layer attends to the whole sequence"
_LESS = (
    "--kv-cache-dtype fp8: half the cache for a small loss of quality",
    "--tp over more cards: weights and cache are divided",
)


def _tokens(found: re.Match[str]) -> Finding:
    asked, held = count(found[1]), count(found[2])
    return Finding(
        engine="vllm",
        moment=_SIZING,
        what=f"a sequence of {asked:,} tokens was promised and the cache holds {held:,}",
        figures=(Figure("asked for", asked, "tokens"), Figure("the cache holds", held, "tokens")),
        advice=(f"--max-model-len {held}: longer requests are refused", "a larger --gpu-memory-utilization", *_LESS),
    )


def _needed(found: re.Match[str]) -> Finding:
    asked, needed, held = count(found[1]), size(found[2], "GiB"), size(found[3], "GiB")
    each = needed / asked
    fits = count(found[4]) if found[4] else int(held / each) // 16 * 16
    source = "vLLM's own estimate" if found[4] else _LINEAR
    return Finding(
        engine="vllm",
        moment=_SIZING,
        what=f"one sequence of {asked:,} tokens needs more cache than there is",
        figures=(
            Figure("cache needed", needed, "bytes"),
            Figure("cache available", held, "bytes"),
            Figure("short of", needed - held, "bytes"),
            Figure(f"per token, {_LINEAR}", each, "bytes"),
            Figure(f"longest sequence that fits ({source})", fits, "tokens"),
        ),
        advice=_remedies(needed, held, fits),
    )


def _remedies(needed: int, held: int, fits: int) -> tuple[str, ...]:
    """What to change, each with whether it is enough by the message's own numbers."""
    halved = "enough" if needed / 2 <= held else "not enough alone"
    cards = next((n for n in (2, 4, 8) if needed / n <= held), 16)
    return (
        f"--max-model-len {fits}: longer requests are refused",
        f"--kv-cache-dtype fp8: {gib(needed / 2)} instead of {gib(needed)}, {halved} for {gib(held)}; small loss of quality",
        f"a larger --gpu-memory-utilization: enough where {gib(needed - held)} more of the card are free",
        f"--tp {cards}: {gib(needed / cards)} of cache on each card, and fewer weights beside it",
    )


def _no_blocks(found: re.Match[str]) -> Finding:
    del found
    return Finding(
        engine="vllm",
        moment=_SIZING,
        what="the weights, the profile run and what others hold leave nothing for the cache",
        advice=(
            "a larger --gpu-memory-utilization, if the card is yours alone",
            "a smaller --max-num-batched-tokens and --max-num-seqs: the profile run takes less",
            "weights in fewer bits, or more cards with --tp",
            "vramcast serve MODEL --gpu CARD with the same flags: says which of these is enough",
        ),
    )


def _free(found: re.Match[str]) -> Finding:
    free, total, share, wanted = size(found[1], "GiB"), size(found[2], "GiB"), float(found[3]), size(found[4], "GiB")
    starts = math.floor(free / total * 100) / 100
    return Finding(
        engine="vllm",
        moment="starting, before anything is loaded",
        what=f"--gpu-memory-utilization {share:g} claims more than is free",
        figures=(
            Figure("free", free, "bytes"),
            Figure("of", total, "bytes"),
            Figure("claimed", wanted, "bytes"),
            Figure("held by others", total - free, "bytes"),
        ),
        advice=(
            "stop what else holds the card (nvidia-smi names it): a crashed engine often leaves its worker behind",
            f"--gpu-memory-utilization {starts:g}: the largest that starts beside it",
        ),
    )


def _profiling(found: re.Match[str]) -> Finding:
    before, after = size(found[1], "GiB"), size(found[2], "GiB")
    return Finding(
        engine="vllm",
        moment="measuring itself in the profile run",
        what="another process gave memory back while vLLM measured its own: the measurement is void",
        figures=(Figure("free before", before, "bytes"), Figure("free after", after, "bytes")),
        advice=("start again once the other process has ended", "start engines that share a card one after the other"),
    )


def _sampler(found: re.Match[str]) -> Finding:
    rows = count(found[1])
    return Finding(
        engine="vllm",
        moment="warming up the sampler, after the cache was claimed",
        what=f"the logits of {rows:,} sequences at once find no room beside the cache",
        figures=(Figure("sequences", rows),),
        advice=("a smaller --max-num-seqs", "a smaller --gpu-memory-utilization: the cache leaves more room"),
    )


def _available(found: re.Match[str]) -> Finding:
    held = size(found[1], "GiB")
    return Finding(
        engine="vllm",
        moment=_SIZING,
        what="nothing is left for the cache" if held <= 0 else "the cache was sized",
        figures=(Figure("cache available", held, "bytes"),),
        failed=held <= 0,
        advice=_no_blocks(found).advice if held <= 0 else (),
    )


def _line(moment: str, what: str, name: str, unit: str) -> Signature:
    pattern = re.compile(what)

    def understand(found: re.Match[str]) -> Finding:
        value = size(found[1], "GiB") if unit == "bytes" else count(found[1])
        return Finding(engine="vllm", moment=moment, what=name, figures=(Figure(name, value, unit),), failed=False)

    return Signature(pattern, understand)


_G = r"(-?[\d.]+)\s*(?:GiB)?"
SIGNATURES = (
    Signature(
        re.compile(r"max seq len \((\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((\d+)"),
        _tokens,
    ),
    Signature(
        re.compile(
            r"max seq len \((\d+)\),? \(?([\d.]+) GiB KV cache is needed, which is larger than the available KV cache memory "
            r"\(([\d.]+) GiB\)(?:\.[^.]*?estimated maximum model length is (\d+))?"
        ),
        _needed,
    ),
    Signature(re.compile(r"No available memory for the cache blocks"), _no_blocks),
    Signature(re.compile(rf"Free memory on device[^(]*\({_G}/{_G}\)[^(]*utilization \(([\d.]+), {_G}\)"), _free),
    Signature(re.compile(rf"Error in memory profiling\. Initial free memory:? {_G},? current free memory:? {_G}"), _profiling),
    Signature(re.compile(r"out of memory occurred when warming up sampler with (\d+) dummy requests"), _sampler),
    Signature(re.compile(r"Available KV cache memory: (-?[\d.]+) GiB"), _available),
    _line("loading", r"Model loading took ([\d.]+) GiB", "weights loaded", "bytes"),
    _line("after sizing the cache", r"GPU KV cache size: ([\d,]+) tokens", "tokens of cache", "tokens"),
)
