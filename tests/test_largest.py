"""The largest that fits: the same answer as trying every number, in a handful of questions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vramcast.largest import largest_of_each, largest_that_fits


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**4)), min_size=1, max_size=4),
    st.integers(0, 10**7),
    st.integers(1, 500),
    st.integers(1, 600),
    st.integers(0, 600),
)
def test_it_is_the_largest(lines: list[tuple[int, int]], room: int, most: int, refused_from: int, first: int) -> None:
    def need(n: int) -> float:
        return float("inf") if n >= refused_from else max(a + b * n for a, b in lines)

    expected = max((n for n in range(most + 1) if n == 0 or need(n) <= room), default=0)
    assert largest_that_fits(need, room=room, most=most, first=first) == expected


def test_a_line_takes_a_handful_of_questions() -> None:
    asked = []

    def need(n: int) -> float:
        asked.append(n)
        return 1000 + 37 * n

    assert largest_that_fits(need, room=80_000, most=65_536) == (80_000 - 1000) // 37
    assert len(asked) <= 6


def test_each_element_finds_its_own_largest() -> None:
    rooms, steps = np.array([0, 7, 100, 10**9]), np.array([3, 3, 7, 1])
    together = largest_of_each(lambda n: n * steps, room=rooms, most=50_000)
    alone = [
        largest_that_fits(lambda n, step=step: n * step, room=room, most=50_000)
        for room, step in zip(rooms.tolist(), steps.tolist(), strict=True)
    ]
    assert together.tolist() == alone == [0, 2, 14, 50_000]
