"""Engines without kernel tables: each operation is bytes over a share of the bandwidth, or FLOPs over a share of the peak.

One step is ``max(bytes / (bandwidth * share), FLOPs / (peak * share))`` summed over operations, plus what the host or the graph
walk costs by layer, module and expert (``stream_rows``). An eager engine's host runs beside the GPU: the longer of both counts.
A part of the model may lie in host memory and run on the CPU (llama.cpp).
"""

import functools
from collections.abc import Iterable
from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.models.layers import GatedDeltaNet
from vramcast.models.operations import Batch, Exchange, ExpertProducts, LatentScores, Linear, Operation, Recurrence, Scores
from vramcast.speed.kernels.law import Chosen, Estimate, Law, Spread
from vramcast.speed.kernels.machine import card_class, cycles_per_s, machine, readable_bytes_per_s, shifts_per_s
from vramcast.speed.stream_rows import ROWS, Stream

# Share of the host's rated bandwidth that ggml's CPU kernels read weights at: 53 % with 12 channels of DDR5-5600 and no GPU
# (DeepSeek-R1 Q8_0 at 7.17 tokens/s, xlab.tencent.com 2025-03-16), 63 % with two of DDR4-3200 (gpt-oss-20b at 20 tokens/s, all
# experts on the host, llama.cpp discussion 15396), 70 % with two of DDR5 (gpt-oss-120b at 25.6 on a 14900K).
_HOST_SHARE = 0.62
# A layer whose experts run on the host hands its rows over and back, between two GPU graphs: 36.7 tokens/s of Qwen3-30B-A3B with
# 36 layers' experts in four channels of DDR4 (AlexsJones/llmfit pull 755), and the three above.
_HANDED_S = 200e-6


