"""A deep model traced at three small depths: the whole log is written from two of them and checked against the third."""

from vramcast.tracing.extrapolation.depth import deepen, same_sequence
from vramcast.tracing.request import TraceResult


def trace_deep(shallow: list[TraceResult], depths: tuple[int, int, int], layers: int) -> TraceResult | None:
    """The result for ``layers`` layers from those of three depths; None when they do not determine it."""
    first, second, third = shallow
    period = depths[1] - depths[0]
    check, log = (deepen(first.log, second.log, (deep - depths[0]) // period) for deep in (depths[2], layers))
    failed = first.error or second.error or third.error
    if failed or check is None or log is None or not same_sequence(check, third.log):
        return None
    return TraceResult(
        log=log,
        backend=first.backend,
        depths=depths,
        steps=first.steps,
        parameters=_line(first.parameters, second.parameters, depths, layers),
        trainable=_line(first.trainable, second.trainable, depths, layers),
        operators=first.operators + second.operators + third.operators,
        seconds=first.seconds + second.seconds + third.seconds,
        attention=_counts(first.attention, second.attention, depths, layers),
        guessed=_counts(first.guessed, second.guessed, depths, layers),
        notes=first.notes,
        outside_bytes=_line(first.outside_bytes, second.outside_bytes, depths, layers),
    )


def _line(first: int, second: int, depths: tuple[int, int, int], layers: int) -> int:
    return first + (second - first) * (layers - depths[0]) // (depths[1] - depths[0])


def _counts(first: dict[str, int], second: dict[str, int], depths: tuple[int, int, int], layers: int) -> dict[str, int]:
    return {name: _line(first.get(name, 0), count, depths, layers) for name, count in second.items()}
