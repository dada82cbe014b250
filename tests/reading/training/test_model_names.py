"""A model that only a tag, a family or the name of a run tells, and switches that stand against defaults."""

from pathlib import Path
from typing import Any

import pytest

from vramcast.asking.asked import layout_of
from vramcast.asking.training_files import no_model, under_words
from vramcast.errors import QuestionError
from vramcast.reading.training.files import read_training_files
from vramcast.reading.training.settings import Settings

DPO = "beta: 0.1\nmax_length: 64\nper_device_train_batch_size: 1\n"
ZERO = '{"zero_optimization": {"stage": %d, "offload_param": {"device": "cpu"}}, "steps_per_print": 1}'
STEP = "train: {per_device_train_batch_size: 2, gradient_accumulation_steps: 4, learning_rate: 1e-4, max_seq_length: 512}\n"


def _read(folder: Path, text: str, name: str = "a.yaml") -> Settings:
    file = folder / name
    file.write_text(text)
    return read_training_files((str(file),))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("tags: {model: qwen3-8b, method: sft}", "qwen3-8b"),
        ("model_family: llama3-8b\nmodel_path: /data/me/results/run-7", "llama3-8b"),
        ("tags: {model: qwen3-8b}\nmodel: {name: Qwen/Qwen3-4B}", "Qwen/Qwen3-4B"),
        ("tags: {model: qwen3-8b}\nmodel_family: llama3-8b", None),  # two do not agree
        ("teacher: {model_name: qwen3-32b}", None),
        ("model_version: 8b", None),
        ("tokenizer: {path: Qwen/Qwen3-8B}", None),
        ("tags: {model: qwen3-8b}\nmodel: {num_layers: 4, hidden_size: 64}", None),
    ],
)
def test_a_model_told_by_the_way(tmp_path: Path, more: str, expected: str | None) -> None:
    settings = _read(tmp_path, STEP + more)
    assert under_words({}, settings).get("model") == expected


def test_a_run_only_suggests_its_model(tmp_path: Path) -> None:
    settings = _read(tmp_path, STEP + "hub_model_id: me/sft_qwen3-8b-lora")
    assert "hub_model_id says Qwen/Qwen3-8B: if that is the model, give it" in str(no_model(settings))
    assert "says" not in str(no_model(_read(tmp_path, STEP + "run_name: sft_8b")))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.yaml", DPO + "bf16: false\nfp16: false", {"compute_dtype": "float32"}),
        ("a.yaml", DPO + "fp16: false", {"compute_dtype": "bfloat16"}),
        ("a.yaml", STEP + "mixed_precision: no", {"compute_dtype": "float32"}),
        ("a.yaml", STEP + "quantization: {compute_dtype: float16, load_in_4bit: true}", {"compute_dtype": None, "quant": "nf4"}),
        ("a.yaml", STEP + "use_LoRA: ''\nLoRA: {r: 8}", {"adapter.on": False, "adapter.rank": None, "method": None}),
        ("a.yaml", STEP + "use_unsloth: false\nunsloth_configs: {load_in_4bit: true, max_seq_len: 4}", {"quant": None}),
        ("a.yaml", STEP + "freeze_vision_encoder: true\nmodel_name: org/Seer-7b", {"options.freezes_towers": True}),
        ("a.yaml", STEP + "use_unsloth: true\nunsloth_configs: {load_in_4bit: true}", {"quant": "nf4"}),
        ("a.yaml", STEP + "m: {use_lora: no, lora: {r: 8}}\nlora: {r: 4}", {"adapter.on": False}),
        ("a.yaml", "distributed_type: MULTI_GPU\nnum_processes: 2\ndynamo_backend: INDUCTOR", {"compile": True}),
        ("a.json", ZERO % 2, {"offload": None}),
        ("a.json", ZERO % 3, {"offload": ["parameters"]}),
        ("a.yaml", STEP + "model: {moe: {top_k: 2, num_experts: 8}}", {"shape.active": 2, "shape.experts": 8}),
    ],
)  # fmt: skip
def test_what_is_turned_off(tmp_path: Path, name: str, text: str, expected: dict[str, Any]) -> None:
    settings = _read(tmp_path, text, name)
    assert {key: settings.get(key) for key in expected} == expected
    assert not any(key.startswith("off.") for key in settings.values)


def test_a_fork_of_torchtitan_suggests_its_flavor(tmp_path: Path) -> None:
    text = '[model]\nname = "opt"\nflavor = "1.3B"\n[training]\nbatch_size = 20\n[activation_checkpoint]\nmode = "full"\n'
    assert "model.name and model.flavor says facebook/opt-1.3b" in str(no_model(_read(tmp_path, text, "a.toml")))


def test_sampling_costs_nothing(tmp_path: Path) -> None:
    assert "sampling.top_k" in _read(tmp_path, STEP + "sampling: {top_k: 2}").idle


def test_cards_that_a_layout_needs() -> None:
    with pytest.raises(QuestionError, match=r"or 512 cards \(--gpu NAMEx512\)"):
        layout_of({"replicate": 2, "shard": 32, "tp": 8}, 8)
