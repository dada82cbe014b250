"""No answer moves unseen: every question of the ledger of answers, term by term (tools/build_answers.py says what it is not)."""

from pathlib import Path

import build_answers
import pytest
from answers.proposed import proposed
from answers.text import changes, parse, shown, written


@pytest.mark.parametrize("path", build_answers.topics(), ids=lambda path: path.stem)
def test_answers_are_those_of_the_last_release_notes(path: Path) -> None:
    moved = [*build_answers.wrong_answers(path)]
    assert not moved, (
        "answers changed: if they are right, run python tools/build_answers.py and say why in CHANGELOG.md\n"
        + "\n".join(moved[:20])
    )


def test_every_row_of_the_tables_is_asked() -> None:
    held = {path.stem: parse(path.read_text("utf-8")) for path in build_answers.topics()}
    missing = [question for topic, question in proposed() if question not in held.get(topic, {})]
    assert not missing, "run python tools/build_answers.py --propose: not asked yet\n" + "\n".join(missing)


def test_what_is_written_reads_back() -> None:
    answers = {"serve x --gpu y": {"rank 0": {"weights": shown(12), "why not": shown("a b=c"), "share": shown(0.25)}}}
    answers["serve x --gpu y"]["rank 0"] = {name.replace(" ", "_"): v for name, v in answers["serve x --gpu y"]["rank 0"].items()}
    assert parse(written("topic", answers)) == answers
    assert shown("a b=c") == "a_b:c"


def test_a_change_is_told_by_term_and_in_percent() -> None:
    old, new = (
        {"rank 0": {"weights": "1000", "graphs": "10", "gone": "1"}},
        {"rank 0": {"weights": "1010", "graphs": "10", "new": "2"}},
    )
    assert [*changes(old, new)] == ["rank 0: weights 1000 -> 1010 (+1.0%)", "rank 0: gone 1 -> none", "rank 0: new none -> 2"]
    assert [*changes({"a": {"b": "1000"}}, {"a": {"b": "1004"}}, least=0.005)] == []
    assert [*changes({"a": {"b": "1000"}}, {"a": {"b": "1006"}}, least=0.005)] == ["a: b 1000 -> 1006 (+0.6%)"]


def test_whole_numbers_are_held_exactly_and_others_but_for_rounding() -> None:
    assert [*changes({"a": {"b": "10000000"}}, {"a": {"b": "10000001"}})]
    assert not [*changes({"a": {"b": "0.1234567"}}, {"a": {"b": "0.1234568"}})]
    assert [*changes({"a": {"b": "0.1234567"}}, {"a": {"b": "0.1234667"}})]
