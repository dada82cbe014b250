"""Rows gathered after their first look: facts in our own format, which anyone can ask again."""

from pathlib import Path

from vramcast.truth.evaluation import evaluate
from vramcast.truth.first_look import read_looks

TRUTH = Path(__file__).parents[2] / "truth"


def test_fresh_training_rows_are_asked() -> None:
    found = evaluate([TRUTH / "fresh" / "training.jsonl"])
    assert found.rows == 74
    assert [row["reason"] for row in found.unexpressed] == ["no sequence length"]
    assert all(judged.keys["source"] for judged in found.judgements)


def test_their_first_looks_are_kept_as_they_were() -> None:
    looks = [look for look in read_looks(TRUTH / "first_look.jsonl") if look.source == "axolotl-ai-cloud/axolotl/pull/3800"]
    assert len(looks) == 15
    assert {look.ratio for look in looks if look.group.endswith("qwen3_5")} == {0.9142, 0.8933}


def test_fresh_serving_rows_are_asked() -> None:
    found = evaluate([TRUTH / "fresh" / "serving.jsonl"])
    assert len(found.judgements) >= 0.9 * found.rows
    weights = next(s for s in found.scores() if s.group == "all" and s.measure == "weights")
    assert weights.median_error is not None and weights.median_error < 0.01
