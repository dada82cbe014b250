"""What a traced step trains: everything, some layers, or an adapter of any kind that PEFT has."""

from collections.abc import Sequence
from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.models.inventory import Model
from vramcast.training.adapters.kinds import KINDS
from vramcast.training.adapters.tensors import sizes_of
from vramcast.training.methods import adapter_of, named_by_task
from vramcast.training.recipe.parts import Recipe
from vramcast.workload import Adapter, Training

# Adapters of PEFT (0.21.2) without rules of their own: traced, with no forecast beside.
WITHOUT_FORECAST = frozenset({
    "beft", "deft", "delora", "glora", "gralora", "hira", "lily", "osf", "peanut", "psoft", "pvera", "road", "supertuning",
    "tinylora", "unilora", "waveft",
})  # fmt: skip
_REFUSED = {
    "frozen": "a frozen model, which makes no step",
    "badam": "BAdam's own optimizer: trace your script",
    "xlora": "X-LoRA, which needs trained adapters: trace your script",
    "shira": "SHiRA, whose masks are drawn: use vramcast train",
}


def by_known_rules(question: Training) -> Training:
    """The question by rules that exist: an adapter that only PEFT knows is trained by the recipe of LoRA."""
    if question.method not in WITHOUT_FORECAST:
        return named_by_task(question)
    given = question.adapter or Adapter()
    return msgspec.structs.replace(question, method="lora", adapter=msgspec.structs.replace(given, kind=question.method))


def trained(question: Training, recipe: Recipe, model: Model) -> dict[str, Any]:
    """The fields of a trace's request that say what it trains. Raises UnmodelledError for what the tracer cannot train."""
    method = recipe.task.method if recipe.task.method == "frozen" else question.method
    adapter = adapter_of(question)
    for name in (method, adapter.kind if adapter else ""):
        if name in _REFUSED:
            raise UnmodelledError(f"the tracer does not run {_REFUSED[name]}")
    if recipe.task.method == "partial":
        return {"trained_layers": _layers(question.method, recipe, model.layers), "trains_ends": recipe.task.trains_ends}
    if adapter is None:
        return {}
    sizes = sizes_of(adapter) if adapter.kind in KINDS else adapter.sizes
    return {"adapter": msgspec.structs.replace(adapter, sizes=sizes, dtype=recipe.adapters.adapter_dtype)}


def _layers(method: str, recipe: Recipe, total: int) -> tuple[int, ...]:
    """Which layers are trained: the last ones, every n-th, or (any of them being drawn) the first, where backward is longest."""
    wanted = min(recipe.task.trainable_layers or total, total)
    chosen: dict[str, Sequence[int]] = {
        "freeze": range(total - wanted, total),
        "llama_pro": [(n + 1) * total // wanted - 1 for n in range(wanted)],
        "lisa": range(wanted),
    }
    return tuple(chosen[method])
