"""The verdict follows the margin, and the interval decides how sure it is."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vramcast
from vramcast.ledger import Fit, Instant, Interval, RankMemory, Term
from vramcast.planning.verdict import Load, exit_code, headline, judge, log_normal
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


def around(needed: int, margin: int, **more: object) -> Fit:
    chance = log_normal(five_percent(needed))
    return judge(rank(needed), capacity_bytes=2 * needed, margin_bytes=margin, chance=chance, **more)


@pytest.mark.parametrize(("margin_gib", "verdict", "code"), [(10, "fits", 0), (0.2, "tight", 0), (-0.2, "no", 1), (-10, "no", 1)])
def test_verdicts(margin_gib: float, verdict: str, code: int) -> None:
    fit = around(40 * GiB, int(margin_gib * GiB))
    assert (fit.verdict, exit_code(fit)) == (verdict, code)


def load(**more: object) -> Load:
    return Load(**{"asked": 5, "at_once": 3.55, "context": 4096, "longest": 14_000, "starts": 0.99, "most": None, **more})


def test_an_engine_that_starts_and_serves_fewer_says_so() -> None:
    fit = around(40 * GiB, -10 * GiB, load=load())
    assert (fit.verdict, exit_code(fit), headline(fit)) == ("partly", 1, "starts; 3.5 of 5 at once")
    shorter = around(40 * GiB, -10 * GiB, load=load(asked=1, at_once=0.3, longest=1200))
    assert headline(shorter) == "starts; requests of up to 1,200 of 4,096 tokens"
    assert around(40 * GiB, -10 * GiB, load=load(starts=0.4)).verdict == "no"


def test_an_engine_told_to_run_fewer_serves_them_partly_whatever_memory_there_is() -> None:
    fit = around(40 * GiB, 20 * GiB, load=load(at_once=50.0, most=4))
    assert (fit.verdict, headline(fit)) == ("partly", "starts; runs 4 of 5 at once, the most it is told to")


def test_what_ranks_hold_together_is_never_more_than_was_asked() -> None:
    """Eight ranks with room for 2.65 sequences each were told as 21.2 of 20 at once, although four of them are dealt three."""
    fit = vramcast.serve(
        "deepseek-ai/DeepSeek-R1", gpu="H200-SXM-141GBx8", context=128_000, concurrency=20, engine="vllm", tp=1, dp=8, ep=8
    ).fit
    assert fit.verdict == "partly"
    assert float(re.findall(r"([\d.]+) of 20 at once", headline(fit))[0]) < 20


def test_what_is_claimed_beyond_the_card_never_fits() -> None:
    claims = msgspec.structs.replace(rank(10 * GiB), claimed_bytes=25 * GiB)
    fit = judge(claims, capacity_bytes=24 * GiB, margin_bytes=5 * GiB, chance=log_normal(five_percent(10 * GiB)))
    assert (fit.verdict, fit.margin_bytes) == ("no", -GiB)


def test_an_engine_that_claims_more_than_the_card_serves_nothing() -> None:
    claims = msgspec.structs.replace(rank(10 * GiB), claimed_bytes=25 * GiB)
    fit = judge(claims, capacity_bytes=24 * GiB, margin_bytes=5 * GiB, chance=lambda room: None, load=load())
    assert (fit.verdict, fit.error) == ("no", "the engine claims 25.00 GiB of a card of 24.00 GiB")


def test_the_headline_never_contradicts_the_word() -> None:
    pessimist, optimist = (
        log_normal(Interval(low=a * GiB, high=b * GiB, coverage=0.9, cases=9)) for a, b in ((44, 48), (30, 34))
    )
    spare = judge(rank(40 * GiB), capacity_bytes=80 * GiB, margin_bytes=GiB, chance=pessimist)
    assert spare.verdict == "no" and "went beyond more often than not" in headline(spare)
    short = judge(rank(40 * GiB), capacity_bytes=80 * GiB, margin_bytes=-GiB, chance=optimist)
    assert short.verdict == "tight" and "stayed below more often than not" in headline(short)


def test_an_engine_that_refuses_to_start_does_not_fit() -> None:
    fit = judge(
        rank(GiB),
        capacity_bytes=2 * GiB,
        margin_bytes=-GiB // 9,
        chance=log_normal(five_percent(GiB)),
        error="No available memory",
    )
    assert fit.verdict == "no"
    assert fit.error == "No available memory"


def test_without_measured_cases_only_the_sign_speaks() -> None:
    fit = judge(rank(GiB), capacity_bytes=2 * GiB, margin_bytes=1, chance=log_normal(None))
    assert (fit.verdict, fit.probability) == ("fits", None)
    assert judge(rank(GiB), capacity_bytes=2 * GiB, margin_bytes=-1, chance=log_normal(None)).verdict == "no"


@given(st.integers(1, 10**12), st.integers(1, 10**12), st.integers(1, 10**12))
def test_more_room_never_lowers_the_probability(needed: int, room: int, more: int) -> None:
    chance = log_normal(Interval(low=max(1, needed // 2), high=needed * 2 + 2, coverage=0.9, cases=9))
    before, after = chance(room), chance(room + more)
    assert before is not None and after is not None
    assert 0 <= before <= after <= 1
