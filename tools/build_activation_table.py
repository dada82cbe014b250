"""Write truth/traced/activations.jsonl: saved bytes and temporaries of one layer of each kind, traced, with the versions.

    python tools/build_activation_table.py [kind[/part of a variant] ...]      # for example: llama mixtral/lora

The first line holds the versions of the libraries; then comes a line with the config of each kind, each followed by the
kind's rows. Needs the [torch] extra, no GPU. All kinds take about a quarter of an hour.

Each row is one traced training step of a three-layer model of real structure and small width;
the figures are those of its middle layer. The activation formulas of the training forecast are tested against these rows.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from activation_kinds import CORE, KINDS, LORA_TARGETS, SEQUENTIAL, config_of

from vramcast.tracing.execution.series import trace_each
from vramcast.tracing.execution.worker import versions
from vramcast.tracing.reports.layers import layer_cost
from vramcast.tracing.request import TraceRequest, TraceResult
from vramcast.workload import Adapter

TABLE = Path(__file__).parents[1] / "truth" / "traced" / "activations.jsonl"
Row = dict[str, Any]

_VARIANTS: dict[str, Row] = {
    "bf16": {},
    "bf16 eager attention": {"attention": "eager"},
    "bf16 efficient attention": {"attention_kernels": ("efficient", "math")},
    "bf16 checkpointed": {"checkpointing": "full"},
    "bf16 checkpointed, reentrant": {"checkpointing": "reentrant"},
    "fp32": {"param_dtype": "float32"},
    "fp32 weights, bf16 autocast": {"param_dtype": "float32", "autocast": "bfloat16"},
    "fp32 weights, bf16 autocast, checkpointed": {"param_dtype": "float32", "autocast": "bfloat16", "checkpointing": "full"},
    "bf16 weights, bf16 autocast": {"autocast": "bfloat16"},
    "bf16 lora": {"adapter": {}},
    "bf16 lora, bf16 autocast": {"adapter": {}, "autocast": "bfloat16"},
    "nf4 lora, bf16 autocast": {"adapter": {}, "autocast": "bfloat16", "quant": "nf4"},
}
_BRIEF = (
    "bf16", "bf16 eager attention", "bf16 checkpointed", "fp32 weights, bf16 autocast", "bf16 lora, bf16 autocast",
)  # fmt: skip
_SHAPES = ((1, 512), (2, 512), (2, 1024))  # the plain variant of a core kind is traced in all three, anything else in the second
_SHORT = (2, 64)  # of a scan that runs token by token
_LAYER_PATHS = (
    "model.layers.{}", "gpt_neox.layers.{}", "transformer.h.{}", "transformer.blocks.{}", "transformer.layer.{}",
    "backbone.layers.{}", "biogpt.layers.{}", "rwkv.blocks.{}", "model.decoder.layers.{}", "decoder.block.{}", "encoder.layer.{}",
)  # fmt: skip


def requests(kinds: Iterable[str]) -> Iterator[tuple[str, str, TraceRequest]]:
    """Every kind in its variants and shapes."""
    for kind in kinds:
        for name in _VARIANTS if kind in CORE else _BRIEF:
            options = dict(_VARIANTS[name])
            if "adapter" in options:
                options["adapter"] = msgspec.to_builtins(Adapter(rank=8, targets=LORA_TARGETS.get(kind, ("all-linear",))))
            for batch, seq in _shapes(kind, name):
                given = {"config": config_of(kind), "micro_batch": batch, "seq": seq, "steps": 1, "optimizer": "sgd", **options}
                yield kind, name, msgspec.convert(given, TraceRequest)


def _shapes(kind: str, variant: str) -> tuple[tuple[int, int], ...]:
    if kind in SEQUENTIAL:
        return (_SHORT,)
    return _SHAPES if kind in CORE and variant == "bf16" else _SHAPES[1:2]


def row(kind: str, variant: str, request: TraceRequest, result: TraceResult) -> Row:
    """One row of the table."""
    asked = {k: v for k, v in msgspec.to_builtins(request).items() if k not in ("config", "steps", "optimizer")}
    about = {"kind": kind, "variant": variant, "request": asked}
    if result.error:
        return about | {"error": result.error.partition(" at /")[0]}
    return about | {"layer": msgspec.to_builtins(layer_cost(result.log, _middle(result)))}


def _middle(result: TraceResult) -> str:
    """The path of the middle layer, wherever the class and an adapter around it put it."""
    modules = {a.module for a in result.log.allocations}
    for path in _LAYER_PATHS:
        inside = path.format(1)
        found = {m[: m.index(inside)] for m in modules if f".{inside}." in f".{m}."}
        if found:
            return min(found, key=len) + inside
    raise LookupError(f"no known path of layers among {sorted(modules)[:5]}")


def main(wanted: list[str]) -> None:
    """Trace what was asked for (default: all) and write the table after each kind; other rows are kept."""
    asked = [r for r in requests(KINDS) if not wanted or any(_names(w, *r[:2]) for w in wanted)]
    rows = [r for r in _existing() if wanted and not any(_names(w, r["kind"], r["variant"]) for w in wanted)]
    done = ""
    for (kind, variant, _), (request, result) in zip(asked, trace_each(r for _, _, r in asked), strict=True):
        if done and kind != done:
            _write(rows)
        done = kind
        rows.append(row(kind, variant, request, result))
        print(f"{kind:14} {variant:44} {request.micro_batch}x{request.seq} {result.seconds:5.2f} s {result.error}", flush=True)
    _write(rows)


def _names(wanted: str, kind: str, variant: str) -> bool:
    """Whether an argument asks for this kind and variant."""
    name, _, part = wanted.partition("/")
    return name == kind and part in variant


def _write(rows: list[Row]) -> None:
    kinds, variants = list(KINDS), list(_VARIANTS)
    ordered = sorted(rows, key=lambda r: (kinds.index(r["kind"]), variants.index(r["variant"])))
    lines: list[Row] = [{"versions": versions()}]
    for kind in dict.fromkeys(r["kind"] for r in ordered):
        lines += [{"kind": kind, "config": config_of(kind)}, *(r for r in ordered if r["kind"] == kind)]
    TABLE.write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")


def _existing() -> list[Row]:
    """The rows that are there, of kinds that still are."""
    lines = [msgspec.json.decode(line) for line in TABLE.read_bytes().splitlines()[1:]] if TABLE.exists() else []
    return [r for r in lines if "variant" in r and r["kind"] in KINDS and r["variant"] in _VARIANTS]


if __name__ == "__main__":
    main(sys.argv[1:])
