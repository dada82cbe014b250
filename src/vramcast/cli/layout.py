"""The flags that say how ranks share a training run, and the layout they make."""

from typing import Any

import click

from vramcast.errors import QuestionError
from vramcast.workload import Parallel

_AXES = {
    "tp": "Tensor parallel ranks.",
    "pp": "Pipeline stages.",
    "cp": "Context parallel ranks.",
    "ep": "Expert parallel ranks.",
    "vpp": "Virtual pipeline stages per rank.",
}
_SHARING = {
    "replicate": "HSDP: replicas of the sharded model.",
    "shard": "HSDP: ranks that share one replica.",
    "hpz": "ZeRO++: ranks that share a second copy of the weights.",
}
LAYOUT_FLAGS = frozenset({*_AXES, "sp", *_SHARING})


def layout_options(function: Any) -> Any:
    """The flags of the layout, on a command."""
    for name in reversed(_SHARING):
        function = click.option(f"--{name}", type=int, metavar="N", help=_SHARING[name])(function)
    function = click.option("--sp", is_flag=True, help="Megatron sequence parallelism.")(function)
    for name in reversed(_AXES):
        function = click.option(f"--{name}", type=int, default=1, show_default=True, help=_AXES[name])(function)
    return function


def layout_of(given: dict[str, Any], gpus: int) -> tuple[Parallel, int]:
    """The layout and the number of cards it is for: data parallelism is what the other axes leave.

    Raises QuestionError when they do not divide, or when replicas and shards do not multiply to the data-parallel ranks.
    """
    axes = {name: given[name] for name in (*_AXES, "sp")} | {"hpz": _given(given, "hpz")}
    model = Parallel(**axes)
    world = gpus if gpus > 1 else model.model_ranks
    if world % model.model_ranks:
        asked = f"tp {model.tp} x pp {model.pp} x cp {model.cp} = {model.model_ranks}"
        raise QuestionError(f"{world} cards do not divide into {asked}")
    data = world // model.model_ranks
    return Parallel(**axes, dp=data, replicate=_replicas(given, data)), world


def _given(given: dict[str, Any], name: str) -> int:
    value = given.get(name)
    return 1 if value is None else int(value)


def _replicas(given: dict[str, Any], data: int) -> int:
    """From --replicate, from --shard, or from both when they agree."""
    replicate, shard = given.get("replicate"), given.get("shard")
    if shard is None:
        return _given(given, "replicate")
    if shard < 1:
        raise QuestionError(f"shard is {shard}: expected at least 1")
    if data % shard or (replicate is not None and replicate * shard != data):
        asked = f"{replicate} replicas x {shard} shards" if replicate is not None else f"replicas of {shard} shards"
        fits = max(n for n in range(1, min(data, shard) + 1) if data % n == 0)
        raise QuestionError(f"{data} data-parallel ranks are not {asked}: use --replicate {data // fits} --shard {fits}")
    return int(data // shard)
