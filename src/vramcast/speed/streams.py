"""Engines without kernel tables: each operation is bytes over a share of the bandwidth, or FLOPs over a share of the peak.

One step is ``max(bytes / (bandwidth * share), FLOPs / (peak * share))`` summed over operations, plus a constant for each layer:
launches, small kernels and what Python or the graph walk costs. Two constants an engine and card class explain decode at batch 1
(docs of each row); two more the prefill. A part of the model may lie in host memory and run on the CPU (llama.cpp).
"""

import functools
from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.models.operations import Batch, ExpertProducts, LatentScores, Linear, Operation, Scores
from vramcast.speed.kernels.law import Chosen, Estimate, Law, Spread
from vramcast.speed.kernels.machine import card_class, machine


class Stream(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Constants of one engine on some card classes (none given: on all).

    ``bandwidth``: share of the card's bandwidth that weights and cache stream at; ``quantised``: the same for weights below 16
    bits, 0 = as the rest. ``layer_s``: seconds of a layer beside its bytes. ``compute``, ``compute_quantised``: share of the
    dense 16-bit peak in prefill. ``eager``: ``layer_s`` is host time that overlaps with the GPU, so that the larger of both
    counts. ``transfer``: relative error (median) on a card left out.
    """

    engine: str
    classes: tuple[str, ...] = ()
    bandwidth: float
    quantised: float = 0.0
    layer_s: float
    compute: float
    compute_quantised: float = 0.0
    eager: bool = False
    transfer: float = 0.1
    source: str = ""


_GDDR = ("geforce", "ampere_pro", "ada_pro", "blackwell_pro", "turing_pro")
_BENCH = "XiongjieDai/GPU-Benchmarks-on-LLM-Inference@aa72e0ec86, llama-bench of May 2024"
_AWQ = "mit-han-lab/llm-awq@d6e797a42b tinychat/README.md"
_QWEN = "QwenLM/Qwen3@7a2f61ffc7, a912d239c2: speed benchmarks of Qwen2, 2.5 and 3"

ROWS: tuple[Stream, ...] = (
    Stream(
        engine="llama_cpp", classes=_GDDR, bandwidth=0.93, layer_s=113e-6, compute=0.42, compute_quantised=0.32, transfer=0.05,
        source=_BENCH,
    ),
    Stream(
        engine="llama_cpp", classes=("ampere_dc",), bandwidth=0.54, layer_s=125e-6, compute=0.40, compute_quantised=0.29,
        source=_BENCH,
    ),
    Stream(
        engine="llama_cpp", classes=("hopper_dc",), bandwidth=0.72, layer_s=143e-6, compute=0.21, compute_quantised=0.16,
        source=_BENCH,
    ),
    Stream(
        engine="llama_cpp", classes=("blackwell_dc",), bandwidth=0.65, layer_s=130e-6, compute=0.2, compute_quantised=0.15,
        source=_BENCH,
    ),
    Stream(
        engine="llama_cpp", classes=("apple",), bandwidth=0.82, layer_s=280e-6, compute=0.75, compute_quantised=0.65,
        transfer=0.12, source=_BENCH,
    ),
    Stream(engine="llama_cpp", bandwidth=0.85, layer_s=150e-6, compute=0.3, compute_quantised=0.25, transfer=0.25, source=_BENCH),
    Stream(
        engine="transformers", bandwidth=0.85, quantised=0.6, layer_s=650e-6, compute=0.6, compute_quantised=0.4, eager=True,
        transfer=0.3, source=_QWEN,
    ),
    Stream(
        engine="litgpt", bandwidth=0.85, layer_s=1350e-6, compute=0.6, eager=True,
        source="Lightning-AI/litgpt@26857050fe resource tables",
    ),
    Stream(
        engine="exllama", bandwidth=0.90, layer_s=40e-6, compute=0.58,
        source="turboderp/exllamav2@b9c025b4b1 README",
    ),
    Stream(engine="tinychat", classes=("ampere_dc",), bandwidth=0.89, layer_s=112e-6, compute=0.5, source=_AWQ),
    Stream(engine="tinychat", bandwidth=0.85, layer_s=40e-6, compute=0.5, source=_AWQ),
    Stream(
        engine="autoawq", bandwidth=0.81, layer_s=52e-6, compute=0.42,
        source="casper-hansen/AutoAWQ@88e4c76b20 README",
    ),
    Stream(
        engine="gpt_fast", bandwidth=0.76, layer_s=72e-6, compute=0.6,
        source="pytorch-labs/gpt-fast@32971d3129 README",
    ),
    Stream(
        engine="fastertransformer", bandwidth=0.80, layer_s=60e-6, compute=0.57,
        source="NVIDIA/FasterTransformer@df4a753486 gpt_guide",
    ),
    Stream(
        engine="lmdeploy", bandwidth=0.85, layer_s=60e-6, compute=0.63,
        source="InternLM/lmdeploy@1263d5cd88 a100_fp16",
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

    def estimate(self, one: Operation, batch: Batch) -> Estimate | None:
        """Seconds of one run of an operation for what the batch brings to it; None where nothing runs."""
        flops = one.flops(batch) if isinstance(one, Linear | ExpertProducts | Scores | LatentScores) else 0
        moved = one.read_bytes(batch) + one.write_bytes(batch)
        if not moved and not flops:
            return None
        away = self.places.experts if isinstance(one, ExpertProducts) else self.places.layers
        narrow = isinstance(one, Linear | ExpertProducts) and _narrow(one.form)
        parts = self._parts(flops, moved, narrow=narrow, away=0.0 if one.part == "head" else away)
        seconds = max(parts["bandwidth"], parts["compute"]) + parts["host"]
        return Estimate(
            seconds=seconds, parts=parts, formula="max(bandwidth, compute) + host", chosen=_chosen(self.row, self.kind)
        )

    def _parts(self, flops: float, moved: float, *, narrow: bool, away: float) -> dict[str, Any]:
        row, places = self.row, self.places
        share = (row.quantised or row.bandwidth) if narrow else row.bandwidth
        compute = (row.compute_quantised or row.compute) if narrow else row.compute
        return {
            "bandwidth": (1 - away) * moved / (self.card.bandwidth_bytes_per_s * share),
            "compute": (1 - away) * flops / (self.peak * compute),
            "host": away * max(moved / places.host_bandwidth_bytes_per_s, flops / places.host_flops_per_s) if away else 0.0,
        }


def stream_of(engine: str, card: Accelerator) -> Stream | None:
    """The row of that engine for a card, or None where the engine's steps are told by kernel laws."""
    kind = card_class(card)
    return next((row for row in ROWS if row.engine == engine and (not row.classes or kind in row.classes)), None)


def stream(engine: str, card: Accelerator) -> Stream:
    """The same; raises UnmodelledError for an engine without rows."""
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
