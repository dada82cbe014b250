"""Memory of many steps at once: one structure, arrays of micro-batches, lengths, accumulations and data-parallel ranks.

A planner asks this for a hundred thousand layouts; each figure is what ``forecast_training`` says of that layout alone.
"""

from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.quantity import Number, is_array, maximum, whole
from vramcast.training.activations.layers import windows_of
from vramcast.training.counters import counters
from vramcast.training.frameworks.common import attention_on
from vramcast.training.methods import named_by_task
from vramcast.training.recipe.parts import Recipe
from vramcast.training.resolve import resolved
from vramcast.training.structure import StepNumbers, rank_of, structure_under
from vramcast.training.timeline import instants
from vramcast.workload import Training


class StepBytes(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of the rank that needs most, bytes: one number, or an array with one element per layout."""

    allocated_bytes: Number
    reserved_bytes: Number
    device_bytes: Number


def peak_bytes(question: Training, numbers: StepNumbers, *, model: Model, card: Accelerator | None = None) -> StepBytes:
    """The counters of ``question`` under each element of ``numbers``, which stand in for its own.

    Its other fields (tensor, pipeline, context and expert parallelism, recipe, method) are the same for all. Whether a layout can
    be at all (a batch that divides, a length the model has positions for) is the caller's to know.
    Raises QuestionError for a question that no numbers make right.
    """
    question = named_by_task(question)
    given = {name: getattr(numbers, name) for name in StepNumbers.__struct_fields__}
    if not any(is_array(value) for value in given.values()):
        return _of_one_kind(question, numbers, model, card)
    return _of_all_kinds(question, given, model, card)


def _of_all_kinds(question: Training, given: dict[str, Number], model: Model, card: Accelerator | None) -> StepBytes:
    """Layouts of one kind (alike in what is cut, accumulated and seen through a window) are asked together."""
    import numpy as np

    columns = dict(zip(given, np.broadcast_arrays(*given.values()), strict=True))
    found = {name: np.zeros(columns["seq"].shape, dtype=np.int64) for name in StepBytes.__struct_fields__}
    for chosen in _kinds(question, columns, model):
        numbers = StepNumbers(**{name: _one_if_equal(column[chosen]) for name, column in columns.items()})
        sizes = _of_one_kind(question, numbers, model, card)
        for name, out in found.items():
            out[chosen] = getattr(sizes, name)
    return StepBytes(**found)


def _kinds(question: Training, columns: dict[str, Any], model: Model) -> list[Any]:
    """Indices of the layouts of each kind."""
    import numpy as np

    parallel, dp = question.parallel, columns["dp"]
    shards = dp * parallel.cp // columns["replicate"]
    signs = [columns["accumulate"] > 1, columns["replicate"] > 1, dp > 1, shards > 1, columns["gpus"] > 1]
    signs += [dp // columns["replicate"] > 1, *(columns["seq"] >= window for window in sorted(windows_of(model)))]
    if not _one_recipe(question, dp, model):
        signs += [dp == ranks for ranks in np.unique(dp)]
    code = sum(sign.astype(np.int64) << bit for bit, sign in enumerate(signs))
    kinds = np.unique(code)
    return [slice(None)] if len(kinds) == 1 else [np.flatnonzero(code == kind) for kind in kinds]


def _one_recipe(question: Training, dp: Any, model: Model) -> bool:
    """Whether the framework does the same for the fewest and the most of several data-parallel ranks."""
    parallel = [int(dp[dp > 1].min()), int(dp.max())] if (dp > 1).any() else [1, 1]
    least, most = (resolved(_with(question, dp=ranks), model)[0] for ranks in parallel)
    return least == most


def _with(question: Training, **layout: int) -> Training:
    return msgspec.structs.replace(question, parallel=msgspec.structs.replace(question.parallel, **layout))


def _one_if_equal(column: Any) -> Number:
    """A column whose elements are all the same as the one number that it is."""
    first = column.flat[0].item()
    return first if (column == first).all() else column


def _first(value: Number) -> int:
    return int(value.flat[0]) if is_array(value) else int(value)


def _of_one_kind(question: Training, numbers: StepNumbers, model: Model, card: Accelerator | None) -> StepBytes:
    layout = {"dp": _first(numbers.dp), "replicate": _first(numbers.replicate)}
    asked = msgspec.structs.replace(_with(question, **layout), seq=_first(numbers.seq))
    recipe, _ = resolved(asked, model)
    structure = structure_under(asked, model, _fitted(recipe, card))
    found = []
    for kind in structure.ranks:
        rank = rank_of(kind, structure, numbers)
        found.append(counters(rank, instants(rank), numbers=numbers, card=card))
    return StepBytes(
        allocated_bytes=maximum(*(c.allocated_bytes for c in found)),
        reserved_bytes=maximum(*(whole(c.reserved_bytes) for c in found)),
        device_bytes=maximum(*(c.device_bytes for c in found)),
    )


def _fitted(recipe: Recipe, card: Accelerator | None) -> Recipe:
    return attention_on(card, recipe)[0]
