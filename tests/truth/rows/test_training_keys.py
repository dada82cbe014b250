"""Words of training rows: each is read, or stands among the unread ones and costs the narrow bar."""

import pytest

from vramcast.errors import VramcastError
from vramcast.truth.rows.training import judge
from vramcast.truth.rows.training_keys import same_keys, unread_words
from vramcast.truth.rows.training_question import question_of
from vramcast.units import GiB


def row(**settings):
    parallel = {"world": 1, "dp": 1, "zero_stage": 0, "tp": 1, "pp": 1, "cp": 1, "ep": 1} | settings.pop("parallel", {})
    top = {name: settings.pop(name) for name in ("framework", "model_id", "method", "outcome", "arch") if name in settings}
    plain = {
        "task": "sft", "param_dtype": "bf16", "compute_dtype": "bf16", "optimizer": "adamw", "micro_batch": 1, "seq_len": 1024,
        "seq_kind": "exact", "grad_accum": 1, "activation_checkpointing": "full", "attention": "flash2", "compile": False,
    }  # fmt: skip
    return {
        "id": "x", "framework": "HF Trainer", "framework_version": "transformers 4.48.1", "model_id": "Qwen/Qwen3-0.6B",
        "method": "full", "quality": "A", "settings": plain | settings | {"parallel": parallel}, "gpu": "H100-80GB",
        "n_gpus": parallel["world"], "measured": {"peak_allocated_gib": 10.0}, "missing": [], "source": "example/x:README.md",
    } | top  # fmt: skip


MEGATRON = {"framework": "Megatron-LM", "parallel": {"impl": "Megatron DDP"}}


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ({"activation_checkpointing": "selective: mlp, moe_act", **MEGATRON}, "checkpointing", "modules:mlp+moe_act"),
        ({"activation_checkpointing": "selective ([layernorm mlp])", **MEGATRON}, "checkpointing", "modules:layernorm+mlp"),
        ({"activation_checkpointing": "selective", **MEGATRON}, "checkpointing", "selective"),
        ({"activation_checkpointing": "full (2 layers)", **MEGATRON}, "checkpointing", "uniform:2"),
        ({"framework": "DeepSpeed (plain loop)", "parallel": {"pp": 2, "world": 2, "impl": "deepspeed"}}, "zero", 0),
        ({"framework": "Megatron-LM", "parallel": {"pp": 2, "world": 2, "impl": "Megatron DDP"}}, "zero", None),
        ({"framework": "Megatron-DeepSpeed", "parallel": {"zero_stage": 2, "impl": "Megatron-DeepSpeed"}}, "zero", 2),
        ({"offload": {"optimizer": "cpu"}}, "offload", ("optimizer",)),
        ({"gradient_checkpointing": "none", "activation_checkpointing": None}, "checkpointing", None),
        ({"cross_entropy": "TE fused", **MEGATRON}, "loss", "fused"),
        ({"cross_entropy": "fused TE", **MEGATRON}, "loss", "fused"),
        ({"cross_entropy": "native fused", **MEGATRON}, "loss", "vocab_parallel_copy"),
        ({"cross_entropy": "Fused Linear CE"}, "loss", "linear"),
        ({"flags": {"cross-entropy-loss-fusion": True}, **MEGATRON}, "loss", "vocab_parallel_copy"),
        ({"flags": {"cross-entropy-loss-fusion": True, "cross-entropy-fusion-impl": "te"}, **MEGATRON}, "loss", "fused"),
        ({"optimizer": "AdamW 4-bit (torchao)"}, "optimizer", "adamw_torchao_4bit"),
        ({"optimizer": "paged AdamW 8-bit (bnb)"}, "optimizer", "paged_adamw_8bit"),
        ({"offload": "optimizer and parameters to CPU"}, "offload", ("parameters", "optimizer")),
        ({"offload": ["activations"]}, "offload", ("activations",)),
        ({"framework": "torchtitan", "parallel": {"world": 8, "dp": 8, "zero_stage": 3}}, "fsdp", 2),
        ({"framework": "torchtitan", "parallel": {"world": 8, "dp": 8, "zero_stage": 3}}, "zero", None),
        ({"parallel": {"world": 8, "dp": 8, "zero_stage": 3, "impl": "Megatron-FSDP"}}, "fsdp", 2),
        ({"parallel": {"world": 8, "dp": 8, "zero_stage": 3, "impl": "PyTorch FSDP v2"}}, "fsdp", 2),
        ({"parallel": {"world": 8, "dp": 8, "zero_stage": 3, "impl": "deepspeed"}}, "zero", 3),
        ({"framework": "plain PyTorch loop"}, "framework", "pytorch"),
        ({"framework": "DeepSpeed (own engine)"}, "framework", "deepspeed"),
        ({"framework": "HF Trainer + DeepSpeed/PEFT"}, "framework", "hf_trainer"),
        ({"micro_batch": None, "per_device_train_batch_size": 4}, "micro_batch", 1),
        ({"grad_accum": [8, 8]}, "accumulate", 8),
    ],
)
def test_words_become_parts_of_the_question(settings, field, value) -> None:
    if "per_device_train_batch_size" in settings:
        settings = settings | {"micro_batch": 1}
    assert getattr(question_of(row(**settings)), field) == value


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"grad_dtype": "bf16"}, "gradients", "bfloat16"),
        ({"grad_dtype": "fp32 accumulation"}, "gradients", "float32"),
        ({"flags": {"grad-reduce-in-bf16": True}, **MEGATRON}, "gradients", "bfloat16"),
        ({"flags": {"main-grads-dtype": "bf16", "exp-avg-dtype": "bf16"}, **MEGATRON}, "states", "bfloat16"),
        ({"optimizer_dtype": "bf16 moments, bf16 master"}, "master", "bfloat16"),
        ({"parallel": {"world": 8, "dp": 8, "impl": "ddp"}}, "sharding", "ddp"),
        ({"freeze_vit": True}, "freezes_towers", True),
        ({"norm": "liger rms norm"}, "norm", "fused"),
        ({"adapters": {"r": 8, "targets": "all-linear", "kernels": "fused qkv, mlp"}, "method": "lora"}, "fused_adapter", True),
    ],
)
def test_words_become_decisions_of_the_recipe(settings, name, value) -> None:
    assert question_of(row(**settings)).options[name] == value


