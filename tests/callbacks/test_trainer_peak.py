"""The callback in transformers' own Trainer on the CPU; only the outermost counters of CUDA are made up."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vramcast.callbacks.beside import Watched
from vramcast.cli import run
from vramcast.errors import MissingError, QuestionError
from vramcast.truth.case import decode_case
from vramcast.units import GiB

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
hf = pytest.importorskip("transformers")
pytestmark = pytest.mark.torch


def peak(**words: Any) -> Any:
    from vramcast.callbacks import TrainerPeak

    return TrainerPeak(**words)


class Rows(torch.utils.data.Dataset):
    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, place: int) -> dict[str, Any]:
        ids = torch.arange(self.lengths[place]) % 100
        return {"input_ids": ids, "labels": ids}


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A card whose counters say so many bytes; nothing else of CUDA is there."""
    held = {"allocated": 3 * GiB, "active": 3 * GiB, "reserved": 4 * GiB}
    stats = {f"{name}_bytes.all.{when}": size for name, size in held.items() for when in ("peak", "current")}
    for name, value in {
        "is_initialized": lambda: True, "current_device": lambda: 0, "synchronize": lambda *_: None,
        "reset_peak_memory_stats": lambda *_: held.update(resets=held.get("resets", 0) + 1), "memory_stats": lambda *_: stats,
        "get_device_properties": lambda _: SimpleNamespace(name="NVIDIA GeForce RTX 4090", total_memory=25_386_352_640),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr("vramcast.measuring.nvml.process_bytes", lambda index: 5 * GiB)
    return held


def trained(callback: Any, folder: Path, *, model: Any = None, lengths: tuple[int, ...] = (24, 32), **words: Any) -> None:
    config = hf.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=128
    )
    arguments = hf.TrainingArguments(
        output_dir=str(folder / "out"), per_device_train_batch_size=1, max_steps=len(lengths), report_to=[], use_cpu=True,
        save_strategy="no", logging_strategy="no", disable_tqdm=True, **words,
    )  # fmt: skip
    own = model if model is not None else hf.LlamaForCausalLM(config)
    hf.Trainer(model=own, args=arguments, train_dataset=Rows(list(lengths)), callbacks=[callback]).train()


def test_the_peak_stands_beside_the_forecast(card: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = peak()
    trained(callback, tmp_path, gradient_accumulation_steps=1, activation_checkpointing=True)
    found = callback.beside
    assert found is not None
    assert found.measured == {"allocated": 3 * GiB, "reserved": 4 * GiB, "device": 5 * GiB}
    assert (found.question.seq, found.question.micro_batch) == (32, 1), "the longest batch that was seen"
    assert (found.question.gpu, found.question.framework, found.question.checkpointing) == ("rtx-4090", "hf_trainer", "full")
    assert 0 < found.forecast["allocated"] < found.forecast["reserved"] < found.forecast["device"]
    told = capsys.readouterr().err
    assert "3.00 GiB measured" in told and "4.00 GiB measured" in told and "forecast" in told
    assert card["resets"] == 1
    assert not list(tmp_path.glob("*.jsonl")), "nothing is kept unless a file is named"


def test_a_case_is_appended_only_where_a_file_is_named(card: dict[str, int], tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    for _ in range(2):
        trained(peak(cases=file), tmp_path)
    first, second = (decode_case(line) for line in file.read_bytes().splitlines())
    assert first == second
    assert first.figures == {"allocated": 3 * GiB, "reserved": 4 * GiB, "device": 5 * GiB}
    assert first.level == "measured" and first.gpu == "rtx-4090" and first.versions["transformers"]


def test_what_was_kept_is_scored_by_evaluate(card: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = hf.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=128)
    folder = tmp_path / "model"
    hf.LlamaForCausalLM(config).save_pretrained(folder)
    file = tmp_path / "runs.jsonl"
    trained(peak(cases=file), tmp_path, model=hf.LlamaForCausalLM.from_pretrained(folder))
    capsys.readouterr()
    assert run(["evaluate", str(file), "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert scored["expressed"] == 1
    assert {m["measure"] for m in scored["measures"]} >= {"allocated", "reserved", "device"}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT asks transformers by an old name
def test_adapters_are_read_from_the_model(card: dict[str, int], tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = hf.LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=128)
    own = peft.get_peft_model(
        hf.LlamaForCausalLM(config).bfloat16(), peft.LoraConfig(r=4, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM")
    )
    callback = peak()
    trained(callback, tmp_path, model=own, bf16=True)
    found = callback.beside
    assert found is not None
    assert found.question.method == "lora"
    assert found.question.adapter.rank == 4 and set(found.question.adapter.targets) == {"q_proj", "up_proj"}
    assert found.question.param_dtype == "bfloat16"


def test_without_a_gpu_there_is_the_forecast_alone_and_no_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.jsonl"
    callback = peak(cases=file, gpu="L4")
    trained(callback, tmp_path)
    assert callback.beside is not None and callback.beside.measured == {}
    assert callback.beside.question.gpu == "l4"
    assert not file.exists()
    assert "measured" not in capsys.readouterr().err


def test_a_training_ends_well_whatever_the_callback_cannot_do(
    card: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("vramcast.callbacks.trainer.question_of", broken)
    callback = peak()
    trained(callback, tmp_path)
    assert callback.beside is None
    assert "no forecast of this run: of ours" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_said_before_the_training() -> None:
    with pytest.raises(QuestionError, match="there is no folder"):
        peak(cases="/nowhere/at/all/runs.jsonl")


def test_an_unknown_card_is_asked_by_its_memory(card: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(name="NVIDIA Secret Card 9", total_memory=48 * GiB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: own)
    watched = Watched()
    watched.begin()
    assert watched.card() == "48.00GiB"


def test_a_callback_whose_framework_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import vramcast.callbacks

    monkeypatch.delitem(sys.modules, "vramcast.callbacks.lightning", raising=False)
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingError, match="pip install lightning"):
        _ = vramcast.callbacks.LightningPeak
    with pytest.raises(AttributeError, match="it has LightningPeak, TrainerPeak"):
        _ = vramcast.callbacks.Peak
