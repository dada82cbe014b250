import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vramcast.profiling.intervals import Spans, covered, gaps, holds, joined, overlap, union

interval = st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))
intervals = st.lists(interval, max_size=12)


def spans(pairs: list[tuple[int, int]]) -> Spans:
    return union(np.array([a for a, _ in pairs], dtype=np.int64), np.array([b for _, b in pairs], dtype=np.int64))


def instants(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for a, b in pairs for t in range(a, b)}


@given(intervals, intervals)
def test_lengths_are_those_of_sets_of_instants(first: list, second: list) -> None:
    a, b = spans(first), spans(second)
    assert a.length == len(instants(first))
    assert overlap(a, b) == len(instants(first) & instants(second))
    assert joined(a, b).length == len(instants(first) | instants(second))


@given(intervals, interval)
def test_covered_and_holds_agree_with_sets_of_instants(pairs: list, window: tuple[int, int]) -> None:
    a = spans(pairs)
    start, end = (np.array([t]) for t in window)
    assert covered(a, start, end)[0] == len(instants(pairs) & set(range(*window)))
    assert holds(a, start)[0] == (window[0] in instants(pairs))


@given(intervals)
def test_a_union_and_its_gaps_fill_the_span(pairs: list) -> None:
    a = spans(pairs)
    if a.start.size:
        assert a.length + gaps(a).length == a.end[-1] - a.start[0]
        assert (gaps(a).end > gaps(a).start).all()
