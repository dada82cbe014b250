"""A few hundred damaged inputs of everything that is read: an answer, or one clear line. ``tools/fuzz.py`` runs millions."""

import pytest
from fuzzing.running import Failure, Tally, fuzz
from fuzzing.targets import TARGETS

pytestmark = pytest.mark.torch  # an unknown model_type asks transformers, where it is there
# Dear ones, by what an answer costs: a second or two each.
RUNS = {
    "training file": 120,
    "training text": 120,
    "launch": 100,
    "engine line": 120,
    "anything": 60,
    "serve": 120,
    "train": 80,
}
NOT_TIMED = ("too slow", "too much memory")  # a machine under load, or a first import: tools/fuzz.py tells


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs(name: str) -> None:
    tally = Tally()
    runs = RUNS.get(name, 300)
    failures = [one for one in fuzz(name, runs, 11, tally) if one.what not in NOT_TIMED]
    assert not failures, [(one.what, one.place, str(one.made)[:300]) for one in failures]
    assert tally.runs == runs
    assert tally.answered > 0, "no input got past the first check: the seeds are no longer valid"


def test_a_traceback_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_made: object) -> None:
        raise KeyError("layers")

    monkeypatch.setitem(TARGETS, "config", TARGETS["config"]._replace(ask=ask))
    found = list(fuzz("config", 3, 1, Tally()))
    assert [one.what for one in found] == ["KeyError: 'layers'"] * 3
    assert all(isinstance(one, Failure) for one in found)
