"""``vramcast evaluate``: the JSON contract, rows that cannot be asked, and what a person sees."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast import cli
from vramcast.errors import QuestionError
from vramcast.truth import evaluation
from vramcast.truth.judgement import Judgement, Pair, Unexpressed

ROWS = [{"id": "good"}, {"id": "strange"}, {"id": "refused"}, {"id": "broken"}]


def judge(row: dict) -> Judgement:
    if row["id"] == "strange":
        raise Unexpressed("its GPU is not named")
    if row["id"] == "refused":
        raise QuestionError("unknown model 'x'")
    if row["id"] == "broken":
        raise KeyError("settings")
    pairs = (Pair(measure="weights", predicted=99e9, measured=100e9), Pair(measure="kv_pool", predicted=30e9, measured=20e9))
    return Judgement(id=row["id"], keys={"engine": "vllm", "source": "a/b"}, pairs=pairs)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(evaluation, "judge", judge)
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ROWS))
    return path


def test_the_json_contract(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["evaluate", str(rows), "--json", "--worst", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["schema", "rows", "expressed", "unexpressed", "measures", "macro", "fit", "worst", "unread"]
    assert (report["schema"], report["rows"], report["expressed"]) == ("vramcast/1", 4, 1)
    assert report["unexpressed"] == [
        {"id": "strange", "reason": "its GPU is not named"},
        {"id": "refused", "reason": "unknown model 'x'"},
        {"id": "broken", "reason": "the converter failed on it: KeyError: 'settings'"},
    ]
    weights = next(m for m in report["measures"] if m["measure"] == "weights" and m["group"] == "all")
    assert weights["n"] == 1 and weights["median_error"] == pytest.approx(0.01)
    assert set(weights["within"]) == {"1", "2", "3", "5", "10"}
    assert report["macro"]["kv_pool"] == {"median_error": 0.5, "p90_error": 0.5, "sources": 1}
    assert report["worst"] == [{"id": "good", "measure": "kv_pool", "predicted": 30e9, "measured": 20e9, "ratio": 1.5}]


def test_what_a_person_sees(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["evaluate", str(rows), "--group", "engine"]) == 0
    page = capsys.readouterr().out
    assert "4 rows   1 asked   3 not expressed" in page
    assert "engine=vllm" in page
    assert "its GPU is not named" in page


def test_a_missing_file_is_one_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["evaluate", "nowhere.jsonl"]) == 2
    assert "vramcast: no file 'nowhere.jsonl': give a JSON-lines file" in capsys.readouterr().err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
SHAPES = [
    ("engine", "usable_for", "measured", "settings", "model_id"),
    ("framework", "method", "measured", "settings", "model_id"),
    ("source_repo", "source_path", "commit", "kv", "buffers_MiB"),
    ("schema", "form", "subject", "facts"),
    ("schema", "level", "figures"),
    (),
]


@given(st.sampled_from(SHAPES).flatmap(lambda keys: st.fixed_dictionaries(dict.fromkeys(keys, JSON), optional={"id": JSON})))
def test_no_row_however_broken_costs_the_answer(row: dict) -> None:
    found = evaluation.evaluate_rows([row])
    assert found.rows == len(found.judgements) + len(found.unexpressed) == 1


@pytest.mark.parametrize(
    ("measure", "value", "said"),
    [("tokens_per_s", 122.7, "122.7/s"), ("prefill_tokens_per_s", 15432.0, "15,432/s"), ("mfu", 0.4321, "43.2%"),
     ("ttft", 0.25, "250.00 ms"), ("step_s", 1.5, "1.50 s"), ("weights", 2**30, "1.00 GiB")],
)  # fmt: skip
def test_worst_rows_are_told_in_the_unit_of_their_measure(
    measure: str, value: float, said: str, rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Judgement(id="one", keys={}, pairs=(Pair(measure=measure, predicted=value, measured=value / 2),))
    monkeypatch.setattr(evaluation, "judge", lambda row: found)
    assert cli.run(["evaluate", str(rows)]) == 0
    assert f"{said} for " in capsys.readouterr().out
