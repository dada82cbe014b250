"""Rows of recurrent layers and of kernels that only move bytes."""

from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.rows.base import Call

_RECURRENT = {"context": "prefill", "generation": "decode", "verify": "decode"}


def recurrent_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    phase, kernel = _RECURRENT[words["phase"]], words["kernel"]
    engine = f"{words['engine']}/verify" if words["phase"] == "verify" else words["engine"]
    new, batch = numbers["seq_len"], numbers["batch"]
    key, value = numbers["k_heads"] * numbers["head_k_dim"], numbers["v_heads"] * numbers["head_v_dim"]
    if "conv1d" in kernel:
        arguments = {"new": new, "batch": batch, "channels": 2 * key + value, "width": numbers["d_conv"]}
        return _recurrent_call("convolution", phase, engine, words["op"], arguments)
    backend = f"{engine}/flashinfer" if "flash" in kernel else f"{engine}/triton"
    return _recurrent_call("recurrent", phase, backend, words["op"], {
        "prefills": (phase == "prefill") * 1.0, "new": new, "batch": batch, "heads": numbers["v_heads"],
        "key_heads": numbers["k_heads"], "key_dim": numbers["head_k_dim"], "value_dim": numbers["head_v_dim"], "state_bytes": 4.0,
    })  # fmt: skip


def gated_delta_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    state = 4.0 if words["state_dtype"] == "float32" else 2.0
    return _recurrent_call("recurrent", "decode", "aiter/triton", "gdn", {
        "prefills": 0.0, "new": 1.0 + 0 * numbers["b"], "batch": numbers["b"], "heads": numbers["num_v_heads"],
        "key_heads": numbers["num_k_heads"], "key_dim": numbers["head_k_dim"], "value_dim": numbers["head_v_dim"],
        "state_bytes": state + 0 * numbers["b"],
    })  # fmt: skip


def _recurrent_call(operator: str, phase: str, backend: str, kind: str, arguments: dict[str, Any]) -> Call:
    return Call(operator=f"{operator}_{phase}", backend=backend, precision=kind, computes="bf16", arguments=arguments)


def elementwise_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    kind = {"softmax": "softmax", "ln": "norm"}.get(words["op"], "add")
    passes = 3 if words["op"] == "add" else 2
    return Call(
        operator="elementwise", backend="eager", precision=kind, computes="fp32",
        arguments={"moved_bytes": passes * 4 * numbers["B"] * numbers["H"]},
    )  # fmt: skip


def pointwise_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    return Call(
        operator="elementwise", backend="graph", precision=words["moves"], computes="bf16",
        arguments={"moved_bytes": numbers["moved_bytes"]},
    )  # fmt: skip
