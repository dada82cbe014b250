"""Traced against published figures: the kept outcomes keep what the tracer is held to, and the page shows them."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "tracing"))


def test_most_published_peaks_are_met_within_one_per_cent() -> None:
    from public.outcomes import outcomes
    from public.score import points, share

    found = [point for point in points(ROOT / "truth", outcomes()) if point.measure == "allocated"]
    allocated = share("all", "allocated", found)
    assert allocated.rows >= 60
    assert allocated.within_1 >= 0.85
    assert allocated.within_3 >= 0.95


def test_most_reserved_peaks_are_met_within_three_per_cent() -> None:
    from public.outcomes import outcomes
    from public.score import points, share

    found = [point for point in points(ROOT / "truth", outcomes()) if point.measure == "reserved"]
    reserved = share("all", "reserved", found)
    assert reserved.rows >= 45
    assert reserved.within_1 >= 0.6
    assert reserved.within_3 >= 0.85


def test_the_page_shows_the_kept_outcomes() -> None:
    import public_page

    assert public_page.main(["--check"]) == 0, "run python benchmarks/tracing/public_page.py"
