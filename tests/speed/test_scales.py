"""Factors of a machine against the solution of their least squares on paper."""

import math

import pytest

from vramcast.speed.scales import PRIOR, RESIDUAL, Scales, fit


@pytest.mark.parametrize("name", sorted(PRIOR))
def test_one_run_moves_a_factor_by_its_share_of_the_variance(name: str) -> None:
    """A single figure that one factor governs: its logarithm is that of measured/forecast times P^2 / (P^2 + R^2)."""
    forecast, measured = 1.0, 1.1
    found = fit(lambda scales: [forecast * getattr(scales, name)], [measured])
    share = PRIOR[name] ** 2 / (PRIOR[name] ** 2 + RESIDUAL**2)
    assert math.log(getattr(found, name)) == pytest.approx(share * math.log(measured / forecast), rel=1e-3)
    assert all(getattr(found, other) == pytest.approx(1.0) for other in PRIOR if other != name)


def test_no_runs_leave_every_factor_alone() -> None:
    assert fit(lambda scales: [], []) == Scales()
