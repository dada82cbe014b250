"""A deep model traced at a few small depths: the whole log is written from two of them and checked against a third."""

from collections.abc import Callable

from vramcast.tracing.extrapolation.depth import deepen, same_sequence
from vramcast.tracing.request import TraceResult


def trace_deep(at: Callable[[int], TraceResult], depths: tuple[int, ...], layers: int) -> TraceResult | None:
    """The result for ``layers`` layers from those at a few depths; None when they do not determine it.

    ``at``: traces so many layers. Where three depths disagree the next one takes the place of the first: a stack may need more
    layers until one more only repeats. Two depths are those of a stack that another rank's three have shown to repeat.
    """
    known = [at(depth) for depth in depths]
    found = _written(known, depths, layers)
    further = 2 * depths[-1] - depths[-2]
    even = len(depths) == 3 and depths[2] - depths[1] == depths[1] - depths[0]
    if found is None and even and not any(each.error for each in known) and 2 * further < layers:
        depths = (*depths[1:], further)
        found = _written([*known[1:], at(further)], depths, layers)
    return found


def _written(shallow: list[TraceResult], depths: tuple[int, ...], layers: int) -> TraceResult | None:
    first, second = shallow[:2]
    period = depths[1] - depths[0]
    log = deepen(first.log, second.log, (layers - depths[0]) // period)
    if log is None or any(each.error for each in shallow):
        return None
    for third, deep in zip(shallow[2:], depths[2:], strict=True):
        check = deepen(first.log, second.log, (deep - depths[0]) // period)
        if check is None or not same_sequence(check, third.log):
            return None
    return TraceResult(
        log=log,
        backend=first.backend,
        depths=depths,
        steps=first.steps,
        parameters=_line(first.parameters, second.parameters, depths, layers),
        trainable=_line(first.trainable, second.trainable, depths, layers),
        operators=sum(each.operators for each in shallow),
        seconds=sum(each.seconds for each in shallow),
        attention=_counts(first.attention, second.attention, depths, layers),
        guessed=_counts(first.guessed, second.guessed, depths, layers),
        notes=first.notes,
        outside_bytes=_line(first.outside_bytes, second.outside_bytes, depths, layers),
    )


def _line(first: int, second: int, depths: tuple[int, ...], layers: int) -> int:
    return first + (second - first) * (layers - depths[0]) // (depths[1] - depths[0])


def _counts(first: dict[str, int], second: dict[str, int], depths: tuple[int, ...], layers: int) -> dict[str, int]:
    return {name: _line(first.get(name, 0), count, depths, layers) for name, count in second.items()}
