"""``vramcast train --from FILE``: the settings of training files under the flags that were typed."""

from typing import Any

import click
from click.core import ParameterSource

from vramcast.reading.training.settings import Settings
from vramcast.workload import Adapter

_SAME = (
    "model",
    "method",
    "optimizer",
    "checkpointing",
    "attention",
    "loss",
    "param_dtype",
    "compute_dtype",
    "grad_dtype",
    "quant",
)
_RENAMED = {"compile": "compiled"}
_COUNTS = ("micro_batch", "seq", "accumulate")
_SHAPES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "expert_ffn")


def under_flags(given: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The command's parameters with what the files say wherever no flag was typed."""
    context = click.get_current_context()
    typed = {name for name in given if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    open_ = {name for name, value in given.items() if name not in typed or value is None}
    filled = given | {name: value for name, value in _values(settings).items() if name in open_}
    if "micro_batch" in filled and settings.get("global_batch") and "accumulate" not in settings.values:
        filled["global_batch"] = settings.get("global_batch")
    return filled | {"files": settings, "file_gpus": settings.get("gpus")}


def _values(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {name: settings.get(name) for name in _SAME if settings.get(name) is not None}
    found |= {flag: settings.get(name) for name, flag in _RENAMED.items() if settings.get(name) is not None}
    found |= {name: str(settings.get(name)) for name in _COUNTS if settings.get(name)}
    found |= {name: value for name, value in settings.group("parallel").items() if value is not None}
    if settings.get("framework"):
        found["framework"] = settings.get("framework")
    if settings.get("zero") is not None:
        found["zero"] = settings.get("zero")
    elif settings.get("fsdp"):
        found["fsdp"] = str(settings.get("fsdp"))
    if settings.get("offload"):
        found["offload"] = tuple(settings.get("offload"))
    if "model" not in found:
        found |= {name: value for name, value in settings.group("shape").items() if name in _SHAPES}
    return found


def adapter_of(given: dict[str, Any], settings: Settings) -> Adapter | None:
    """The adapter of the files, its rank and targets replaced by typed ones."""
    said = settings.group("adapter")
    sizes = {name.removeprefix("sizes."): value for name, value in said.items() if name.startswith("sizes.")}
    known = ("rank", "targets", "dropout", "modules_to_save", "dora", "parameters")
    fields = {name: said[name] for name in known if said.get(name) is not None}
    if given["rank"] is not None:
        fields["rank"] = given["rank"]
    if given["targets"]:
        fields["targets"] = tuple(given["targets"].split(","))
    if given["method"] == "full" or not (fields or sizes):
        return None
    return Adapter(**fields, sizes=sizes)
