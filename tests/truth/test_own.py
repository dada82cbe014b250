"""Our own row format: nothing that decides a forecast is lost, nothing that a source wrote is kept."""

from pathlib import Path

import msgspec
import pytest

from vramcast.truth.rows import Row, Unexpressed, format_of, judge, read_rows
from vramcast.truth.rows.own import reduce_row, restore_row

FOLDER = Path(__file__).parents[2] / "truth"
FILES = ("inference_memory", "llama_cpp_load_logs", "training_memory", "training_oom", "training_speed")
RAW = {
    "id": "a",
    "engine": "vllm",
    "engine_version": "0.19.0",
    "model_id": "m",
    "gpu": "L4",
    "n_gpus": 1,
    "quant": None,
    "settings": {"max_model_len": 8192},
    "measured": {"weights_gib": 1.5},
    "usable_for": ["weights"],
    "quote": "some words",
    "notes": "more words",
    "source": "a/b:c",
}


def test_words_go_and_facts_stay() -> None:
    own = reduce_row(RAW, format_of(RAW), {}, {})
    assert "words" not in str(own)
    assert format_of(own) == "own"
    assert restore_row(own) == {key: value for key, value in RAW.items() if key not in {"quote", "notes", "quant"}}


def test_rows_found_wrong_are_listed_and_not_scored() -> None:
    own = reduce_row(RAW, format_of(RAW), {"a": "more than the card holds"}, {})
    with pytest.raises(Unexpressed, match="marked as wrong: more than the card holds"):
        judge(own)


@pytest.mark.parametrize("name", FILES)
def test_every_committed_row_names_its_source(name: str) -> None:
    for row in read_rows(FOLDER / f"{name}.jsonl"):
        assert row["form"] == name
        assert row["facts"].get("source") or row["facts"].get("source_repo"), row["id"]


def test_settings_of_the_source_complete_a_row() -> None:
    own = reduce_row(RAW, format_of(RAW), {}, {"a": {"max_num_seqs": 64}})
    assert restore_row(own)["settings"] == {"max_model_len": 8192, "max_num_seqs": 64}
    assert own["completed"] == ["max_num_seqs"]


@pytest.mark.parametrize("name", ["marks.json", "explained.json", "completed.json"])
def test_remarks_name_rows_that_exist(name: str) -> None:
    marks = msgspec.json.decode((FOLDER / name).read_bytes(), type=dict[str, object])
    files = [*(FOLDER / f"{name}.jsonl" for name in FILES), *(FOLDER / "speed").glob("*.jsonl")]
    known = {row["id"] for file in files for row in read_rows(file)}
    assert marks.keys() <= known


@pytest.mark.shared
@pytest.mark.parametrize("name", FILES)
def test_the_committed_copy_is_current_and_judged_as_the_raw_rows_are(name: str, shared: Path) -> None:
    marks = msgspec.json.decode((FOLDER / "marks.json").read_bytes(), type=dict[str, str])
    completed = msgspec.json.decode((FOLDER / "completed.json").read_bytes())
    raw = list(read_rows(shared / "truth" / f"{name}.jsonl"))
    own = list(read_rows(FOLDER / f"{name}.jsonl"))
    assert own == [msgspec.json.decode(msgspec.json.encode(reduce_row(row, name, marks, completed))) for row in raw]
    step = max(1, len(raw) // 60)
    for raw_row, own_row in list(zip(raw, own, strict=True))[::step]:
        if not own_row.keys() & {"marked", "completed"}:
            assert _outcome(own_row) == _outcome(raw_row)


def _outcome(row: Row) -> object:
    try:
        return msgspec.structs.replace(judge(row), id="")
    except Exception as error:
        return str(error)
