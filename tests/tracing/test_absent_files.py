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
for rows in (0, slice(4), (slice(4), 0)):
    try:
        kept["model"][rows]
    except RuntimeError as failure:
        assert "taken by number" in str(failure)
    else:
        raise AssertionError(rows)
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


_LISTS = """
import glob, os, torch
from pathlib import Path
def load(path):
    return Image.open(path)
names = os.listdir("data/train/A")
assert len(names) == 2_000 and all(os.path.isfile(os.path.join("data/train/A", name)) for name in names[:3])
assert len(glob.glob("masks/*.png")) == len(list(Path("deep").glob("**/*.jpg"))) == 2_000
assert len(os.listdir("data/train/A")) == 2_000 and len(glob.glob("data/train/A/*.png")) == 2_000
assert not glob.glob("classes/*/*.jpg") and not glob.glob("arrays/*.npy") and not glob.glob("here/*.png")
def width():
    return len(os.listdir("counted"))
def kinds():
    class_names = sorted(os.listdir("kinds"))
for asked in (lambda: os.listdir("data/train/A/" + names[0]), lambda: os.listdir("of/a/try"), width, kinds):
    try:
        asked()
    except OSError:
        continue
    raise AssertionError(asked)
right = torch.rand(5, 8).t().eq(torch.rand(8, 5))[:3].t()
assert right.reshape(-1).shape == right.view(-1).shape
try:
    torch.rand(5, 8).t().view(-1)
except RuntimeError as failure:
    assert "contiguous" in str(failure)
else:
    raise AssertionError
"""


def test_folders_of_pictures_are_laid_where_nothing_but_pictures_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    result = trace_text(tmp_path, _LISTS + STEPS).result
    assert (result.error, result.steps, result.written_files) == ("", 2, 0)
    told = "\n".join(result.notes)
    assert "data/train/A is not here: 2,000 pictures (.jpg) are made up" in told
    assert "the view of a comparison" in told
    assert not any(word in told for word in ("classes", "counted", "kinds"))


@pytest.mark.parametrize(
    ("text", "pattern", "endings"),
    [
        ("Image.open(a)", "*.*", {".jpg"}),
        ("Image.open(a); '.png'", "*", {".png"}),
        ("Image.open(a); np.load(b)", "*", set()),
        ("np.load(a)", "*.png", {".png"}),
        ("Image.open(a)", "*.npy", set()),
        ("Image.open(a)", "**/*.jpg", {".jpg"}),
        ("Image.open(a); a.parent.name", "**/*.jpg", set()),
        ("Image.open(a)", "a.jpg", set()),
    ],
)
def test_a_pattern_says_which_pictures_are_asked(text: str, pattern: str, endings: set[str]) -> None:
    from vramcast.tracing.execution.stand_ins.absent_folders import _asked

    assert _asked(pattern, text) == endings


def test_a_pipe_of_ones_own_process_is_no_network() -> None:
    from multiprocessing import Pipe

    from vramcast.tracing.execution.advice import is_network

    assert is_network(ConnectionResetError("of a server"))
    first, second = Pipe()
    second.close()
    with pytest.raises((ConnectionResetError, EOFError, BrokenPipeError)) as caught:
        first.recv()
    assert not is_network(caught.value)


@pytest.mark.parametrize(
    ("texts", "rate"),
    [
        (['{"sampling_rate": 22050}', "x = 3"], 22_050),
        (["sample_rate = 16000", "sr: 16000"], 16_000),
        (["sampling_rate: 22050", "target_sr=16000"], None),
        (["sampling_rate=rate", "usr = 16000"], None),
    ],
)
def test_sounds_have_the_one_rate_that_a_program_names(texts: list[str], rate: int | None) -> None:
    assert local_files.rate_of(texts) == rate


_SOUNDS = """
import wave, torch
sampling_rate = 8000
class Sounds(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, number):
        with wave.open(open(f"sounds/{number}.wav", "rb")) as sound:
            assert sound.getframerate() == 8000
            return torch.frombuffer(bytearray(sound.readframes(100)), dtype=torch.int16)
for batch in torch.utils.data.DataLoader(Sounds(), batch_size=4, num_workers=1):
    assert batch.shape == (4, 100) and batch.max() == 1
"""


def test_what_a_loaders_worker_makes_up_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = trace_text(tmp_path, _SOUNDS + STEPS).result
    assert (result.error, result.steps, result.written_files) == ("", 2, 0)
    told = [note for note in result.notes if note.startswith("sounds: ")]
    assert told == [
        "sounds: sounds that are not here are made up, of 10 seconds at 8,000 samples a second, the rate that the program names"
    ]


@pytest.mark.parametrize(
    ("folder", "written"),
    [("checkpoints", True), ("out/gan", True), ("runs/exp1", True), ("data/train/A", False), ("../datasets/DUTS/im_aug", False)],
)
def test_folders_that_a_program_writes_hold_no_pictures_of_data(folder: str, written: bool) -> None:
    assert local_files.is_output_folder(folder) == written
