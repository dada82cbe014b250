"""Sections of one file: which is the run, what a program's own file hands over, and what other sections never say."""

from pathlib import Path

import pytest

from vramcast.reading.training.files import read_training_files
from vramcast.reading.training.settings import Settings

_STEP = "per_device_train_batch_size: {0}, learning_rate: 1e-5, max_length: {1}, gradient_accumulation_steps: 2"
_SFT, _DPO = "sft: {" + _STEP.format(4, 2048) + "}\n", "dpo: {beta: 0.1, max_prompt_length: 9, " + _STEP.format(1, 1024) + "}\n"
_OWN = "model_name: Qwen/Qwen3-8B\nbatch_size: 2\nmax_seq_len: 1024\nlearning_rate: 1e-5\n"


def _read(tmp_path: Path, text: str, name: str = "own.yaml") -> Settings:
    file = tmp_path / name
    file.write_text(text)
    return read_training_files((str(file),))


@pytest.mark.parametrize(
    ("text", "micro_batch", "task", "further"),
    [
        ("model_name_or_path: a/b\n" + _SFT + _DPO, 4, None, "dpo"),  # two runs: the first is answered
        ("model_name_or_path: a/b\nstage: dpo\n" + _SFT + _DPO, 1, "dpo", "sft"),  # the root names the run
        (_OWN + _DPO, 2, None, "dpo"),  # under other names
        (_OWN + "dpo: {beta: 0.1, max_seq_len: 512, learning_rate: 1e-6, num_epochs: 1}\n", 2, None, "dpo"),
        ("model_name: a/b-7b\nbatch_size: 2\ngrpo: {num_generations: 8, max_prompt_length: 9, max_completion_length: 9}\n",
         2, "grpo", ""),
    ],
)  # fmt: skip
def test_a_section_that_says_a_step_again_is_a_run_of_its_own(
    tmp_path: Path, text: str, micro_batch: int, task: str | None, further: str
) -> None:
    settings = _read(tmp_path, text)
    assert (settings.get("micro_batch"), settings.get("options.task")) == (micro_batch, task)
    assert [line.split(" ", 1)[0] for line in settings.unread if "a run of its own" in line] == [further] * bool(further)


@pytest.mark.parametrize(
    ("text", "handed"),
    [
        ("model_name_or_path: a/b\n" + _STEP.format(4, 9).replace(", ", "\n") + "\npacking: true\n", None),  # TRL's own
        (_STEP.format(4, 9).replace(", ", "\n") + "\npacking: true\ndataset_name: a/b\n", None),  # the model is named elsewhere
        ("model: {name: a/b-7b}\ntraining: {packing: true, " + _STEP.format(4, 9) + "}\n", True),
        ("model_path: a/b-7b\npacking: true\n" + _STEP.format(4, 9).replace(", ", "\n") + "\n", True),
    ],
)
def test_a_programs_own_file_hands_trl_a_loaded_model(tmp_path: Path, text: str, handed: bool | None) -> None:
    settings = _read(tmp_path, text)
    assert settings.get("framework") == "trl"
    assert settings.get("options.given_loaded") is handed


@pytest.mark.parametrize(
    ("key", "stage", "missing"),
    [
        ("deepspeed_config: ds.json", 3, []),
        ("training: {deepspeed: ds.json}", 3, []),
        ("deepspeed_config: ds.json\nuse_deepspeed: false", None, []),
        ("deepspeed_config: other.json", None, ["other.json"]),
        ("deepspeed_config: zero2.json", 2, []),
        ("deepspeed: {enabled: true, stage: 1}", 1, []),
        ("deepspeed: null", None, []),
    ],
)
def test_the_deepspeed_file_of_a_programs_own_configuration(
    tmp_path: Path, key: str, stage: int | None, missing: list[str]
) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    settings = _read(tmp_path, f"{_OWN}{key}\n")
    assert (settings.get("zero"), settings.missing) == (stage, missing)


def test_the_deepspeed_file_that_a_program_names_is_read(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    program = "from transformers import TrainingArguments, Trainer\nTrainer(args=TrainingArguments('x', deepspeed='ds.json'))\n"
    assert _read(tmp_path, program, "train.py").get("zero") == 3


@pytest.mark.parametrize(
    ("section", "method", "sizes"),
    [
        ("peft: {method: ia3, target_modules: [k_proj]}", "ia3", {}),
        ("peft_config: {peft_type: PREFIX_TUNING, num_virtual_tokens: 128}", "prefix", {"num_virtual_tokens": 128}),
        ("peft: {type: lora, r: 4}", "lora", {}),
        ("peft: {type: qlora, r: 4}", "qlora", {}),
        ("compression: {quantization: {bits: 8}, pruning: {target_modules: [q_proj]}}", None, {}),
    ],
)
def test_kinds_of_adapters_and_what_another_phase_compresses(
    tmp_path: Path, section: str, method: str | None, sizes: dict[str, int]
) -> None:
    settings = _read(tmp_path, f"{_OWN}{section}\n")
    assert (settings.get("method"), settings.group("adapter.sizes")) == (method, sizes)


@pytest.mark.parametrize(("value", "model"), [("org/name", "org/name"), ("outputs/step_100", None), ("./last.pt", None)])
def test_a_checkpoint_of_the_hub_is_the_model(tmp_path: Path, value: str, model: str | None) -> None:
    settings = _read(tmp_path, f"model: {{checkpoint: {value}}}\nbatch_size: 2\nmax_seq_len: 9\nlearning_rate: 1e-5\n")
    assert settings.get("model") == model


@pytest.mark.parametrize(
    ("name", "text", "target", "value", "told"),
    [
        ("dpo.yaml", "num_epochs: 1\nbatch_size: 2\nbeta: 0.1\nmax_length: 512\n", "options.task", "dpo", ""),
        ("own.yaml", "num_epochs: 1\nbatch_size: 2\nbeta: 0.1\nmax_length: 512\n", "options.task", None, "beta (of which"),
        ("lf.yaml", "stage: dpo\nfinetuning_type: lora\nmodel_name_or_path: a/b\nref_model: a/b\n",
         "options.frozen_copies", 1, ""),
        ("lf.yaml", "stage: dpo\nfinetuning_type: lora\nmodel_name_or_path: a/b\nref_model: a/b\nref_model_quantization_bit: 4\n",
         "options.frozen_copies", None, "ref_model (a frozen reference, in 4 bits"),
        ("lf.yaml", "stage: sft\nfinetuning_type: lora\nmodel_name_or_path: a/b\nref_model: a/b\n",
         "options.frozen_copies", None, ""),
        ("grpo.yaml", "model_name_or_path: a/b\nnum_generations: 4\nuse_vllm: true\nvllm_device: auto\n",
         "options.tenant", None, ""),
        ("grpo.yaml", "model_name_or_path: a/b\nnum_generations: 4\nuse_vllm: true\n", "options.tenant", 0.3, ""),
        ("nemo.yaml", "trainer: {precision: 32}\nmodel: {num_layers: 2, encoder_seq_length: 9}\n",
         "compute_dtype", "float32", ""),
    ],
)  # fmt: skip
def test_objectives_references_and_engines(tmp_path: Path, name: str, text: str, target: str, value: object, told: str) -> None:
    settings = _read(tmp_path, text, name)
    assert settings.get(target) == value
    assert any(line.startswith(told) for line in settings.unread) if told else True
