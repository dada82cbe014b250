"""The largest n that still fits: one exact search for a need that grows with n, and one for a yes or no from a near guess.

Engines, limits and the tracer ask here. A need is almost a line in n, so that a few questions do where a bisection takes twenty.
"""

from collections.abc import Callable

from vramcast.quantity import Number, where

_HALVE_EVERY = 4  # a kink in the need can slow interpolation down: every fourth step halves instead


def largest_that_fits(need: Callable[[int], float], *, room: float, most: int, first: int = 1) -> int:
    """The largest n of 0 to ``most`` with ``need(n) <= room``; ``need`` never falls with n, and is infinite where refused.

    ``first``: where to ask first, ``most`` itself when all of it often fits.
    """
    low, high = (0, 0.0), (most + 1, float("inf"))
    probe, steps = min(max(first, 1), most), 0
    while high[0] - low[0] > 1:
        size = need(probe)
        before = low
        low, high = ((probe, size), high) if size <= room else (low, (probe, size))
        steps += 1
        probe = _next(before, low, high, room=room, halve=steps % _HALVE_EVERY == 0)
    return low[0]


def _next(before: tuple[int, float], low: tuple[int, float], high: tuple[int, float], *, room: float, halve: bool) -> int:
    """Where to look next: on the line through what is known, strictly between what fits and what does not."""
    known = high if high[1] < float("inf") else before
    if halve and high[1] < float("inf"):
        guess = (low[0] + high[0]) // 2
    elif known[0] != low[0] and known[1] != low[1] and low[0] > 0:
        guess = int(low[0] + (room - low[1]) * (known[0] - low[0]) / (known[1] - low[1]))
    else:
        guess = low[0] * 2
    return max(low[0] + 1, min(guess, high[0] - 1))


def edge_near(guess: int, fits: Callable[[int], bool], *, most: int) -> int:
    """The largest n of 0 to ``most`` that fits, looked for from a guess that is nearly right: two questions when it is.

    ``fits(n)`` is true up to the edge and false beyond it.
    """
    low, high = 0, most + 1
    probe, step = min(max(guess, 1), most), 1
    while high - low > 1:
        if fits(probe):
            low = probe
            probe = min(low + step, (low + high) // 2) if high <= most else min(low + step, most)
        else:
            high = probe
            probe = max(high - step, (low + high) // 2) if low else max(high - step, 1)
        step *= 2
        probe = min(max(probe, low + 1), high - 1)
    return low


def largest_of_each(need: Callable[[Number], Number], *, room: Number, most: int) -> Number:
    """The same for arrays: each element's largest n of 0 to ``most``, halving what is left of all of them together."""
    low, high = 0, most
    for _ in range(most.bit_length()):
        middle = (low + high + 1) // 2
        fits = need(middle) <= room
        low, high = where(fits, middle, low), where(fits, high, middle - 1)
    return low
