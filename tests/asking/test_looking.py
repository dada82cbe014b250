"""Grids, explanations, names and scores as functions."""

from pathlib import Path

import pytest

import vramcast
from vramcast.asking.looking import Explained
from vramcast.errors import QuestionError

QWEN = "Qwen/Qwen2.5-1.5B-Instruct"


def test_grids() -> None:
    cells = vramcast.sweep("serve", QWEN, {"context": (1024, 4096)}, gpu="4090")
    assert [c.point["context"] for c in cells] == [1024, 4096]
    assert all(c.fit and c.fit.verdict == "fits" for c in cells)
    trained = vramcast.sweep("train", QWEN, {"rank": (4, 8)}, method="lora", seq=512)
    assert trained[0].worst and trained[1].worst and trained[0].worst.device_bytes < trained[1].worst.device_bytes
    with pytest.raises(QuestionError, match="unknown sweep of 'servee': did you mean serve"):
        vramcast.sweep("servee", QWEN, {"context": (1,)})


def test_texts_and_files_are_explained(tmp_path: Path) -> None:
    text = "RuntimeError: CUDA error: out of memory"
    found = vramcast.explain(text)
    assert isinstance(found, Explained)
    assert found.findings[0].engine == "cuda"
    log = tmp_path / "run.log"
    log.write_text(f"epoch 1\n{text}\n")
    assert vramcast.explain(log) == found
    with pytest.raises(QuestionError, match="holds nothing that can be explained"):
        vramcast.explain("all is well")


def test_models_are_found_makers_first() -> None:
    found = vramcast.find_models("llama-3.1-8b")
    assert found[0].startswith("meta-llama/")
    assert not vramcast.find_models("nothing like it")


def test_scores(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"colour": "blue"}\n')
    found = vramcast.evaluate([rows])
    assert found.rows == 1 and len(found.unexpressed) == 1
