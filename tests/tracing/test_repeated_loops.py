"""Evaluation loops that ask for the same memory again and again end early; nothing else does."""

import ast
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from vramcast.tracing.execution.repeated_loops import _FOLLOW, Loops, _compiled, _covers, _Followed, _shapes  # noqa: E402


def _session() -> Any:
    log = SimpleNamespace(allocations=[])
    recorder = SimpleNamespace(log=log, live_bytes=0)
    return SimpleNamespace(mode=SimpleNamespace(operators=0), recorder=recorder, notes={}, made_steps=0)


def _round(session: Any, size: int = 64) -> None:
    session.mode.operators += 10
    session.recorder.log.allocations.append(SimpleNamespace(size=size))


def test_a_loop_whose_rounds_repeat_themselves_ends_and_is_told() -> None:
    session = _session()
    for _ in Loops(session, seconds=0).follow(range(1000), "estimate_loss", 7):
        _round(session)
    assert len(session.recorder.log.allocations) == 7
    assert list(session.notes) == [
        "the loop of estimate_loss in line 7 asks for the same memory in every round: ended after 7 rounds"
    ]


@pytest.mark.parametrize("kind", ["grows", "keeps", "steps", "goes backward", "asks for nothing", "is short"])
def test_a_loop_that_does_anything_else_runs_as_it_is(kind: str) -> None:
    session = _session()
    loops = Loops(session, seconds=1e6 if kind == "is short" else 0)
    rounds = 0
    for rounds in loops.follow(range(1, 51), "evaluate", 1):
        if kind != "asks for nothing":
            _round(session, size=rounds if kind == "grows" else 64)
        session.recorder.live_bytes += kind == "keeps"
        session.made_steps += kind == "steps"
        loops.backwards += kind == "goes backward"
    assert (rounds, session.notes) == (50, {})


def test_micro_batches_of_a_step_are_cut_to_the_last() -> None:
    session = _session()
    loops = Loops(session, seconds=0)
    rounds = []
    for number in loops.follow(range(40), "train", 3, True):
        _round(session)
        loops.backwards += 1
        rounds.append(number)
    assert rounds == [*range(7), 39]
    assert any(note.endswith("ended after 7 rounds, and the last") for note in session.notes)


def test_micro_batches_that_are_all_run_are_not_told_of() -> None:
    session = _session()
    assert sum(1 for _ in Loops(session, seconds=0).follow(range(8), "train", 3, True) if _round(session) is None) == 8
    assert session.notes == {}


def test_a_micro_batch_is_covered_by_one_that_is_as_long_in_every_dimension() -> None:
    traced = {"input_ids": (4, 100), "labels": (4, 100)}
    assert _covers(traced, {"input_ids": (4, 90), "labels": (4, 90)})
    assert not _covers(traced, {"input_ids": (4, 101), "labels": (4, 100)})
    assert not _covers(traced, {"input_ids": (4, 100), "labels": (4, 100), "pixel_values": (1, 3)})
    assert not _covers({}, {})


def test_only_loops_of_evaluating_functions_are_followed_and_lines_stay() -> None:
    seen: list[tuple[str, int]] = []

    def follow(given: Any, name: str, line: int, accumulates: bool) -> Any:
        assert accumulates is (name == "train_one")
        seen.append((name, line))
        return given

    text = """
def estimate_loss(losses):
    for k in range(2):
        losses[k] = 1
    return 2
def validate(loader):
    for batch in loader:
        last = batch
    return last
def train(loader):
    for batch in loader:
        last = batch
    return last
def train_one(config, loss):
    for micro in range(config["grad_accum_steps"]):
        loss.backward()
        if micro == config["grad_accum_steps"] - 1:
            last = 4
    return last
class Loss:
    def backward(self):
        pass
found = estimate_loss({}) + validate([1, 2]) + train([1]) + train_one({"grad_accum_steps": 5}, Loss())
"""
    names: dict[str, Any] = {_FOLLOW: follow}
    exec(_compiled(text, "train.py"), names)
    assert (names["found"], seen) == (9, [("estimate_loss", 3), ("train_one", 15)])
    assert names["train"].__code__.co_firstlineno == 10


@pytest.mark.parametrize(
    "loop",
    [
        "def evaluate(loader):\n    for batch in loader:\n        use(batch)",
        "def evaluate(n):\n    for i in range(n):\n        use(lengths[i])",
        "def evaluate(it):\n    for i in range(9):\n        use(next(it))",
        "def evaluate(m):\n    for i in range(9):\n        kept.append(m().cpu())",
        "def build_retrieval_index(m):\n    for i in range(9):\n        m()",
        "for k in range(len(accumulated_prompts)):\n    use()",
        "def train(accum_steps):\n    for k in range(accum_steps):\n        use()",
    ],
)
def test_rounds_that_may_differ_are_never_left_out(loop: str) -> None:
    followed = _Followed()
    followed.visit(ast.parse(loop))
    assert not followed.any


def test_losses_that_are_kept_as_numbers_do_not_hold_a_loop() -> None:
    followed = _Followed()
    followed.visit(ast.parse("def evaluate(m):\n    for i in range(9):\n        kept.append(m(get_batch('val')).item())"))
    assert followed.any


def test_a_batch_with_more_than_tensors_is_covered_by_none() -> None:
    plain = {"input_ids": torch.zeros(1, 8)}
    assert _shapes(plain) == {"input_ids": (1, 8)}
    assert _shapes(plain | {"images": [torch.zeros(3, 4)]}) == {}
