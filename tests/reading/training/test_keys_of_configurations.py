"""Keys of configuration files that were dropped, misread, or said to cost nothing where they do."""

from pathlib import Path
from typing import Any

import pytest

from vramcast import read_model
from vramcast.asking import training_question
from vramcast.asking.asked import answer_training
from vramcast.errors import QuestionError, VramcastError
from vramcast.reading.training.files import read_training_text
from vramcast.reading.training.settings import Settings
from vramcast.training.adapters.tensors import targeted
from vramcast.workload import Adapter

_LORA = "model_name_or_path: Qwen/Qwen3-8B\nuse_peft: true\nlora_r: 8\nmax_length: 512\nper_device_train_batch_size: 1\n"
_FACTORY = (
    "model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct\nstage: sft\nfinetuning_type: lora\ntemplate: qwen2_vl\ncutoff_len: 512\n"
)
_AXOLOTL = "base_model: Qwen/Qwen3-8B\nadapter: lora\nlora_r: 8\nsequence_len: 512\nmicro_batch_size: 1\ndatasets: []\n"
_VERL = "actor_rollout_ref: {model: {path: Qwen/Qwen3-8B}, actor: {ppo_mini_batch_size: 8}}\ncritic: {optim: {lr: 1e-5}}\n"


def _read(text: str) -> Settings:
    return read_training_text(text)


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("flash-attention-3", "flash"), ("kernels-community/vllm-flash-attn3", "flash"), ("paged|sdpa", "flash"),
        ("eager", "eager"), ("true", "flash"), ("auto", None), ("somebody/strange-kernel", None),
    ],
)  # fmt: skip
def test_an_attention_implementation_by_its_name(word: str, meaning: str | None) -> None:
    settings = _read(f"{_LORA}attn_implementation: {word}\n")
    assert settings.get("attention") == meaning
    assert any("attn_implementation" in line for line in settings.unread) == word.startswith("somebody")


@pytest.mark.parametrize(
    ("targets", "kept", "meant"),
    [
        ("[q_proj]", "", ("all-linear",)),
        ("[q_proj, lm_head, embed_tokens]", "", ("all-linear", "lm_head", "embed_tokens")),
        ("[q_proj, lm_head]", "lora_modules_to_save: [lm_head]\n", ("all-linear",)),
    ],
)
def test_axolotl_targets_join_every_linear_layer(targets: str, kept: str, meant: tuple[str, ...]) -> None:
    settings = _read(f"{_AXOLOTL}lora_target_linear: true\nlora_target_modules: {targets}\n{kept}")
    assert settings.get("adapter.targets") == meant


def test_an_embedding_is_adapted_by_its_rank() -> None:
    def parameters(targets: tuple[str, ...]) -> int:
        ranks = targeted(model, Adapter(targets=targets, rank=8))
        return sum(8 * sum(t.shape) for t in model.tensors if ranks.get(t.role))

    model = read_model("Qwen/Qwen2.5-7B-Instruct")
    assert parameters(("q_proj", "embed_tokens")) - parameters(("q_proj",)) == 8 * (152_064 + 3_584)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{_FACTORY}image_max_pixels: 262144\n", "image_max_pixels (the size of images"),
        (f"{_VERL}algorithm: {{adv_estimator: gae}}\n", "critic.* (a second model"),
    ],
)
def test_what_costs_is_not_said_to_cost_nothing(text: str, line: str) -> None:
    settings = _read(text)
    assert any(told.startswith(line) for told in settings.unread) and not any(told.startswith(line[:9]) for told in settings.idle)


def test_no_critic_is_trained_without_values() -> None:
    settings = _read(f"{_VERL}algorithm: {{adv_estimator: grpo}}\n")
    assert not any("critic" in line for line in settings.unread) and any("no critic" in line for line in settings.idle)


@pytest.mark.parametrize(
    ("json", "precision"),
    [
        ('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', "float32"),
        ('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}', None),
        ('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}', None),
        ('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}', "bfloat16"),
    ],
)
def test_deepspeed_by_itself_trains_in_single_precision(json: str, precision: Any) -> None:
    assert _read(json).get("compute_dtype") == precision


