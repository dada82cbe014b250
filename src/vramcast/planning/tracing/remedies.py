"""What each remedy would save on a traced step, replayed or traced again with it, never guessed."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import msgspec

from vramcast.planning.tracing.answer import Traced
from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.reports.terms import Naming
from vramcast.tracing.request import TraceRequest
from vramcast.tracing.run import Tracer

_EIGHT_BITS = {"adamw", "adamw_foreach", "adamw_fused", "adamw_loop"}
_WORTH_NAMING = 0.005  # of reserved memory
_LOGITS_SHARE = 0.2  # of the largest tensor of the loss: what is smaller would be there with any loss


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """A change, the peaks with it and what it saves of each; ``how``: replayed (the same log) or traced (the step run again).

    What saves allocated memory may cost reserved memory, where its sizes leave holes that nothing fits.
    """

    change: str
    how: str
    allocated_bytes: int
    reserved_bytes: int
    saves_allocated_bytes: int
    saves_bytes: int


def remedies_of(traced: Traced, tracer: Tracer) -> tuple[Remedy, ...]:
    """Remedies for a traced step, the one that saves most reserved memory first; those that save next to nothing are left out."""
    found = [*_replayed(traced), *(_traced_again(traced, tracer) if traced.request else ())]
    least = _WORTH_NAMING * traced.reading.usage.peak_reserved_bytes
    return tuple(sorted((r for r in found if max(r.saves_bytes, r.saves_allocated_bytes) > least), key=lambda r: -r.saves_bytes))


def _replayed(traced: Traced) -> Iterator[Remedy]:
    reading, log = traced.reading, traced.result.log
    if reading.expandable is not None:
        yield _remedy(traced, "PYTORCH_ALLOC_CONF=expandable_segments:True", "replayed", reading.expandable)
    naming = Naming(log, serving=False)
    loss = {n: a.size for n, a in enumerate(log.allocations, 1) if naming.name(a)[0] == "loss"}
    large = [n for n, size in loss.items() if size > _LOGITS_SHARE * max(loss.values())]
    if large:
        usage = replay(log.without(large), reading.settings)
        yield _remedy(traced, "a loss that never holds all logits (Liger, chunked), at most", "replayed", usage)


def _traced_again(traced: Traced, tracer: Tracer) -> Iterator[Remedy]:
    request = traced.request
    assert request is not None
    for change, fields in _changes(request):
        result = tracer.trace(msgspec.structs.replace(request, **fields))
        if not result.error:
            yield _remedy(traced, change, "traced", replay(result.log, traced.reading.settings))


def _changes(request: TraceRequest) -> Iterator[tuple[str, dict[str, Any]]]:
    """What could be changed in a request, as people say it and as fields."""
    if request.task == "train":
        if request.checkpointing == "none":
            yield "--checkpointing full", {"checkpointing": "full"}
        if request.optimizer in _EIGHT_BITS and request.distribution.world == 1 and find_spec("bitsandbytes"):
            yield "--optimizer adamw_8bit", {"optimizer": "adamw_8bit", "backend": "cuda"}
        if request.optimizer in {"adamw", "adamw_foreach"}:
            yield "a fused update (fused=True)", {"optimizer": "adamw_fused", "backend": "cuda"}
        if request.keep_outputs:
            yield "the loop lets go of the outputs before backward", {"keep_outputs": False}
    if request.attention == "eager":
        yield "--attention sdpa", {"attention": "sdpa"}
    if request.micro_batch > 1:
        half = request.micro_batch // 2
        yield f"--micro-batch {half}", {"micro_batch": half}


def _remedy(traced: Traced, change: str, how: str, usage: Any) -> Remedy:
    return Remedy(
        change=change,
        how=how,
        allocated_bytes=usage.peak_allocated_bytes,
        reserved_bytes=usage.peak_reserved_bytes,
        saves_allocated_bytes=traced.reading.usage.peak_allocated_bytes - usage.peak_allocated_bytes,
        saves_bytes=traced.reading.usage.peak_reserved_bytes - usage.peak_reserved_bytes,
    )
