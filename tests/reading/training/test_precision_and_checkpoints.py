"""Keys of precision, checkpointing and shape that decide memory: read, or told as unread, never idle."""

from pathlib import Path

import pytest

from vramcast.asking import training_question
from vramcast.reading.training.files import read_training_files, read_training_text
from vramcast.reading.training.formats import rules_of
from vramcast.reading.training.settings import Settings

_NEOX = (
    "{pipe-parallel-size: 1, model-parallel-size: 2, num-layers: 4, hidden-size: 64, num-attention-heads: 4, seq-length: 128,\n"
    " zero_optimization: {stage: 1}, fp16: {enabled: true}, train_micro_batch_size_per_gpu: 4, checkpoint-activations: true,\n"
    " MORE}\n"
)
_AUTOCAST = '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "torch_autocast": %s}'
_OWN_LOOP = (
    "from model import GPTConfig, GPT\nbatch_size = 8\nblock_size = 64\nn_layer = 2\nn_head = 2\nn_embd = 64\n"
    "learning_rate = 1e-3\n"
    "gradient_accumulation_steps = 1\n%s\nmodel = GPT(GPTConfig())\n"
)
_TORCHTUNE = (
    "model: {_component_: torchtune.models.%s, vocab_size: 1000, num_layers: 2, num_heads: 4, num_kv_heads: 4,\n"
    "  embed_dim: 2048%s}\n"
    "tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 128}\nbatch_size: 2\ndtype: bf16\n"
)


def _file(tmp_path: Path, name: str, text: str) -> Settings:
    (tmp_path / name).write_text(text)
    return read_training_files((str(tmp_path / name),))


@pytest.mark.parametrize(
    ("more", "checkpointing", "offload", "unread"),
    [
        ("checkpoint-num-layers: 2", "uniform:2", None, ""),
        ("checkpoint-num-layers: 1", "full", None, ""),
        ("checkpoint-in-cpu: true", "full", ["activations"], ""),
        ("checkpoint-in-cpu: true, checkpoint-num-layers: 2", "uniform:2", [], "checkpoints on the host"),
        ("partition-activations: true", "full", None, "partition_activations"),
        ("partition-activations: false", "full", None, ""),
    ],
)
def test_what_gpt_neox_says_of_checkpoints(
    tmp_path: Path, more: str, checkpointing: str, offload: list[str] | None, unread: str
) -> None:
    settings = _file(tmp_path, "a.yml", _NEOX.replace("MORE", more))
    assert (settings.get("checkpointing"), settings.get("offload")) == (checkpointing, offload)
    assert " ".join(settings.unread).startswith(unread) and bool(settings.unread) == bool(unread)
    assert not any("checkpoint" in key or "partition" in key for key in settings.idle)


@pytest.mark.parametrize(
    "key",
    ["unfreeze_lm_head", "unfreeze_vit_layers", "use_packed_ds", "max_packed_tokens", "num_images_expected", "max_dynamic_patch"],
)
def test_what_internvl_trains_and_packs_is_not_idle(key: str) -> None:
    assert key not in rules_of("internvl").IDLE


@pytest.mark.parametrize(
    ("typed", "method", "quant"),
    [
        (None, "qlora", "nf4"),
        ("Qwen/Qwen2.5-7B", "lora", None),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qlora", "awq"),
    ],
)
def test_the_typed_model_tells_its_own_weights(tmp_path: Path, typed: str | None, method: str, quant: str | None) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "model_name_or_path: unsloth/Qwen2.5-7B-bnb-4bit\nstage: sft\nfinetuning_type: lora\nlora_rank: 8\nlora_target: all\n"
        "template: qwen\ncutoff_len: 2048\nper_device_train_batch_size: 1\nbf16: true\n"
    )
    question = training_question(typed, files=[file]).question
    assert (question.method, question.quant) == (method, quant)


@pytest.mark.parametrize(("line", "vocab"), [("vocab_size = 65", 65), ("", 50_304)])
def test_a_vocabulary_in_the_program_comes_before_the_usual_one(tmp_path: Path, line: str, vocab: int) -> None:
    assert _file(tmp_path, "train.py", _OWN_LOOP % line).get("shape.vocab") == vocab


@pytest.mark.parametrize(
    ("section", "weights", "compute"),
    [
        ('{"enabled": true, "dtype": "bfloat16"}', "float32", "bfloat16"),
        ('{"dtype": "float16", "enabled": true}', "float32", "float16"),
        ('{"enabled": false, "dtype": "bfloat16"}', None, "float32"),
    ],
)
def test_autocast_of_deepspeed_leaves_the_weights(tmp_path: Path, section: str, weights: str | None, compute: str) -> None:
    settings = _file(tmp_path, "ds.json", _AUTOCAST % section)
    assert (settings.get("param_dtype"), settings.get("compute_dtype")) == (weights, compute)


@pytest.mark.parametrize(("word", "compute"), [("bf16", "bfloat16"), ("int8", None), ("4bit", None)])
def test_a_step_computes_in_a_float_type_only(word: str, compute: str | None) -> None:
    text = f"base_model: a/llama-7b\nmicro_batch: 2\nseq_len: 128\nnum_steps: 3\ngrad_accum: 2\ndtype: {word}\n"
    settings = read_training_text(text)
    assert settings.get("compute_dtype") == compute
    assert (compute is None) == any("dtype" in line for line in settings.unread)


@pytest.mark.parametrize(
    ("builder", "more", "ffn"),
    [("llama3.llama3", "", 5632), ("llama3.llama3", ", intermediate_dim: 8192", 8192), ("llama2.lora_llama2", "", 5632)],
)
def test_torchtune_computes_a_width_that_is_not_said(tmp_path: Path, builder: str, more: str, ffn: int) -> None:
    assert _file(tmp_path, "a.yaml", _TORCHTUNE % (builder, more)).get("shape.ffn") == ffn


def test_another_builder_asks_for_its_width(tmp_path: Path) -> None:
    settings = _file(tmp_path, "a.yaml", _TORCHTUNE % ("qwen2.qwen2", ""))
    assert settings.get("shape.ffn") is None and any("intermediate_dim" in line for line in settings.unread)


@pytest.mark.parametrize(("line", "aside", "unread"), [("max_length: 512", True, False), ("", False, True)])
def test_one_part_of_a_length_is_set_aside_or_told(line: str, aside: bool, unread: bool) -> None:
    settings = read_training_text(
        f"base_model: a/llama-7b\nmicro_batch: 2\nmax_new_tokens: 64\nnum_steps: 3\ngrad_accum: 2\n{line}\n"
    )
    assert any("max_new_tokens" in one for one in settings.overruled) == aside
    assert any("max_new_tokens" in one for one in settings.unread) == unread


def test_torchtune_keeps_gathered_weights_where_it_is_told_to(tmp_path: Path) -> None:
    text = _TORCHTUNE % ("llama2.llama2", "") + "fsdp_reshard_after_forward: False\n"
    assert _file(tmp_path, "tune.yaml", text).get("options.reshard") is False