def test_of_two_keys_for_one_thing_the_other_is_told() -> None:
    settings = _read(f"{_LORA}max_seq_length: 4096\n")
    assert settings.get("seq") == 512
    told = {one.name: one.value for one in settings.assumed()}
    assert str(told["set aside"]).startswith("max_seq_length (")


def test_unsloth_checkpoints_whatever_the_trainer_is_told() -> None:
    text = (
        "model: {name: Qwen/Qwen3-8B, max_seq_length: 512}\nlora: {r: 8, use_gradient_checkpointing: unsloth}\n"
        "training: {per_device_train_batch_size: 1, gradient_checkpointing: false, learning_rate: 1e-4, num_train_epochs: 1}\n"
    )
    settings = _read(text)
    assert (settings.get("checkpointing"), settings.get("framework")) == ("offloaded", "unsloth")


@pytest.mark.parametrize("path", ["models/my-own-sft", "outputs/merged", "/data/own"])
def test_what_was_read_is_told_beside_a_missing_model(tmp_path: Path, path: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(_LORA.replace("Qwen/Qwen3-8B", path) + "odd_key: 1\n")
    with pytest.raises(QuestionError, match=r"train MODEL --from FILE \(read so far: .*adapter.rank = 8.*not read: odd_key"):
        training_question(files=[file])


def test_a_builder_of_torchtune_by_its_numbers() -> None:
    text = (
        "model: {_component_: torchtune.models.llama2.lora_llama2, num_layers: 4, embed_dim: 64, num_heads: 4, num_kv_heads: 2,"
        " vocab_size: 100, lora_rank: 8, lora_attn_modules: [q_proj]}\ntokenizer: {_component_: a.b, max_seq_len: 128}\n"
    )
    shape = _read(text).group("shape")
    assert (shape["layers"], shape["hidden"], shape["heads"], shape["kv_heads"]) == (4, 64, 4, 2)


def test_starcoder_of_nanotron_has_its_own_blocks() -> None:
    numbers = "num_hidden_layers: 2, hidden_size: 64, num_attention_heads: 4, num_kv_heads: 2, is_starcoder2_config: true"
    layout = "parallelism: {dp: 1, pp: 1, tp: 1, pp_engine: 1f1b}\ntokens: {sequence_length: 8}\n"
    text = f"model: {{model_config: {{{numbers}}}}}\n{layout}"
    shape = _read(text).group("shape")
    assert (shape["kv_heads"], shape["gated"], shape["norm"]) == (2, False, "layernorm")


_NEOX = (
    "{PIPE: 1, MODEL: TP, num-layers: 2, hidden-size: 64, num-attention-heads: 4, seq-length: 128, no-weight-tying: true,\n"
    " zero_optimization: {stage: 0}, fp16: {enabled: true}, train_micro_batch_size_per_gpu: 4, checkpoint-activations: true}\n"
)


@pytest.mark.parametrize(("ranks", "framework", "zero"), [(1, "deepspeed", 0), (2, "megatron_deepspeed", 1)])
def test_gpt_neox_by_its_dashes_in_yaml_like_json(tmp_path: Path, ranks: int, framework: str, zero: int) -> None:
    file = tmp_path / "125M.yml"
    text = _NEOX.replace("PIPE", "pipe-parallel-size").replace("MODEL", "model-parallel-size").replace("TP", str(ranks))
    file.write_text(text)
    question = training_question(files=[file]).question
    assert (question.framework, question.zero, question.parallel.tp) == (framework, zero, ranks)
    assert (question.seq, question.micro_batch, question.checkpointing) == (128, 4, "full")


@pytest.mark.parametrize(
    ("model", "quant", "method"),
    [("a/Qwen3-8B-AWQ", "awq", "qlora"), ("a/Qwen3-8B-GPTQ-Int4", "gptq", "qlora"), ("Qwen/Qwen3-8B", None, "lora")],
)
def test_adapters_over_what_a_name_says_is_quantised(model: str, quant: str | None, method: str) -> None:
    settings = _read(_LORA.replace("Qwen/Qwen3-8B", model))
    assert (settings.get("quant"), settings.get("method")) == (quant, method)


def test_own_files_say_prompt_and_answer_apart_and_adapters_in_a_section() -> None:
    text = (
        "model_id: Qwen/Qwen3-8B\nlora: {r: 8, alpha: 16, dropout: 0.05}\nmax_input_length: 384\nmax_new_tokens: 12\n"
        "per_device_train_batch_size: 2\ngrad_accum: 8\nlearning_rate: 1e-5\noutput_dir: o\n"
    )
    settings = _read(text)
    assert (settings.get("seq"), settings.get("adapter.dropout")) == (396, 0.05)
    assert not any("alpha" in line for line in settings.unread)


def test_a_section_names_the_objective() -> None:
    text = (
        "model: {name: Qwen/Qwen3-8B}\ngrpo: {beta: 0.04, max_prompt_length: 100, max_response_length: 28, learning_rate: 1e-6,"
        " gradient_accumulation_steps: 4, per_device_train_batch_size: 1}\n"
    )
    settings = _read(text)
    assert (settings.get("options.task"), settings.get("seq")) == ("grpo", 128)


def test_experts_of_nanotron() -> None:
    numbers = "num_hidden_layers: 2, hidden_size: 64, num_attention_heads: 4, moe_num_experts: 4, num_experts_per_tok: 1"
    layout = "parallelism: {dp: 1, pp: 1, tp: 1, expert_parallel_size: 2, pp_engine: 1f1b}\ntokens: {sequence_length: 8}\n"
    shape = _read(f"model: {{model_config: {{{numbers}}}}}\n{layout}").group("shape")
    assert (shape["experts"], shape["active"]) == (4, 1)


def test_sections_of_one_format_are_read_together() -> None:
    text = (
        "model: {model_name_or_path: Qwen/Qwen3-8B, use_peft: true, lora_r: 8, lora_target_modules: all-linear}\n"
        "training: {beta: 0.1, bf16: true, per_device_train_batch_size: 6, max_length: 1024, hub_model_id: a/hermes-dpo,"
        " per_device_eval_batch_size: 2, eval_strategy: steps}\n"
    )
    settings = _read(text)
    assert (settings.get("options.task"), settings.get("options.eval_batch"), settings.get("micro_batch")) == ("dpo", 2, 6)


_OWN = "model: {lm_name_or_path: Qwen/Qwen3-8B}\ntraining: {gradient_accumulation_steps: 2, learning_rate: 1e-4, num_epochs: 1}\n"


@pytest.mark.parametrize(
    ("more", "target", "value"),
    [
        ("fsdp: {param_offload: true, optimizer_offload: true}\nbatch_size: 2\n", "offload", ["parameters", "optimizer"]),
        ("fsdp: {enabled: true, param_offload: false}\nbatch_size: 2\n", "offload", None),
        ("dtype: float16\nbatch_size: 2\n", "compute_dtype", "float16"),
        ("batch_size: 64\nrollouts_per_example: 4\n", "micro_batch", None),
        ("batch_size: 2\n", "micro_batch", 2),
    ],
)  # fmt: skip
def test_a_program_of_its_own(more: str, target: str, value: Any) -> None:
    settings = _read(_OWN + more)
    assert settings.get("model") == "Qwen/Qwen3-8B" and settings.get(target) == value


def test_what_was_read_is_told_beside_a_model_that_is_not_at_hand(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(_LORA.replace("Qwen/Qwen3-8B", "nobody/strange-thing"))
    with pytest.raises(VramcastError, match=r"another of its shape: .* \(read so far: .*adapter.rank = 8"):
        answer_training(training_question(files=[file]))


def test_one_part_of_a_sample_alone_is_told() -> None:
    settings = _read(f"{_OWN}batch_size: 2\nmax_new_tokens: 64\n")
    assert settings.get("seq") is None and any(line.startswith("max_new_tokens (the longest prompt") for line in settings.unread)


def test_what_was_read_is_told_in_one_line_whatever_lines_its_values_have(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(
        '{"mixed_precision": "bf16", "num_processes": 8, "distributed_type": "\\r\\n", "fsdp_config": {"fsdp_version": 2}}'
    )
    with pytest.raises(QuestionError, match="read so far: ") as told:
        training_question(files=[file])
    assert "\n" not in str(told.value)
