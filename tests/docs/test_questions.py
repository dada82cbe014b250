"""Every question of docs/questions.md is answered by its command, with the lines that the page shows."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("build_questions", ROOT / "tools" / "build_questions.py")
assert _SPEC and _SPEC.loader
TOOL = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(TOOL)
PAGE = (ROOT / "docs" / "questions.md").read_text()


def test_all_thirty_are_there() -> None:
    asked = [question.asked for group in TOOL.QUESTIONS.values() for question in group]
    assert [int(text.partition(".")[0]) for text in asked] == [*range(1, 31)]


@pytest.mark.parametrize("question", [q for group in TOOL.QUESTIONS.values() for q in group], ids=lambda q: q.asked)
def test_a_question_is_answered(question) -> None:
    code, text = TOOL.answer(question.command)
    assert code in (0, 1) or "use tp of" in text
    assert all(re.search(pattern, text, re.M) for pattern in question.shows), question.shows
    assert f"$ vramcast {question.command}" in PAGE
