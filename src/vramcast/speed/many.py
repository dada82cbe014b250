"""The seconds of many steps of one deployment (a ``speed.step.Step``) at once: to the last digits those of each alone.

Rows are rounded to captured graphs, so that few different ones are met: each is asked once and dealt out to its steps. What
depends on contexts goes through the kernel laws as arrays.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from vramcast.models.operations import Batch, Exchange, Operation
from vramcast.quantity import is_array, is_nothing


def seconds_of_many(step: Any, batch: Batch) -> Any:
    """Seconds of each step of ``batch``, whose numbers are arrays."""
    if step.stream is not None:  # llama.cpp and transformers: few deployments, asked one by one
        return _one_by_one(step, batch)
    own, prompts = batch.times(1 / step.ranks), not is_nothing(batch.prefills)
    gpu = _rows_s(step, own, batch.tokens, prompts=prompts)
    if not is_nothing(batch.decodes):
        gpu = gpu + _present(partial(step.decode_seconds, beside=prompts), own, "decodes")
    if prompts:
        gpu = gpu + _present(step.prefill_seconds, own, "prefills")
    return step.floored(gpu, prompt_tokens=int(prompts), context=own.decode_past) + step.host_seconds(own.decodes + own.prefills)


class Rounding:
    """Counts rounded as ``function`` rounds each: tables of whole numbers, which grow with the most that was asked.

    ``values``: what counts are rounded to, ascending; ``places``: of each count's value among them; ``asked``: which values steps
    asked for so far, by count: the next step asks for those together, since a law takes as long for ten rows as for one.
    """

    def __init__(self, function: Callable[[float], int]) -> None:
        import numpy as np

        self._function, self.values, self.places = function, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self.asked: dict[str, set[int]] = {}

    def of(self, counts: Any) -> Any:
        """Places of the counts' values."""
        import numpy as np

        whole = np.rint(counts).astype(np.int64)
        most = int(whole.max(initial=0))
        if most >= len(self.places):
            rounded = [max(1, self._function(count)) for count in range(max(_FIRST, 2 * most) + 1)]
            self.values, self.places = np.unique(np.array(rounded, dtype=np.int64), return_inverse=True)
        return self.places[whole]

    def with_asked(self, what: str, values: Any) -> Any:
        """``values`` and those that other steps asked for of this count, where these are few."""
        import numpy as np

        asked = self.asked.setdefault(what, set())
        asked.update(values.tolist())
        if len(asked) > _MOST_TOGETHER:
            self.asked[what] = set(values.tolist())
        return np.array(sorted(self.asked[what]), dtype=np.int64)


_roundings: dict[tuple[str, bool], Rounding] = {}
_FIRST, _MOST_TOGETHER = 2048, 64


def _rounding(step: Any, *, prompts: bool) -> Rounding:
    """The rounding of a step's rows, which is that of all engines that pad alike."""
    key = ("rounded" if prompts else "padded", step.on.engine.pads)
    if key not in _roundings:
        _roundings[key] = Rounding(step.rounded_rows if prompts else step.padded)
    return _roundings[key]


def _rows_s(step: Any, own: Batch, everyone: Any, *, prompts: bool) -> Any:
    """What depends on rows alone: of a rank's tokens, of its logits, and of the tokens that all ranks' experts see.

    Each operation sees one of the three, so that each count has a table of its own: seconds by what it is rounded to.
    """
    import numpy as np

    rounding, padding = _rounding(step, prompts=prompts), _rounding(step, prompts=False)
    counts = {"tokens": (own.tokens, rounding), "sampled": (own.sampled, padding)}
    if step.ranks > 1:
        counts["meeting"] = (np.maximum(own.tokens, everyone), rounding)
    return sum(_of_one_count(step, what, given, table) for what, (given, table) in counts.items())


def _of_one_count(step: Any, what: str, counts: Any, rounding: Rounding) -> Any:
    """Seconds of the operations that see this count; each different one is asked once, NaN where it was not yet."""
    import numpy as np

    places = rounding.of(counts)
    key = (what, id(rounding))
    known = step.tables.get(key)
    if known is None or len(known) < len(rounding.values):
        grown = np.full(len(rounding.values), np.nan)
        grown[: 0 if known is None else len(known)] = () if known is None else known
        known = step.tables[key] = grown
    found = known[places]
    if (unknown := np.isnan(found)).any():
        new = np.unique(np.atleast_1d(places)[np.atleast_1d(unknown)])
        rows = rounding.with_asked(what, rounding.values[new])
        rows = rows[np.isnan(known[np.searchsorted(rounding.values, rows)])]
        known[np.searchsorted(rounding.values, rows)] = _asked(step, what, rows.astype(float))
        found = known[places]
    return found


def _asked(step: Any, what: str, rows: Any) -> Any:
    """Seconds of the operations that see a count, for each of its values."""
    import numpy as np

    found = np.zeros(len(rows))
    for one in step.by_rows:
        if _sees(step, one) != what:
            continue
        if isinstance(one, Exchange) and one.collective == "all_to_all":  # its kernels change with its size
            found = found + np.array([step.operation_seconds(one, _batch(what, row, step.ranks)) for row in rows.tolist()])
        else:
            found = found + step.operation_seconds(one, _batch(what, rows, step.ranks))
    return found


def _sees(step: Any, one: Operation) -> str:
    """Which count decides an operation: tokens, sampled, or the tokens of all ranks that meet in experts."""
    if step.ranks > 1 and step.meets(one):
        return "meeting"
    return "sampled" if getattr(one, "rows", "") == "sampled" else "tokens"


def _batch(what: str, rows: Any, ranks: int) -> Batch:
    if what == "sampled":
        return Batch(prefills=1, prefill_tokens=1, finishing=rows)
    return Batch(prefills=rows / ranks if what == "meeting" else rows, prefill_tokens=1, finishing=1)


def _present(seconds: Callable[[Batch], Any], batch: Batch, name: str) -> Any:
    """Seconds where any such sequence is, none where the count is zero."""
    import numpy as np

    counts = getattr(batch, name)
    if not is_array(counts) or counts.all():
        return seconds(batch)
    return np.where(counts > 0, seconds(msgspec.structs.replace(batch, **{name: np.where(counts > 0, counts, 1.0)})), 0.0)


def _one_by_one(step: Any, batch: Batch) -> Any:
    """Each element as its own step, under its own limits of the scheduler."""
    import numpy as np

    given = {name: getattr(batch, name) for name in Batch.__struct_fields__ if is_array(getattr(batch, name))}
    limits = (step.on.chunk_tokens, step.on.max_seqs)
    *arrays, chunks, seats = np.broadcast_arrays(*given.values(), *limits)
    bounded = any(map(is_array, limits))
    found = []
    for i in range(chunks.size):
        own = step.under(chunk_tokens=chunks.flat[i].item(), max_seqs=seats.flat[i].item()) if bounded else step
        told = {name: column.flat[i].item() for name, column in zip(given, arrays, strict=True)}
        found.append(own.seconds(msgspec.structs.replace(batch, **told)))
    shape = chunks.shape
    return np.array(found).reshape(shape)