class HostShares(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of the model lies in host memory: shares of the layers and of the routed experts, and the host's rated bandwidth."""

    layers: float = 0.0
    experts: float = 0.0
    host_bandwidth_bytes_per_s: float = 76.8e9
    host_flops_per_s: float = 1e12


class StreamClock:
    """Estimates of operations by streaming; the counterpart of ``timing.Clock``."""

    def __init__(self, row: Stream, card: Accelerator, places: HostShares, *, micro_rows: int = 0) -> None:
        self.row, self.card, self.places = row, card, places
        self.micro_rows = (micro_rows or row.micro_rows) if row.micro_rows else 0
        self.kind = card_class(card)
        peak = card.flops.get("fp16_acc16") if row.engine in ("llama_cpp", "exllama") else 0
        self.peak = peak or machine(card).flops_per_s
        self.unpack_s = row.unpack / shifts if (shifts := shifts_per_s(card)) else 0.0
        self.cycles = cycles_per_s(card)
        self.bandwidth = readable_bytes_per_s(card)

    def estimate(self, one: Operation, batch: Batch) -> Estimate | None:
        """Seconds of one run of an operation for what the batch brings to it; None where nothing runs."""
        flops = one.flops(batch) if isinstance(one, Linear | ExpertProducts | Scores | LatentScores) else 0
        moved = one.read_bytes(batch) + one.write_bytes(batch)
        if not moved and not flops:
            return None
        moved += self._read_again(one, batch)
        away = self.places.experts if isinstance(one, ExpertProducts) else self.places.layers
        parts = self._parts(one, batch, flops, moved, away=0.0 if one.part == "head" else away)
        parts["unpack"] = self._unpacked(one, batch)
        parts["scores"] = self._score_bytes(one, batch) / self.bandwidth
        seconds = max(parts["bandwidth"] + parts["unpack"], parts["compute"]) + parts["scores"] + parts["host"]
        return Estimate(seconds=seconds, parts=parts, formula=FORMULA, chosen=_chosen(self.row, self.kind))

    def _parts(self, one: Operation, batch: Batch, flops: float, moved: float, *, away: float) -> dict[str, Any]:
        row, places = self.row, self.places
        narrow = isinstance(one, Linear | ExpertProducts) and _narrow(one.form)
        share = (row.quantised or row.bandwidth) if narrow else row.bandwidth
        compute = (row.compute_quantised or row.compute) if narrow else row.compute
        streamed = moved / (self.bandwidth * share)
        if row.weight_cycle and self.cycles:
            streamed = max(streamed, moved / (self.cycles * row.weight_cycle))
        if isinstance(one, Scores | LatentScores):
            streamed = self._attending(one, batch, moved)
        elif narrow and row.row_share and isinstance(one, Linear):
            streamed *= 1 + row.row_share * max(0, one.rows_of(batch) - 1)
        host_bytes_per_s = places.host_bandwidth_bytes_per_s * _HOST_SHARE
        return {
            "bandwidth": (1 - away) * streamed,
            "compute": (1 - away) * flops / (self.peak * compute),
            "host": away * max(moved / host_bytes_per_s, flops / places.host_flops_per_s) if away else 0.0,
        }

    def _read_again(self, one: Operation, batch: Batch) -> float:
        """Bytes of weights that later micro-batches of a long prompt read again, each all that its rows meet."""
        most = self.micro_rows
        if not most or batch.tokens <= most or not isinstance(one, Linear | ExpertProducts):
            return 0.0
        parts = batch.tokens / most
        if isinstance(one, Linear):
            return float(one.weight_bytes * (parts - 1)) if one.rows == "tokens" else 0.0
        each = one.touched(Batch(prefills=1, prefill_tokens=most))
        return float((parts * each - one.touched(batch)) * one.expert_bytes)

    def _attending(self, one: Scores | LatentScores, batch: Batch, moved: float) -> float:
        """Seconds of moving the cache: at a share of the bandwidth, or at what the SMs' or cores' cycles allow in decode.

        An eager engine without a static cache reads and writes it whole to append a token, reads it to write the keys and
        values of every query head, and reads those.
        """
        row = self.row
        if row.expands and isinstance(one, Scores) and batch.decodes:
            cached = one.cache_bytes(batch)
            moved = cached * (3 + 2 * one.heads / one.kv_heads)
        streamed = moved / (self.bandwidth * (row.cache or row.bandwidth))
        if not row.cache_cycle or not self.cycles or batch.prefills:
            return streamed
        return max(streamed, moved / (self.cycles * row.cache_cycle))

    def _unpacked(self, one: Operation, batch: Batch) -> float:
        """Seconds of unpacking the weights met: each once a step, whatever the rows."""
        if not self.unpack_s or not isinstance(one, Linear | ExpertProducts) or not _narrow(one.form):
            return 0.0
        if isinstance(one, Linear):
            return float(one.inputs * one.outputs * one.matrices * self.unpack_s)
        return float(one.touched(batch) * one.hidden * one.width * (3 if one.gated else 2) * self.unpack_s)

    def _score_bytes(self, one: Operation, batch: Batch) -> float:
        """Bytes of the fp32 score matrix that unfused attention writes and reads."""
        if not self.row.score_passes or not isinstance(one, Scores):
            return 0.0
        keys = batch.prefill_past + batch.prefill_tokens
        return float(batch.prefills * one.heads * batch.prefill_tokens * keys * 4 * self.row.score_passes)


FORMULA = "max(bandwidth + unpack, compute) + scores + host"


class StepOverhead(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a step beside its operations: ``host_s`` runs before, after or (``eager``) beside them, ``gpu_s`` adds to them.

    ``waits``: the host stands still while the GPU works, so that both add in an eager engine too.
    """

    host_s: float
    gpu_s: float
    waits: bool


def overhead_of(row: Stream, found: Iterable[Operation], *, layers: int, hops: int, places: HostShares) -> StepOverhead:
    """What a step costs beside its bytes and FLOPs: by step, layer, module, looped expert, collective, further card, host."""
    host, gpu, waits = row.step_s + row.layer_s * layers, row.kernels_s * layers + row.hop_s * hops, False
    for one in found:
        if isinstance(one, Linear) and one.part != "head":
            host += one.count * _modules(one) * _module_s(row, one.form)
            waits = waits or one.form.startswith(row.waits or ("-",))
        elif isinstance(one, ExpertProducts):
            looped = one.active if row.loops == "hit" else one.routed
            gpu += one.count * (places.experts * _HANDED_S + (1 - places.experts) * row.routed_s)
            host += one.count * min(looped, one.routed) * (row.expert_s + (3 if one.gated else 2) * _module_s(row, one.form))
        elif isinstance(one, Exchange):
            gpu += one.count * row.exchange_s
        elif isinstance(one, Recurrence) and isinstance(one.mixer, GatedDeltaNet):
            gpu += one.count * row.delta_s
    return StepOverhead(host_s=host, gpu_s=gpu, waits=waits)


def _modules(one: Linear) -> int:
    """Modules of the checkpoint that the operation joins."""
    return {"qkv": 3, "gate_up": 2}.get(one.name, 1)


def _module_s(row: Stream, form: str) -> float:
    return next((seconds for start, seconds in row.module_s if form.startswith(start)), 0.0)


def stream_of(engine: str, card: Accelerator, version: tuple[int, ...] = (10**6,)) -> Stream | None:
    """The row of that engine and version for a card, or None where the engine's steps are told by kernel laws."""
    kind = card_class(card)
    found = [row for row in ROWS if row.engine == engine and row.since <= version and _holds(row, card, kind)]
    return max(found, key=lambda row: (bool(row.cards), bool(row.classes), row.since), default=None)


def _holds(row: Stream, card: Accelerator, kind: str) -> bool:
    return (not row.classes or kind in row.classes) and (not row.cards or card.id.startswith(row.cards))


def stream(engine: str, card: Accelerator) -> Stream:
    """The newest row; raises UnmodelledError for an engine without rows."""
    found = stream_of(engine, card)
    if found is None:
        raise UnmodelledError(f"no rules say how fast {engine} is: known are {', '.join(sorted({r.engine for r in ROWS}))}")
    return found


@functools.lru_cache(maxsize=256)
def _chosen(row: Stream, kind: str) -> Chosen:
    law = Law(
        operator="stream", backend=row.engine, precision="any", card_class=kind, source=row.source,
        constants={"bandwidth": row.bandwidth, "compute": row.compute, "layer_us": row.layer_s * 1e6},
    )  # fmt: skip
    return Chosen(law=law, error=Spread(1, row.transfer, 2.5 * row.transfer))


def _narrow(form: str) -> bool:
    return form not in ("float16", "bfloat16", "float32", "F16", "BF16", "F32", "f16", "bf16", "f32")
