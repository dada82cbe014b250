"""What fuzzing found, each as the shortest question that shows it."""

import json
import time
from pathlib import Path

import pytest

import vramcast
from vramcast.errors import QuestionError, UnsafeFileError
from vramcast.planning.under_load import read_requests
from vramcast.tracing.snapshots.file import parse_snapshot
from vramcast.truth.evaluation import evaluate
from vramcast.untrusted import parse_json


@pytest.mark.parametrize(("words", "told"), [({"zero": 5}, "stages are 0 to 3"), ({"fsdp": 3}, "expected 1 or 2")])
def test_a_stage_that_is_none(words: dict[str, int], told: str) -> None:
    with pytest.raises(QuestionError, match=told):
        vramcast.train("Qwen/Qwen2.5-7B", gpu="H100x8", **words)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(QuestionError, match="no text in UTF-8"):
        vramcast.train("Qwen/Qwen2.5-7B", framework="\udcff")


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert parse_json(r'["\ud800", "\ud83d\ude00", "\udc00x"]', "x") == ["\ufffd", "\U0001f600", "\ufffdx"]


def test_a_figure_that_is_a_list(tmp_path: Path) -> None:
    row = {"engine": "vllm", "usable_for": ["weights"], "measured": {"weights_gib": [[1]]}, "model_id": "Qwen/Qwen2.5-7B"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    assert "expected a number" in evaluate([tmp_path / "rows.jsonl"]).unexpressed[0]["reason"]


@pytest.mark.parametrize("text", ['{"prompt": Infinity}', '{"prompt"', "[1]\n", "arrival_s,prompt\n1,2\n", '"' + "a" * 200_000])
def test_a_log_of_requests_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(QuestionError):
        read_requests(str(tmp_path / "log"))


def test_a_prompt_longer_than_the_model_takes() -> None:
    with pytest.raises(QuestionError, match="longer than the 40,960 tokens that the model takes"):
        vramcast.serve("Qwen/Qwen3-30B-A3B", gpu="H100x8", tp=4, prompt=200_000, output=200, rate=2)


def test_two_thousand_million_sequences_and_a_name_of_four_thousand_letters() -> None:
    start = time.process_time()
    served = vramcast.serve("Qwen/Qwen3-8B", engine="vllm", gpu="4090", context="8k", concurrency=2**31 - 1)
    assert served.fit.verdict == "partly"
    with pytest.raises(QuestionError, match="unknown model"):
        vramcast.serve("a" * 4000, gpu="4090")
    assert time.process_time() - start < 5


def test_a_snapshot_with_a_text_that_is_none_and_a_device_below_zero() -> None:
    import pickle

    from vramcast.tracing.snapshots.report import explain_snapshot

    with pytest.raises(UnsafeFileError, match="not a memory snapshot"):
        parse_snapshot(pickle.dumps({"segments": [{"segment_type": "\ud800", "blocks": []}]}, protocol=4))
    below = {"device": -1, "total_size": 2**21, "address": 0, "blocks": [{"size": 2**21, "state": "inactive"}]}
    explain_snapshot(parse_snapshot(pickle.dumps({"segments": [below], "device_traces": []}, protocol=4)))
