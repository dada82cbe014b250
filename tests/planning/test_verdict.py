"""The verdict follows the margin, and the interval decides how sure it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.ledger import Instant, Interval, RankMemory, Term
from vramcast.planning.verdict import judge, probability_of_fit
from vramcast.units import GiB


def rank(needed: int, interval: Interval | None = None) -> RankMemory:
    term = Term(name="weights", bytes=needed, why="given")
    return RankMemory(
        rank="0",
        instants=(Instant(name="steady state", terms=(term,)),),
        allocated_bytes=needed,
        reserved_bytes=needed,
        device_bytes=needed,
        needed_bytes=needed,
        claimed_bytes=needed,
        interval=interval,
    )


def five_percent(needed: int) -> Interval:
    return Interval(low=int(needed * 0.95), high=int(needed * 1.05), coverage=0.9, cases=100)


@pytest.mark.parametrize(("margin_gib", "verdict"), [(10, "fits"), (0.2, "tight"), (-0.2, "tight"), (-10, "no")])
def test_verdicts(margin_gib: float, verdict: str) -> None:
    fit = judge(
        rank(40 * GiB, five_percent(40 * GiB)), capacity_bytes=80 * GiB, margin_bytes=int(margin_gib * GiB), binding="weights"
    )
    assert fit.verdict == verdict


def test_an_engine_that_refuses_to_start_does_not_fit() -> None:
    fit = judge(
        rank(GiB, five_percent(GiB)), capacity_bytes=2 * GiB, margin_bytes=-1000, binding="kv_cache", error="No available memory"
    )
    assert fit.verdict == "no"
    assert fit.error == "No available memory"


def test_without_an_interval_only_the_sign_speaks() -> None:
    fit = judge(rank(GiB), capacity_bytes=2 * GiB, margin_bytes=1, binding="weights")
    assert (fit.verdict, fit.probability) == ("fits", None)


@given(st.integers(1, 10**12), st.integers(1, 10**12), st.integers(1, 10**12))
def test_more_room_never_lowers_the_probability(needed: int, room: int, more: int) -> None:
    interval = Interval(low=max(1, needed // 2), high=needed * 2 + 2, coverage=0.9, cases=9)
    before = probability_of_fit(needed_bytes=needed, room_bytes=room, interval=interval)
    after = probability_of_fit(needed_bytes=needed, room_bytes=room + more, interval=interval)
    assert before is not None and after is not None
    assert 0 <= before <= after <= 1
