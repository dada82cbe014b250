"""Rows gathered after their first look: facts in our own format, which anyone can ask again."""

from pathlib import Path

import pytest

from vramcast.truth.evaluation import evaluate
from vramcast.truth.first_look import read_looks
from vramcast.truth.scales import IN_BYTES
from vramcast.units import GiB

TRUTH = Path(__file__).parents[2] / "truth"


def test_fresh_training_rows_are_asked() -> None:
    found = evaluate([TRUTH / "fresh" / "training.jsonl"])
    assert found.rows == 351
    reasons = [str(row["reason"]) for row in found.unexpressed]
    assert reasons.count("no sequence length") == 1
    assert sum("unknown method" in reason for reason in reasons) == 27  # PEFT methods without rules
    assert sum("is not in the catalogue" in reason for reason in reasons) == 6  # models whose checkpoints nobody described
    assert sum("without their sizes" in reason for reason in reasons) == 4 == len(reasons) - 34
    assert all(judged.keys["source"] for judged in found.judgements)


def test_their_first_looks_are_kept_as_they_were() -> None:
    looks = [look for look in read_looks(TRUTH / "first_look.jsonl") if look.source == "axolotl-ai-cloud/axolotl/pull/3800"]
    assert len(looks) == 15
    assert {look.ratio for look in looks if look.group.endswith("qwen3_5")} == {0.9142, 0.8933}


def test_megatron_s_optimizer_follows_its_zero_stage_without_a_word_for_it(tmp_path: Path) -> None:
    line = next(
        line
        for line in (TRUTH / "fresh" / "training.jsonl").read_text().splitlines()
        if "-pp2-resume-torch-dist-rope-embeddings-h100" in line
    )
    file = tmp_path / "rows.jsonl"
    file.write_text(
        line + "\n" + line.replace("replicated fp32 master+moments", "fp32 master copies").replace('"id":"', '"id":"silent-')
    )
    told, silent = (judged.pairs[0].predicted for judged in evaluate([file]).judgements)
    assert told == silent


def test_looks_in_bytes_keep_what_was_forecast() -> None:
    looks = [look for look in read_looks(TRUTH / "first_look.jsonl") if look.measure in IN_BYTES and look.look > 1]
    assert sum(look.speaks for look in looks) >= 0.95 * len(looks)
    gemma = next(look for look in looks if look.group.endswith("kubernetes-engine-samples gemma3") and look.measure == "overhead")
    assert gemma.ratio * gemma.predicted - gemma.predicted == pytest.approx(10.27 * GiB, rel=0.01)
    assert gemma.error("overhead") == pytest.approx(10.27 * GiB / gemma.scale, rel=0.01)


def test_fresh_serving_rows_are_asked() -> None:
    found = evaluate([TRUTH / "fresh" / "serving.jsonl"])
    assert found.rows == 356
    assert len(found.judgements) >= 0.9 * found.rows
    weights = next(s for s in found.scores() if s.group == "all" and s.measure == "weights")
    assert weights.median_error is not None and weights.median_error < 0.01


def test_a_counter_read_after_the_first_step_lacks_the_optimizer_s_states(tmp_path: Path) -> None:
    line = next(line for line in (TRUTH / "fresh" / "training.jsonl").read_text().splitlines() if "fresh8-gnosia" in line)
    row = line.replace('"foreach"', '"fused"')
    file = tmp_path / "rows.jsonl"
    file.write_text(row + "\n" + row.replace("after iteration 1,", "after iteration 10,").replace('"id": "', '"id": "later-'))
    first, later = (judged.pairs[0].predicted for judged in evaluate([file]).judgements)
    assert 0.4 < (later - first) / (8 * 64.69e9 / 32) <= 1  # of Adam's two moments; the step's end has them
