"""A visitor reaches nothing of the server: no file, no card, no word that names one."""

import shutil
from pathlib import Path

import pytest

from vramcast.asking.training import training_question
from vramcast.asking.visitor import asked_by_visitor
from vramcast.errors import QuestionError
from vramcast.models.reading import read_model
from vramcast.untrusted import disk_closed, existing_path, read_bytes

CONFIGS = Path(__file__).parents[1]
PATHS = [
    "/etc/passwd", "./config.json", "../x", "~/model", "C:\\models\\x", "a/../../b", "config.json", "model.safetensors", "-",
    "models/x.gguf", "/proc/self/environ", "file:///etc/passwd", "x\0y", "a b; rm -rf /", "script.sh", "compose.yaml",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_no_model(path: str) -> None:
    with pytest.raises(QuestionError):
        asked_by_visitor("serve", {"model": path, "gpu": "4090"})


@pytest.mark.parametrize("word", ["workload", "profile", "settings"])
def test_words_that_name_a_file_are_unknown(word: str) -> None:
    with pytest.raises(QuestionError, match="unknown word"):
        asked_by_visitor("serve", {"model": "Qwen/Qwen2.5-7B-Instruct", word: "/etc/passwd"})


def test_a_folder_that_is_there_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    shutil.copy(next(CONFIGS.rglob("*.json")), folder / "config.json")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QuestionError, match="files of the server are not read"):
        asked_by_visitor("serve", {"model": "mine", "gpu": "4090"})


def test_a_closed_disk_finds_and_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    with disk_closed():
        assert existing_path(file) is None
        with pytest.raises(QuestionError, match="files of the server are not read"):
            read_bytes(file, most=10)
        with pytest.raises(QuestionError, match="files of the server are not read"):
            read_model(str(file))
    assert existing_path(file) == file


def test_flags_of_the_engine_and_of_ours_are_taken() -> None:
    asked = asked_by_visitor(
        "serve", {"model": "Qwen/Qwen2.5-7B-Instruct", "gpu": "4090", "flags": "--quant fp8 --max-num-seqs 64 --context=8192"}
    )
    assert (asked.question.quant, asked.question.context, asked.question.options["max_num_seqs"]) == ("fp8", 8192, 64)


def test_names_as_people_type_them() -> None:
    for name in (
        "llama3.1:8b",
        "https://huggingface.co/Qwen/Qwen2.5-7B-Instruct",
        "Llama-3.1-8B-Instruct-Q4_K_M.gguf",
        "qwen2.5 7b",
    ):
        assert asked_by_visitor("serve", {"model": name, "gpu": "4090"}).question.model


@pytest.mark.parametrize(("word", "value"), [("tp", "2"), ("pp", "4"), ("rank", "16"), ("dropout", "0.1"), ("sp", "true")])
def test_numbers_of_training_are_numbers(word: str, value: str) -> None:
    words = {"model": "meta-llama/Llama-3.1-8B", "gpu": "H100x8", "method": "lora", word: value}
    question = asked_by_visitor("train", words).question
    held = getattr(question.parallel, word, None) if word in ("tp", "pp", "sp") else getattr(question.adapter, word)
    assert held == {"tp": 2, "pp": 4, "rank": 16, "dropout": 0.1, "sp": True}[word]


def test_a_layout_given_as_text_is_refused_in_python() -> None:
    with pytest.raises(QuestionError, match="--tp is '2': expected a whole number"):
        training_question("meta-llama/Llama-3.1-8B", gpu="H100x8", tp="2")  # type: ignore[typeddict-item]
