"""Engines without kernel tables: each operation is bytes over a share of the bandwidth, or FLOPs over a share of the peak.

One step is ``max(bytes / (bandwidth * share), FLOPs / (peak * share))`` summed over operations, plus a constant for each layer:
launches, small kernels and what Python or the graph walk costs. Two constants an engine and card class explain decode at batch 1
(docs of each row); two more the prefill. A part of the model may lie in host memory and run on the CPU (llama.cpp).
"""

import functools
from typing import Any

import msgspec
from msgspec.structs import replace

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.models.operations import Batch, ExpertProducts, LatentScores, Linear, Operation, Scores
from vramcast.speed.kernels.law import Chosen, Estimate, Law, Spread
from vramcast.speed.kernels.machine import card_class, machine


class Stream(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Constants of one engine on some card classes (none given: on all), from version ``since`` on.

    ``bandwidth``, ``cache``: share of the card's bandwidth that weights and cache stream at (0: cache as weights). ``unpack``:
    operations at the fp32 rate that unpack one weight below 16 bits in decode. ``layer_s``: seconds of a layer beside its bytes;
    ``hop_s``: of each further card that layers lie on. ``compute``, ``compute_quantised``: share of the dense 16-bit peak in
    prefill. ``score_passes``: times the fp32 matrix of scores is moved where attention is not fused. ``eager``: ``layer_s`` is
    host time that overlaps with the GPU, so that the larger of both counts. ``form_s``: more of it for a layer whose weights are
    stored in a form (by how its name starts); ``expert_s``: more for each routed expert. ``transfer``: relative error on a card
    left out.
    """

    engine: str
    classes: tuple[str, ...] = ()
    since: tuple[int, ...] = ()
    bandwidth: float
    cache: float = 0.0
    quantised: float = 0.0
    unpack: float = 0.0
    layer_s: float
    hop_s: float = 0.0
    compute: float
    compute_quantised: float = 0.0
    score_passes: float = 0.0
    eager: bool = False
    form_s: tuple[tuple[str, float], ...] = ()
    expert_s: float = 0.0
    transfer: float = 0.1
    source: str = ""


_BENCH = "llama-bench of May 2024 on 14 cards (XiongjieDai/GPU-Benchmarks-on-LLM-Inference@aa72e0ec86), fitted by class"
_AWQ = "mit-han-lab/llm-awq@d6e797a42b tinychat/README.md"
_QWEN = "QwenLM/Qwen3@7a2f61ffc7, a912d239c2: speed benchmarks of Qwen2, 2.5 and 3"
# Flash attention by default: llama.cpp from b6700 (pull 15434, -fa auto); before, scores went through memory.
_FUSED = (6700,)


def _llama(classes: tuple[str, ...], *, compute: tuple[float, float], passes: float = 4.3, **rest: Any) -> tuple[Stream, ...]:
    """A class's row before and after flash attention became the default."""
    first = Stream(
        engine="llama_cpp", classes=classes, compute=compute[0], compute_quantised=compute[1], score_passes=passes, source=_BENCH,
        **rest,
    )  # fmt: skip
    return first, replace(first, since=_FUSED, score_passes=0.0)


_GDDR: dict[str, Any] = {"bandwidth": 0.927, "cache": 0.41, "unpack": 1.5, "layer_s": 88e-6, "hop_s": 160e-6, "transfer": 0.055}

ROWS: tuple[Stream, ...] = (
    *_llama(("geforce",), compute=(0.44, 0.405), **_GDDR),
    *_llama(("ampere_pro", "turing_pro"), compute=(0.42, 0.33), **_GDDR),
    *_llama(("ada_pro", "blackwell_pro"), compute=(0.37, 0.28), **_GDDR),
    *_llama(("ampere_dc",), compute=(0.38, 0.338), bandwidth=0.55, cache=0.15, layer_s=90e-6, hop_s=1.1e-3, transfer=0.14),
    *_llama(("hopper_dc", "blackwell_dc"), compute=(0.21, 0.177), bandwidth=0.72, cache=0.22, layer_s=115e-6, hop_s=0.4e-3),
    *_llama(("apple",), compute=(0.70, 0.57), bandwidth=0.89, cache=0.18, unpack=5.5, layer_s=176e-6, transfer=0.13),
    *_llama((), compute=(0.3, 0.25), bandwidth=0.85, cache=0.3, unpack=1.5, layer_s=150e-6, hop_s=0.4e-3, transfer=0.25),
    Stream(
        engine="transformers", bandwidth=0.85, quantised=0.6, layer_s=740e-6, compute=0.6, compute_quantised=0.4, eager=True,
        form_s=(("fp8", 1.7e-3), ("awq", 0.25e-3), ("gptq-int8", 0.4e-3), ("nf4", 0.3e-3), ("llm.int8", 2e-3), ("int8", 2e-3)),
        expert_s=85e-6, transfer=0.2, source=_QWEN,
    ),
    Stream(
        engine="litgpt", bandwidth=0.85, layer_s=1350e-6, compute=0.6, eager=True,
        source="Lightning-AI/litgpt@26857050fe resource tables",
    ),
    Stream(
        engine="exllama", bandwidth=0.90, layer_s=40e-6, compute=0.58, source="turboderp/exllamav2@b9c025b4b1 README",
    ),
    Stream(engine="tinychat", classes=("ampere_dc",), bandwidth=0.89, layer_s=112e-6, compute=0.5, source=_AWQ),
    Stream(engine="tinychat", bandwidth=0.85, layer_s=40e-6, compute=0.5, source=_AWQ),
    Stream(
        engine="autoawq", bandwidth=0.81, layer_s=52e-6, compute=0.42, source="casper-hansen/AutoAWQ@88e4c76b20 README",
    ),
    Stream(
        engine="gpt_fast", bandwidth=0.76, layer_s=72e-6, compute=0.6, source="pytorch-labs/gpt-fast@32971d3129 README",
    ),
    Stream(
        engine="fastertransformer", bandwidth=0.80, layer_s=60e-6, compute=0.57,
        source="NVIDIA/FasterTransformer@df4a753486 gpt_guide",
    ),
    Stream(
        engine="lmdeploy", bandwidth=0.85, layer_s=60e-6, compute=0.63, source="InternLM/lmdeploy@1263d5cd88 a100_fp16",
    ),
)  # fmt: skip


class Places(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of the model lies in host memory: shares of the layers and of the routed experts, and the host's own rates."""

    layers: float = 0.0
    experts: float = 0.0
    host_bandwidth_bytes_per_s: float = 70e9
    host_flops_per_s: float = 1e12


class StreamClock:
    """Estimates of operations by streaming; the counterpart of ``timing.Clock``."""

    def __init__(self, row: Stream, card: Accelerator, places: Places) -> None:
        self.row, self.card, self.places = row, card, places
        self.kind = card_class(card)
        peak = card.flops.get("fp16_acc16") if row.engine in ("llama_cpp", "exllama") else 0
        self.peak = peak or machine(card).flops_per_s
        self.unpack_s = row.unpack / card.flops["fp32"] if row.unpack and card.flops.get("fp32") else 0.0

    def estimate(self, one: Operation, batch: Batch) -> Estimate | None:
        """Seconds of one run of an operation for what the batch brings to it; None where nothing runs."""
        flops = one.flops(batch) if isinstance(one, Linear | ExpertProducts | Scores | LatentScores) else 0
        moved = one.read_bytes(batch) + one.write_bytes(batch)
        if not moved and not flops:
            return None
        away = self.places.experts if isinstance(one, ExpertProducts) else self.places.layers
        parts = self._parts(one, flops, moved, away=0.0 if one.part == "head" else away)
        parts["unpack"] = self._unpacked(one, batch)
        parts["scores"] = self._score_bytes(one, batch) / self.card.bandwidth_bytes_per_s
        streamed = parts["bandwidth"] + parts["unpack"] if not batch.prefills else parts["bandwidth"]
        seconds = max(streamed, parts["compute"]) + parts["scores"] + parts["host"]
        return Estimate(seconds=seconds, parts=parts, formula=FORMULA, chosen=_chosen(self.row, self.kind))

    def _parts(self, one: Operation, flops: float, moved: float, *, away: float) -> dict[str, Any]:
        row, places = self.row, self.places
        narrow = isinstance(one, Linear | ExpertProducts) and _narrow(one.form)
        share = (row.quantised or row.bandwidth) if narrow else row.bandwidth
        if isinstance(one, Scores | LatentScores):
            share = row.cache or share
        compute = (row.compute_quantised or row.compute) if narrow else row.compute
        return {
            "bandwidth": (1 - away) * moved / (self.card.bandwidth_bytes_per_s * share),
            "compute": (1 - away) * flops / (self.peak * compute),
            "host": away * max(moved / places.host_bandwidth_bytes_per_s, flops / places.host_flops_per_s) if away else 0.0,
        }

    def _unpacked(self, one: Operation, batch: Batch) -> float:
        """Seconds of unpacking the weights met: each once a step, whatever the rows."""
        if not self.unpack_s or batch.prefills or not isinstance(one, Linear | ExpertProducts) or not _narrow(one.form):
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


def stream_of(engine: str, card: Accelerator, version: tuple[int, ...] = (10**6,)) -> Stream | None:
    """The row of that engine and version for a card, or None where the engine's steps are told by kernel laws."""
    kind = card_class(card)
    found = [row for row in ROWS if row.engine == engine and row.since <= version]
    own = [row for row in found if kind in row.classes] or [row for row in found if not row.classes]
    return own[-1] if own else None


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
