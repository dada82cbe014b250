"""Measured figures of an inference row beside the same figures of an answer."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from vramcast.ledger import RankMemory
from vramcast.serving.engines.base import Answer
from vramcast.serving.engines.vllm.engine import printed_peak
from vramcast.truth.bars import error_scale_of, overhead_bytes
from vramcast.truth.judgement import Pair
from vramcast.truth.scales import graphs_scale
from vramcast.units import GiB, MiB

Row = dict[str, Any]

# pages whose peak leaves the prefill out: from 1 to 30,720 prompt tokens it grows by the cache alone, to 0.1 %, in nine models
_WITHOUT_PREFILL = ("getting_started/speed_benchmark.md",)
# the figure of a row: its key, its unit in bytes, and half of its last printed digit
_UNITS = {"_gib": GiB, "_mib": MiB, "_gb": GiB, "_mb": MiB}


def pairs(row: Row, answer: Answer) -> tuple[Pair, ...]:
    """Every figure of the row that can be scored; ``usable_for`` says which."""
    usable = set(row["usable_for"])
    found = [pair for need, read in _READERS if need in usable for pair in read(row, answer)]
    return tuple(pair for pair in found if pair.measured)


def _weights(row: Row, answer: Answer) -> Iterator[Pair]:
    measured = row["measured"]
    if "weights_gib" in measured:
        yield _pair("weights", _term(answer.ranks[0], "weights"), measured, "weights_gib")


def _pool(row: Row, answer: Answer) -> Iterator[Pair]:
    """The pool, which errs by bytes: it is what weights and overhead leave of the card."""
    scale = error_scale_of(answer, answer.ranks[0])
    yield from (msgspec.structs.replace(pair, scale=scale) for pair in _pool_bytes(row, answer))


def _pool_bytes(row: Row, answer: Answer) -> Iterator[Pair]:
    """The pool in bytes: printed, or the printed blocks or tokens times what each takes."""
    measured, cache = row["measured"], answer.cache
    if answer.resolved.card is None:
        return
    if len(answer.ranks) > 1 and "gpu_blocks" in measured and cache.blocks:
        yield _counted(cache.pool_bytes, cache.blocks, measured["gpu_blocks"])
    elif measured.get("kv_cache_gib", 0) > 0:
        yield _pair("kv_pool", cache.pool_bytes, measured, "kv_cache_gib")
    elif "gpu_blocks" in measured and cache.blocks:
        yield _counted(cache.pool_bytes, cache.blocks, measured["gpu_blocks"])
    elif "kv_tokens" in measured:
        yield _counted(cache.pool_bytes, cache.tokens, measured["kv_tokens"])


def _counted(pool_bytes: int, forecast: int, printed: float) -> Pair:
    """A pool told in blocks or tokens, in bytes of the forecast's blocks or tokens."""
    each = pool_bytes / forecast if forecast else 0
    return Pair(measure="kv_pool", predicted=pool_bytes, measured=printed * each, slack=0.5 * each)


def _overhead(row: Row, answer: Answer) -> Iterator[Pair]:
    """What a pool engine uses besides weights and cache: forecast, and with what the printed pool is smaller or larger.

    This is the part of what a run needs that can be wrong: the cache it asks for follows exactly, the weights nearly so.
    """
    for pool in _pool(row, answer):
        forecast = overhead_bytes(answer, answer.ranks[0])
        measured = forecast + pool.predicted - pool.measured
        if pool.predicted > 0 and forecast > 0 and measured > 0:
            yield Pair(measure="overhead", predicted=forecast, measured=measured, slack=pool.slack, scale=pool.scale)


def _per_token(row: Row, answer: Answer) -> Iterator[Pair]:
    """Bytes per token of full-length layers, where tokens mean the same for every layer."""
    measured, cache = row["measured"], answer.cache
    tokens = measured.get("kv_tokens")
    if tokens and measured.get("kv_cache_gib", 0) > 0 and len(cache.groups) <= 1 and not cache.state_bytes:
        yield Pair(
            measure="kv_per_token",
            predicted=cache.bytes_per_token,
            measured=measured["kv_cache_gib"] * GiB / tokens,
            slack=0.005 * GiB / tokens,
        )


