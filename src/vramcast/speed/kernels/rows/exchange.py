"""Rows of collectives and of the expert-parallel exchange."""

from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.collectives import factor
from vramcast.speed.kernels.experts import ranks_reached
from vramcast.speed.kernels.rows.base import Call

_COLLECTIVES = {"alltoall": "all_to_all"}


_ELEMENT_BYTES = {"half": 2, "int8": 1, "bfloat16": 2, "float": 4}


def nccl_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    implementation = "nccl" if words["kernel"] in {"NCCL", "oneCCL"} else words["kernel"]
    return _collective(_COLLECTIVES.get(words["op"], words["op"]), implementation, words, numbers)


_OWN = {
    "vLLM_custom_graph": "vllm", "vLLM_custom_eager": "vllm_eager", "SGLang_CustomAllReduce_graph": "sglang",
    "SGLang_CustomAllReduce_eager": "sglang_eager", "TRTLLM": "trtllm",
}  # fmt: skip


def own_all_reduce_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    implementation = _OWN.get(words["kernel"])
    return _collective("all_reduce", implementation, words, numbers) if implementation else None


def _collective(operation: str, implementation: str, words: dict[str, str], numbers: dict[str, Any]) -> Call:
    world = int(float(words["num_gpus"]))
    return Call(
        operator=operation, backend=implementation, precision=str(world), computes="link",
        arguments={
            "moved_bytes": numbers["count"] * _ELEMENT_BYTES[words["dtype"]],
            "share": factor(operation, world) + 0 * numbers["count"],
        },
    )  # fmt: skip


def _exchange(operation: str, implementation: str, numbers: dict[str, Any], *, ep: Any, nodes: str, element: float) -> Call:
    copies = numbers["topk"] if implementation.startswith("low") else ranks_reached(numbers["topk"], ep)
    return Call(
        operator=operation, backend=implementation, precision=nodes, computes="link",
        arguments={"tokens": numbers["tokens"], "hidden": numbers["hidden"], "copies": copies, "element_bytes": element},
    )  # fmt: skip


def exchange_row(words: dict[str, str], numbers: dict[str, Any], card: Accelerator) -> Call | None:
    return _exchange(
        words["operation"], words["implementation"], numbers, ep=numbers["ep"], nodes=words["nodes"],
        element=float(words["element_bytes"]),
    )  # fmt: skip
