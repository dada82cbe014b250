"""Row formats are told by their fields; bad lines and files are refused with the line's number."""

import json
from pathlib import Path

import pytest

from vramcast.errors import QuestionError
from vramcast.truth.rows import Unexpressed, format_of, judge, read_rows, row_id

SAMPLES = {
    "inference_memory": {"id": "a", "engine": "vllm", "usable_for": [], "measured": {}},
    "llama_cpp_load_logs": {"source_repo": "a/b", "source_path": "log", "commit": "0", "file": "x.gguf"},
    "training_memory": {"id": "b", "framework": "litgpt", "method": "lora", "measured": {}},
    "training_oom": {"id": "c", "framework": "litgpt", "method": "lora", "outcome": "oom"},
    "training_speed": {"id": "d", "framework": "litgpt", "version": "1", "measured": {}},
    "inference_speed": {"id": "e", "engine": "vllm", "version": "1", "measured": {}},
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_told_by_its_fields(name: str) -> None:
    assert format_of(SAMPLES[name]) == name


def test_a_row_of_no_format_is_unexpressed() -> None:
    with pytest.raises(Unexpressed, match="no known row format has the fields colour"):
        judge({"colour": "blue"})


def test_rows_without_an_id_get_a_stable_one() -> None:
    row = SAMPLES["llama_cpp_load_logs"]
    assert row_id(row) == row_id(dict(reversed(row.items())))
    assert row_id(row).startswith("x-")
    assert row_id({"id": "mine"}) == "mine"


def test_rows_are_read_in_order_and_blank_lines_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([json.dumps({"id": "1"}), "", json.dumps({"id": "2"})]))
    assert [row["id"] for row in read_rows(path)] == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}\n[1]", r"rows.jsonl, line 2: expected an object, found list"),
        ("{nope", r"rows.jsonl, line 1 is not JSON"),
        ("[" * 100_000, r"rows.jsonl, line 1 is (nested too deeply|not JSON)"),
    ],
)
def test_bad_lines_cost_themselves_alone(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text + '\n{"id": "after"}')
    *_, bad, after = read_rows(path)
    assert after == {"id": "after"}
    with pytest.raises(Unexpressed, match=message):
        judge(bad)


def test_a_missing_file_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match=r"no file .*: give a JSON-lines file of measured rows"):
        list(read_rows(tmp_path / "none.jsonl"))


def test_a_figure_that_is_not_scored_may_be_text() -> None:
    """76 reports of one source write their speed as text; their memory is a number."""
    row = {"framework": "trl", "method": "lora", "measured": {"samples_per_s": "9.88", "peak_reserved_gib": "9.9"}}
    with pytest.raises(Unexpressed, match=r"measured.'peak_reserved_gib' is '9.9': expected a number"):
        judge(row)
    kept = {"settings": {"micro_batch": 1, "seq_len": 512}, "model_id": "Qwen/Qwen2.5-7B-Instruct", "quality": "A"}
    told = {"samples_per_s": "9.88", "peak_reserved_gib": 19.9}
    judged = judge({**row, **kept, "id": "a", "source": "b/c", "gpu": "A100-80GB", "n_gpus": 1, "measured": told})
    assert [pair.measure for pair in judged.pairs] == ["reserved"]
