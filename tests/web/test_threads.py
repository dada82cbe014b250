"""Answers are worked out once and in turn, whoever asks at the same time."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore
from typing import Any

import pytest

from vramcast.errors import QuestionError
from vramcast.web.threads import KEPT, Answers


def test_what_is_asked_at_once_is_worked_out_once() -> None:
    asked, go = [], Event()

    def ask(words: dict[str, Any]) -> str:
        asked.append(words)
        assert go.wait(60)
        return f"answer to {words['model']}"

    answers = Answers(ask, turn=Semaphore(2))
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(answers.of, {"model": "a"}) for _ in range(4)]
        go.set()
        assert {one.result() for one in waiting} == {"answer to a"}
    assert asked == [{"model": "a"}]


def test_an_error_is_told_again_and_gives_its_turn_back() -> None:
    asked = []

    def ask(words: dict[str, Any]) -> str:
        asked.append(words)
        raise QuestionError("no such model")

    answers = Answers(ask, turn=Semaphore(1))
    for _ in range(2):
        with pytest.raises(QuestionError):
            answers.of({"model": "a"})
    assert len(asked) == 2


def test_the_oldest_answers_leave() -> None:
    asked = []
    answers = Answers(lambda words: asked.append(words["n"]) or words["n"], turn=Semaphore(1))
    for n in range(1, KEPT + 3):
        answers.of({"n": n})
    answers.of({"n": KEPT + 2})
    answers.of({"n": 1})
    assert asked == [*range(1, KEPT + 3), 1]
