"""The activation formulas against every row of the traced table: one layer of each kind, in each implementation.

Saved bytes are equal to the byte but for the kinds listed with what they lack; the temporaries of forward and backward have a
tolerance. ``python tools/build_activation_table.py`` makes the table again.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from vramcast.models.families import read_config
from vramcast.models.inventory import Model
from vramcast.training.activations.choice import style_of
from vramcast.training.activations.layer import layer_tape
from vramcast.training.activations.policy import kept
from vramcast.training.activations.tape import Life
from vramcast.training.adapters import targeted
from vramcast.training.resolve import resolve
from vramcast.workload import Adapter, Training

TABLE = Path(__file__).parents[2] / "truth" / "traced" / "activations.jsonl"
VERSIONS, *ROWS = [msgspec.json.decode(line) for line in TABLE.read_bytes().splitlines()]

# What a class fills in where a config is silent (transformers 5.23); published configs say it.
CLASS_DEFAULTS: dict[str, dict[str, object]] = {
    "phi": {"partial_rotary_factor": 0.5},
    "glm4": {"partial_rotary_factor": 0.5},
    "stablelm": {"partial_rotary_factor": 0.25},
    "gpt_neox": {"rotary_pct": 0.25, "use_parallel_residual": True},
}
# Relative tolerance of saved bytes by kind, where a layer has a few bytes more than the tape writes down, and which.
INEXACT = {
    "qwen2": 1e-4, "stablelm": 5e-4, "starcoder2": 6e-4, "phi": 3e-4, "cohere": 2e-4,  # float copies of weights and biases
    "glm4": 5e-3,  # repeated cosines and sines
    "mixtral": 3e-4, "qwen3_moe": 1e-3, "olmoe": 1e-3, "qwen2_moe": 0.02,  # a router's small tensors; a shared expert's gate
    "gpt_oss": 0.17,  # PEFT leaves its experts alone; its experts' biases and clamps under autocast
    "deepseek_v3": 0.04,  # its router's groups; values cut out of the projection in float
    "gpt2": 0.17,  # eager softmax in 16 bits; 4-bit Conv1D
    "gpt_neox": 0.14,  # what its two norms share
}  # fmt: skip
# Not written down: the Python scan that stands in for mamba's kernels on a machine without them, Falcon's own split of heads, and
# adapters on Qwen2-MoE's experts, which PEFT does not convert.
NOT_WRITTEN = {"mamba2", "falcon"}
# Falcon picks heads by a list, which a PyTorch without CUDA cannot put on the device while it recomputes.
NOT_TRACED = {"falcon-bf16 checkpointed-2x512", "falcon-fp32 weights, bf16 autocast, checkpointed-2x512"}
BACKWARD = {"llama": 0.0005, "mixtral": 0.031}


def question(row: dict[str, Any]) -> Training:
    """The plain loop that a row traced, as a question."""
    asked = row["request"]
    options: dict[str, Any] = {"autocast": bool(asked.get("autocast"))}
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
            "checkpointing": asked.get("checkpointing", "none"),
            "options": options,
        },
        Training,
    )


def forecast_of(row: dict[str, Any]) -> tuple[Life, float, float]:
    """The middle layer's life by the formulas, what it keeps for backward, and the bytes of its output's gradient."""
    asked = question(row)
    model: Model = read_config({**CLASS_DEFAULTS.get(row["kind"], {}), **row["config"]})
    recipe, _ = resolve(asked, model)
    adapter: Adapter | None = asked.adapter
    ranks = targeted(model, adapter, router=recipe.adapts_router) if adapter else {}
    style = style_of(recipe, asked.parallel, adapter, ranks)
    block = model.layer_list()[1]
    tape = layer_tape(block, style, hidden=model.hidden, tokens=asked.micro_batch * asked.seq, seq=asked.seq)
    life = tape.life()
    return life, kept(recipe.checkpointing, tape, life), tape.sizes[tape.operations[-1].writes]


def name(row: dict[str, Any]) -> str:
    asked = row["request"]
    return f"{row['kind']}-{row['variant']}-{asked.get('micro_batch', 1)}x{asked['seq']}"


def test_every_row_was_traced_and_says_with_what() -> None:
    assert {name(row) for row in ROWS if "error" in row} == NOT_TRACED
    assert {"torch", "transformers", "peft", "bitsandbytes"} <= VERSIONS["versions"].keys()
    assert len(ROWS) > 300


def written(row: dict[str, Any]) -> bool:
    adapted = row["kind"] == "qwen2_moe" and "lora" in row["variant"]
    return "error" not in row and row["kind"] not in NOT_WRITTEN and not adapted


@pytest.mark.parametrize("row", [r for r in ROWS if written(r)], ids=name)
def test_a_layer_saves_what_execution_saved(row: dict[str, Any]) -> None:
    _, saved, _ = forecast_of(row)
    assert saved == pytest.approx(row["layer"]["saved"], rel=INEXACT.get(row["kind"], 0), abs=0)


def measured_backward(row: dict[str, Any]) -> bool:
    return row["kind"] in BACKWARD and "backward_net" in row["layer"] and row["variant"] != "bf16 eager attention"


@pytest.mark.parametrize("row", [r for r in ROWS if measured_backward(r)], ids=name)
def test_a_layers_backward_rises_as_high_as_it_did(row: dict[str, Any]) -> None:
    """Above what was alive when it began: weight gradients, temporaries and, recomputed, the layer's own saved tensors."""
    life, _, gradient = forecast_of(row)
    waiting = 0 if row["request"].get("checkpointing") else life.saved
    rise = life.backward_peak - waiting - gradient
    assert rise == pytest.approx(row["layer"]["backward_net"], rel=BACKWARD[row["kind"]])
