"""Files of data that are not on this machine: made up where their form is usual, each with a note; nothing else is."""

import gzip
import json
from pathlib import Path

import pytest
from small_scripts import STEPS, trace_text

from vramcast.tracing.published import local_files

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

_READS = """
import gzip, json, os
import numpy as np, torch
rows = json.load(open("data/alpaca_data.json"))
assert rows[0]["instruction"] and rows[0]["output"] and rows[0]["a key of its own"]
for line in open("data/more.jsonl"):
    assert json.loads(line)["instruction"]
assert len(gzip.open("data/input.txt.gz").read()) == 2_000_000
tokens = np.memmap("bins/train.bin", dtype=np.uint16, mode="r")
assert tokens.max() < 100
for absent in ("config.json", "vocab.txt", "features.npy", "rows.pkl"):
    try:
        open(absent)
    except FileNotFoundError:
        continue
    raise AssertionError(absent)
assert not os.path.exists("data/other.json")
kept = torch.load("out/last.pth")
layer = torch.nn.Linear(4, 4)
layer.load_state_dict(kept["model"])
layer.load_state_dict({name: value for name, value in kept.items()})
assert kept["epoch"] + 1 == 1 and not isinstance(kept["n_layer"], int)
"""


def test_data_that_is_not_here_is_made_up_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = trace_text(tmp_path, _READS + STEPS).result
    assert (result.error, result.steps) == ("", 2)
    told = "\n".join(result.notes)
    assert "data/alpaca_data.json is not here: rows with what the program asks for (instruction, output) are made up" in told
    assert "20,000,000 made-up tokens of uint16" in told
    assert "out/last.pth is not here" in told
    assert result.written_files == 0
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    "read", ["open('settings/train_config.json')", "open('data/train.pkl', 'rb')", "open('of_ones_own.dat')"]
)
def test_what_has_no_usual_form_stays_absent(tmp_path: Path, read: str) -> None:
    error = trace_text(tmp_path, f"row = {{'text': 1}}\nrow['text']\n{read}\n" + STEPS).result.error
    assert error.startswith("FileNotFoundError")


def test_a_file_of_rows_has_the_form_that_its_ending_says() -> None:
    columns = {"text": "text:5", "label": "label:2", "image": "image:4x4"}
    listed = json.loads(local_files.content("a.json", columns, array=True))
    assert len(listed) == local_files.ROWS
    assert listed[0].keys() == columns.keys()
    assert listed[0]["image"].endswith(".jpg")
    lines = gzip.decompress(local_files.content("a.jsonl.gz", columns, array=True)).splitlines()
    assert json.loads(lines[3]) == listed[3]
    assert local_files.content("a.csv", columns, array=False).startswith(b"text,label,image\r\n")


@pytest.mark.parametrize(
    "name", ["ds_config.json", "tokenizer.json", "labels.txt", "vocab.json", "model.index.json", "params.json"]
)
def test_a_setting_is_no_data(name: str) -> None:
    assert local_files.is_setting(name)
    assert not local_files.is_rows(name)
    assert not local_files.is_text(name)


@pytest.mark.parametrize(
    "name",
    [
        "data/names.txt",
        "stop_words.txt",
        "VOC2007/ImageSets/Main/train.txt",
        "train_labels.csv",
        "pose.json",
        "data/dataset_info.json",
    ],
)
def test_names_and_lists_are_no_data(name: str) -> None:
    assert not local_files.is_rows(name)
    assert not local_files.is_text(name)


@pytest.mark.parametrize(
    "name",
    [
        "MetaMathQA.json/train.json",
        "labeled_train.json",
        "AdvertiseGen/dev.json",
        "targets.jsonl",
        "a.csv",
        "/lists/my/run/a.csv",
    ],
)
def test_a_setting_word_inside_another_word_sets_nothing(name: str) -> None:
    assert local_files.is_rows(name)


def test_rows_that_the_program_reads_as_a_data_set_need_no_name() -> None:
    assert local_files.is_rows("pose.json", said=True)
    assert not local_files.is_rows("ds_config.json", said=True)


@pytest.mark.parametrize(
    ("name", "data"), [("processed/training.pt", True), ("data/a.pt", True), ("data/vgg16.pth", False), ("train_model.pt", False)]
)
def test_tensors_of_a_data_set_are_no_checkpoint(name: str, *, data: bool) -> None:
    assert local_files.is_tensors_of_data(name) is data


def test_a_checkpoint_on_the_card_takes_what_is_loaded_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reads = """
import torch
layer = torch.nn.Linear(1024, 1024, bias=False).cuda()
kept = torch.load("last.pth", map_location={place})
layer.load_state_dict(kept["model"])
held = torch.cuda.memory_allocated()
try:
    kept["model"][0]
except RuntimeError as failure:
    assert "taken by number" in str(failure)
else:
    raise AssertionError
del kept
assert held - torch.cuda.memory_allocated() == {held}, held
"""
    for place, held in (("'cuda'", 4 << 20), ("'cpu'", 0)):
        result = trace_text(tmp_path, reads.format(place=place, held=held) + STEPS).result
        assert (result.error, result.steps) == ("", 2)


@pytest.mark.parametrize(("block", "cause"), [("except ValueError", "NameError"), ("finally", "ValueError")])
def test_a_name_that_is_not_defined_in_an_except_is_the_cause(tmp_path: Path, block: str, cause: str) -> None:
    text = f"try:\n    raise ValueError('the first')\n{block}:\n    never_made\n"
    assert trace_text(tmp_path, text).result.error.startswith(cause)
