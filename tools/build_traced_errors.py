"""Write how far the activation formulas are from traces into the rows of models/classes: one column, ``traced``.

    python tools/build_traced_errors.py

Every row of truth/traced/activations.jsonl is one layer of a class in one implementation. The largest relative error over the
rows of a class, of what the layer saves and of the tops of its forward and backward, is what the forecast says of itself.
"""

from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from vramcast.models.classes import ROWS as CLASSES
from vramcast.models.classes import Traced
from vramcast.models.families import read_config
from vramcast.models.inventory import Model
from vramcast.training.activations.choice import style_of
from vramcast.training.activations.layer import layer_tape
from vramcast.training.activations.layers import kept
from vramcast.training.activations.tape import Life
from vramcast.training.resolve import resolve
from vramcast.training.structure import adapter_ranks
from vramcast.workload import Adapter, Training

TABLE = Path(__file__).parents[1] / "truth" / "traced" / "activations.jsonl"
VERSIONS, *LINES = [msgspec.json.decode(line) for line in TABLE.read_bytes().splitlines()]
CONFIGS = {line["kind"]: line["config"] for line in LINES if "config" in line}
ROWS = [line for line in LINES if "variant" in line]

# What a class fills in where a config is silent (transformers 5.23); published configs say it.
CLASS_DEFAULTS: dict[str, dict[str, object]] = {
    "phi": {"partial_rotary_factor": 0.5},
    "glm": {"partial_rotary_factor": 0.5},
    "glm4": {"partial_rotary_factor": 0.5},
    "glm4_moe": {"partial_rotary_factor": 0.5},
    "stablelm": {"partial_rotary_factor": 0.25},
    "nemotron": {"partial_rotary_factor": 0.5},
    "persimmon": {"partial_rotary_factor": 0.5},
    "gpt_neox": {"rotary_pct": 0.25, "use_parallel_residual": True},
}


def question(row: dict[str, Any]) -> Training:
    """The plain loop that a row traced, as a question."""
    asked = row["request"]
    options: dict[str, Any] = {"autocast": bool(asked.get("autocast")), "scan": "torch"}
    if asked.get("attention_kernels"):
        options |= {"attention": "efficient", "sdpa": True}
    dtype = asked.get("param_dtype", "bfloat16")
    return msgspec.convert(
        {
            "model": row["kind"],
            "framework": "pytorch",
            "method": "qlora" if asked.get("quant") else "lora" if asked.get("adapter") else "full",
            "adapter": asked.get("adapter"),
            "quant": asked.get("quant"),
            "param_dtype": None if asked.get("adapter") else dtype,
            "compute_dtype": asked.get("autocast") or dtype,
            "attention": asked.get("attention"),
            "micro_batch": asked.get("micro_batch", 1),
            "seq": asked["seq"],
            "checkpointing": _policy(row),
            "options": options,
        },
        Training,
    )


def _policy(row: dict[str, Any]) -> str:
    asked = row["request"].get("checkpointing", "none")
    return "full" if asked == "reentrant" else str(asked)


def forecast_of(row: dict[str, Any]) -> tuple[Life, float, float]:
    """The middle layer's life by the formulas, what it keeps for backward, and the bytes of its output's gradient."""
    asked = question(row)
    loaded = {"torch_dtype": row["request"].get("param_dtype", "bfloat16")}  # a frozen base is held in the type of its config
    model: Model = read_config({**CLASS_DEFAULTS.get(row["kind"], {}), **CONFIGS[row["kind"]], **loaded})
    recipe, _ = resolve(asked, model)
    adapter: Adapter | None = asked.adapter
    style = style_of(recipe, asked.parallel, adapter, adapter_ranks(model, recipe, adapter))
    block = model.layer_list()[1]
    tape = layer_tape(block, style, hidden=model.hidden, tokens=asked.micro_batch * asked.seq, seq=asked.seq)
    life = tape.life()
    return life, kept(recipe.recomputation.policy, tape, life), tape.sizes[tape.operations[-1].writes]


def heights(row: dict[str, Any]) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float]]:
    """Forecast and traced: bytes saved, the top of forward, and the top of backward above what waited for it.

    A recomputed layer saves nothing on its way forward, and backward finds nothing but its input. Reentrant checkpointing holds
    the gradient of its output, which its own frame names, to the end (torch/utils/checkpoint.py, CheckpointFunction.backward).
    """
    life, saved, gradient = forecast_of(row)
    traced, recomputed = row["layer"], _policy(row) == "full"
    forward = life.transient_peak if recomputed else life.forward_peak
    rise = traced["forward_extra"] + traced["saved"]
    waiting = 0 if recomputed else life.saved
    named = gradient if row["request"].get("checkpointing") == "reentrant" else 0
    backward = life.backward_peak - gradient + named
    return (saved, traced["saved"]), (forward, rise), (backward, traced["backward_net"] + waiting)


def name(row: dict[str, Any]) -> str:
    asked = row["request"]
    return f"{row['kind']}-{row['variant']}-{asked.get('micro_batch', 1)}x{asked['seq']}"


def errors(kind: str) -> Traced:
    """The largest errors over a class's rows, rounded up to a tenth of a percent: recomputed rows apart for what is kept."""
    rows = [row for row in ROWS if row["kind"] == kind and "error" not in row]
    plain, again = ([heights(r) for r in rows if (_policy(r) == "full") is recomputed] for recomputed in (False, True))
    return Traced(
        saved=_worst(plain, 0), kept=_worst(again, 0), forward=_worst(plain + again, 1), backward=_worst(plain + again, 2)
    )


def _worst(pairs: list[tuple[tuple[float, float], ...]], place: int) -> float:
    error = max((abs(pair[place][0] / pair[place][1] - 1) for pair in pairs), default=0.0)
    return ceil(error * 1000 - 1e-6) / 1000


def main() -> None:
    """Write the column of every class in the table."""
    rows = {row["name"]: row for row in map(msgspec.json.decode, CLASSES.read_bytes().splitlines())}
    for kind in CONFIGS:
        rows.setdefault(kind, {"name": kind})["traced"] = errors(kind)
    CLASSES.write_bytes(b"\n".join(msgspec.json.encode(rows[name]) for name in sorted(rows)) + b"\n")


if __name__ == "__main__":
    main()