def test_another_spelling_of_a_key_is_the_same_key() -> None:
    spelt = row(seq_len=None, micro_batch=None) | {"arch": {"num_hidden_layers": 2, "hidden_size": 64}}
    spelt["settings"] = {k: v for k, v in spelt["settings"].items() if k not in ("seq_len", "micro_batch")}
    spelt["settings"] |= {"max-seq-length": 2048, "micro_batch_size": 3, "parallel": {"tensor_parallel_size": 2, "zero": 1}}
    found = same_keys(spelt)
    assert (found["settings"]["seq_len"], found["settings"]["micro_batch"]) == (2048, 3)
    assert found["settings"]["parallel"] == {"tp": 2, "zero_stage": 1}
    assert found["arch"] == {"layers": 2, "hidden": 64}


def test_a_count_that_names_several_numbers_is_refused() -> None:
    with pytest.raises(VramcastError, match="micro_batch names 2 numbers"):
        question_of(row(micro_batch=[1, 2]))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"activation_quantisation": "int8"}, "activation_quantisation=int8"),
        ({"flags": {"defer-embedding-wgrad-compute": True}}, "--defer-embedding-wgrad-compute=True"),
        ({"parallel": {"ring": 4}}, "parallel.ring=4"),
        ({"adapters": {"r": 8, "targets": "all-linear", "rank_pattern": "layers.0: 64"}}, "adapters.rank_pattern=layers.0: 64"),
    ],
)
def test_what_nothing_reads_is_listed(settings, word) -> None:
    assert unread_words(same_keys(row(**settings))) == (word,)


def test_known_words_leave_nothing_unread() -> None:
    assert unread_words(same_keys(row(learning_rate=1e-4, flags={"moe-router-topk": 4, "overlap-grad-reduce": True}))) == ()


def test_an_unread_word_takes_the_bar_of_the_unmeasured() -> None:
    assert "novel" not in judge(row()).keys
    judged = judge(row(activation_quantisation="int8"))
    assert judged.keys["novel"] == "yes"
    assert judged.unread == ("activation_quantisation=int8",)


def test_what_a_run_held_when_it_ended_is_no_peak() -> None:
    assert judge(row()).pairs[0].measured == 10 * GiB
    assert judge(row(outcome="oom")).pairs == ()


@pytest.mark.parametrize(
    ("version", "month"),
    [
        ("commit 2271b6386", "2025.2"),  # pull request 820
        ("e5ef99aab, torch nightly", "2025.10"),  # pull request 1922
        ("2026-07", "2026.7"),
        ("commit 0000000", None),
    ],
)
def test_a_commit_of_torchtitan_is_its_month(version: str, month: str | None) -> None:
    asked = row(framework="torchtitan") | {"framework_version": version}
    assert question_of(asked).framework_version == month