def _activation(row: Row, answer: Answer) -> Iterator[Pair]:
    measured = row["measured"]
    if "activation_peak_gib" in measured:
        rank = answer.ranks[0]
        peak = max(_term(rank, "activations"), _term(rank, "logits"))
        printed = printed_peak(answer.resolved, peak) if row["engine"] == "vllm" else peak
        yield _pair("activation", printed, measured, "activation_peak_gib")


def _non_torch(row: Row, answer: Answer) -> Iterator[Pair]:
    measured = row["measured"]
    if "non_torch_gib" in measured:
        yield _pair("non_torch", _term(answer.ranks[0], "communication"), measured, "non_torch_gib")


def _graphs(row: Row, answer: Answer) -> Iterator[Pair]:
    measured = row["measured"]
    if measured.get("cuda_graph_gib", 0) > 0:
        predicted = _term(answer.ranks[0], "graphs")
        pair = _pair("graphs", predicted, measured, "cuda_graph_gib")
        yield msgspec.structs.replace(pair, scale=graphs_scale(predicted))


def _state(row: Row, answer: Answer) -> Iterator[Pair]:
    measured = row["measured"]
    if "mamba_ssm_gib" in measured and measured.get("mamba_slots"):
        slots = measured["mamba_slots"] + (row["engine"] == "sglang")  # one more than it prints, for padding
        size = (measured["mamba_ssm_gib"] + measured.get("mamba_conv_gib", 0)) * GiB / slots
        yield Pair(measure="state", predicted=answer.cache.state_bytes, measured=size, slack=0.01 * GiB / slots)


def _total(row: Row, answer: Answer) -> Iterator[Pair]:
    """Peaks of whole processes: what torch allocated, or what the device showed."""
    measured = row["measured"]
    for key in ("torch_peak_alloc_gib", "torch_peak_alloc_mib", "torch_peak_alloc_mb"):
        if key in measured:
            yield _pair("allocated", _allocated(row, answer), measured, key)
    if "peak_gpu_gb" in measured:
        yield _pair("reserved", max(r.reserved_bytes for r in answer.ranks), measured, "peak_gpu_gb")
    if "gpu_used_gb" in measured:
        cards = [rank.device_bytes for rank in answer.ranks]
        yield _pair("device", max(cards) if _largest_card(row) else sum(cards), measured, "gpu_used_gb")
    for key in ("process_peak_mib", "process_used_mib"):
        if key in measured:
            yield _pair("device", max(r.device_bytes for r in answer.ranks), measured, key)


def _largest_card(row: Row) -> bool:
    return any("largest" in str(row["settings"].get(name)) for name in ("multi_gpu", "split"))


def _allocated(row: Row, answer: Answer) -> int:
    """Torch's peak over all cards; of the last decoded token where a source's counter leaves the prefill out."""
    if any(page in row["source"] for page in _WITHOUT_PREFILL):
        return sum(_instant(rank, "decode") for rank in answer.ranks)
    return sum(rank.allocated_bytes for rank in answer.ranks)


def _instant(rank: RankMemory, name: str) -> int:
    return next(i.without("context") for i in rank.instants if i.name == name)


def _pair(measure: str, predicted: float, measured: Row, key: str) -> Pair:
    unit = next(size for suffix, size in _UNITS.items() if key.endswith(suffix))
    return Pair(measure=measure, predicted=predicted, measured=measured[key] * unit, slack=_half_digit(measured[key]) * unit)


def _half_digit(value: float) -> float:
    decimals = len(str(value).partition(".")[2]) if isinstance(value, float) else 0
    return float(0.5 * 10**-decimals)


def _term(rank: RankMemory, name: str) -> int:
    return max((term.bytes for instant in rank.instants for term in instant.terms if term.name == name), default=0)


_READERS: tuple[tuple[str, Callable[[Row, Answer], Iterator[Pair]]], ...] = (
    ("weights", _weights), ("kv_pool", _pool), ("kv_pool", _overhead), ("kv_per_token", _per_token), ("activation", _activation),
    ("non_torch", _non_torch), ("cuda_graph", _graphs), ("recurrent_state", _state), ("total", _total),
)  # fmt: skip
