"""The seconds of many steps of one deployment (a ``speed.step.Step``) at once: to the last digits those of each alone.

Rows are rounded to captured graphs, so that few different ones are met: each is asked once and dealt out to its steps. What
depends on contexts goes through the kernel laws as arrays.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from vramcast.models.operations import Batch, Exchange
from vramcast.quantity import is_array, is_nothing

_WIDE = 2**20  # above the rows of any step, so that three counts make one key
Key = tuple[int, int, int]


def seconds_of_many(step: Any, batch: Batch) -> Any:
    """Seconds of each step of ``batch``, whose numbers are arrays."""
    if step.stream is not None:  # llama.cpp and transformers: few deployments, asked one by one
        return _one_by_one(step, batch)
    own, prompts = batch.times(1 / step.ranks), not is_nothing(batch.prefills)
    gpu = _rows_s(step, own, batch.tokens, prompts=prompts)
    if not is_nothing(batch.decodes):
        gpu = gpu + _present(step.decode_seconds, own, "decodes")
    if prompts:
        gpu = gpu + _present(step.prefill_seconds, own, "prefills")
    return step.floored(gpu, prompt_tokens=int(prompts)) + step.host_seconds(own.decodes + own.prefills)


def _rows_s(step: Any, own: Batch, everyone: Any, *, prompts: bool) -> Any:
    """What depends on rows alone: each different triple of rows, logits and rows that meet in experts is asked once."""
    import numpy as np

    rounding = step.rounded_rows if prompts else step.padded
    rows, logits = _looked_up(rounding, own.tokens), np.maximum(1, _looked_up(step.padded, own.sampled))
    meeting = _looked_up(rounding, np.maximum(own.tokens, everyone)) if step.ranks > 1 else rows
    codes, places = np.unique((rows * _WIDE + logits) * _WIDE + meeting, return_inverse=True)
    keys = [(code // _WIDE**2, code // _WIDE % _WIDE, code % _WIDE) for code in codes.tolist()]
    unknown = [key for key in keys if key not in step.rows_s]
    if unknown:
        step.rows_s.update(zip(unknown, _asked(step, unknown), strict=True))
    return np.array([step.rows_s[key] for key in keys])[places]


def _asked(step: Any, keys: Sequence[Key]) -> list[float]:
    """Seconds of each triple. An exchange picks its kernel by its size, so that it is asked one by one."""
    import numpy as np

    rows, logits, meeting = (np.array(column, dtype=float) for column in zip(*keys, strict=True))
    batch = Batch(prefills=rows, prefill_tokens=1, finishing=logits)
    together = Batch(prefills=meeting / step.ranks, prefill_tokens=1)
    found = np.zeros(len(keys))
    for one in step.by_rows:
        if isinstance(one, Exchange):
            alone = (Batch(prefills=row, prefill_tokens=1, finishing=own) for row, own, _ in keys)
            found = found + np.array([step.operation_seconds(one, each) for each in alone])
        else:
            found = found + step.operation_seconds(one, together if step.meets(one) else batch)
    return [float(seconds) for seconds in found]


_tables: dict[Any, Any] = {}


def _looked_up(rounding: Callable[[float], int], counts: Any) -> Any:
    """Rows rounded as ``rounding`` does each: a table of whole numbers, which grows with the most that was asked."""
    import numpy as np

    whole = np.rint(counts).astype(np.int64)
    most = int(whole.max(initial=0))
    key = getattr(rounding, "__func__", rounding), getattr(getattr(rounding, "__self__", None), "pads", None)
    known = _tables.get(key)
    if known is None or len(known) <= most:
        known = np.array([rounding(count) for count in range(max(1024, 2 * most + 1))], dtype=np.int64)
        _tables[key] = known
    return known[whole]


def _present(seconds: Callable[[Batch], Any], batch: Batch, name: str) -> Any:
    """Seconds where any such sequence is, none where the count is zero."""
    import numpy as np

    counts = getattr(batch, name)
    if not is_array(counts) or counts.all():
        return seconds(batch)
    return np.where(counts > 0, seconds(msgspec.structs.replace(batch, **{name: np.where(counts > 0, counts, 1.0)})), 0.0)


def _one_by_one(step: Any, batch: Batch) -> Any:
    """Each element as its own step."""
    import numpy as np

    given = {name: getattr(batch, name) for name in Batch.__struct_fields__ if is_array(getattr(batch, name))}
    columns = dict(zip(given, np.broadcast_arrays(*given.values()), strict=True))
    shape = next(iter(columns.values())).shape
    found = [
        step.seconds(msgspec.structs.replace(batch, **{name: column.flat[i].item() for name, column in columns.items()}))
        for i in range(int(np.prod(shape)))
    ]
    return np.array(found).reshape(shape)
