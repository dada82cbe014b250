"""What frameworks decide, by their own version and method."""

import msgspec
import pytest

from vramcast.errors import QuestionError
from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.training.forecast import forecast_training
from vramcast.training.frameworks.hf_trainer import transformers_version
from vramcast.training.frameworks.releases import released
from vramcast.training.recipe.parts import Recipe
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Adapter, Parallel, Training

MODEL = shape_model(Shape(layers=8, hidden=1024, heads=16, ffn=4096, vocab=32000))


def recipe(**question: object) -> Recipe:
    return forecast_training(Training(**({"model": "x", "seq": 512} | question)), model=MODEL).recipe


@pytest.mark.parametrize(
    ("framework", "version", "month"),
    [
        ("trl", (0, 19), (2025, 5)),
        ("trl", (1, 16), (2026, 10)),
        ("accelerate", (1, 10), (2025, 8)),
        ("torchtitan", (0, 2, 2), (2026, 2)),
        ("torchtitan", (2024, 12), (2024, 12)),
        ("trl", (0, 3), (2023, 3)),
        ("llama_factory", (0, 9, 3), (2025, 6)),
        ("ms_swift", (3, 7), (2025, 7)),
        ("ms_swift", (4, 37), (2024, 1)),
        ("ms_swift", (4, 2), (2026, 3)),
        ("hf_trainer", (4, 45), (2024, 9)),
        ("colossalai", (0, 4), (0, 4)),
    ],
)
def test_a_release_has_a_month(framework: str, version: tuple[int, ...], month: tuple[int, ...]) -> None:
    assert released(framework, version) == month


def test_the_version_of_trl_is_not_that_of_transformers() -> None:
    old = Training(model="x", framework="trl", framework_version="0.12")
    assert transformers_version(old, "trl") == (4, 46)
    assert transformers_version(Training(model="x", framework="trl"), "trl") == (5, 23)


@pytest.mark.parametrize(
    ("version", "checkpointing", "weights", "unquantized", "loss"),
    [
        ("0.21", "none", "float32", "bfloat16", "plain"),
        ("0.24", "full", "float32", "bfloat16", "plain"),
        ("0.26.2", "full", "float32", "bfloat16", "plain"),
        ("0.29", "full", "float32", "float32", "plain"),
        ("1.16", "full", "float32", "float32", "row_chunks"),
    ],
)
def test_trl_changed_its_defaults(version: str, checkpointing: str, weights: str, unquantized: str, loss: str) -> None:
    full = recipe(framework="trl", framework_version=version)
    assert (str(full.recomputation.policy), full.precision.weights, full.loss.kind) == (checkpointing, weights, loss)
    assert recipe(framework="trl", framework_version=version, method="qlora").quantization.unquantized == unquantized


def test_trl_cast_the_ends_of_4_bit_models_back_and_left_norms_in_float() -> None:
    old = recipe(framework="trl", framework_version="0.21", method="qlora")
    assert (old.precision.norm_weight, old.precision.residual, old.adapters.adapter_dtype) == ("float32", "float32", "float32")
    assert recipe(framework="trl", framework_version="0.26.2", method="qlora").adapters.adapter_dtype == "bfloat16"
    assert recipe(framework="trl", framework_version="0.21", method="qlora", fsdp=1, gpus=2).precision.norm_weight == "bfloat16"


def test_a_checkpoint_s_groups_are_its_own() -> None:
    grouped = recipe(method="qlora", quant="gptq")
    assert grouped.quantization.quant_block == 128
    question = Training(model="TheBloke/Llama-2-70B-GPTQ", method="qlora", quant="gptq", seq=512)
    model = read_model(question.model, offline=True)
    assert forecast_training(question, model=model).recipe.quantization.quant_block == 8192  # no groups: a whole row


def test_grpo_had_a_reference_model_while_its_beta_was_not_zero() -> None:
    assert recipe(framework="trl", framework_version="0.16.1", options={"task": "grpo"}).task.frozen_copies == 1
    assert recipe(framework="trl", framework_version="0.24", options={"task": "grpo"}).task.frozen_copies == 0
    assert recipe(framework="trl", framework_version="0.16.1", method="lora", options={"task": "grpo"}).task.frozen_copies == 0


def test_the_default_adamw_is_fused_since_torch_2_8() -> None:
    assert recipe(framework_version="4.54").update.implementation == "foreach"
    assert recipe(framework_version="4.57").update.implementation == "fused"
    assert recipe(framework="accelerate", framework_version="1.15").update.implementation == "fused"


def test_frameworks_that_do_not_prepare_for_k_bits_keep_the_rest_in_16() -> None:
    for framework in ("llama_factory", "axolotl", "ms_swift"):
        assert recipe(framework=framework, method="qlora").quantization.unquantized == "bfloat16", framework
    assert recipe(framework="ms_swift", framework_version="2.6", method="qlora").quantization.unquantized == "float32"
    assert recipe(method="qlora").quantization.unquantized == "float32"


def test_fsdp_upcasts_what_it_trains_and_offloads_all_of_it() -> None:
    layout = {"gpus": 2, "parallel": Parallel(dp=2), "fsdp": 2}
    assert recipe(**layout).precision.weights == "float32"
    assert recipe(framework_version="4.48", **layout).precision.weights == "float32"
    assert recipe(framework="axolotl", **layout).precision.weights == "bfloat16"
    assert recipe(**layout, compute_dtype="bf16", method="lora").precision.frozen == recipe(method="lora").precision.frozen
    answer = forecast_training(Training(model="x", seq=512, **layout, offload=("parameters",)), model=MODEL)
    assert answer.recipe.sharding.offload == ("parameters", "gradients", "optimizer")
    held = {t.name: t.bytes for t in answer.host}
    assert held["host_gradients"] == held["host_weights"] == held["host_optimizer"] // 2
    step = {t.name for t in answer.worst.instants[-1].terms}
    assert not step & {"weights", "gradients", "optimizer"}


def test_llama_factory_before_0_9_left_fsdp_in_16_bits() -> None:
    layout = {"gpus": 2, "parallel": Parallel(dp=2), "fsdp": 1}
    assert recipe(framework="llama_factory", framework_version="0.8.3", **layout).precision.weights == "bfloat16"
    assert recipe(framework="llama_factory", framework_version="0.9.3", **layout).precision.weights == "float32"


def test_llama_factory_upcasts_what_it_trains_and_only_that() -> None:
    frozen = recipe(framework="llama_factory", method="freeze")
    assert (frozen.precision.weights, frozen.precision.frozen) == ("float32", "bfloat16")
    assert recipe(framework="llama_factory", zero=3).precision.weights == "bfloat16"
    assert recipe(framework="llama_factory", method="badam").precision.weights == "bfloat16"


def test_eight_bit_matmuls_save_what_their_library_saves() -> None:
    def activations(**question: object) -> int:
        answer = forecast_training(Training(**({"model": "x", "seq": 512, "checkpointing": "none"} | question)), model=MODEL)
        return max(t.bytes for i in answer.worst.instants for t in i.terms if t.name == "activations")

    assert activations(framework="torchtitan", compute_dtype="fp8") == activations(framework="torchtitan")
    assert activations(framework="megatron", compute_dtype="fp8") < activations(framework="megatron")
    assert recipe(framework="megatron", compute_dtype="fp8").precision.saved_inputs == "float8"


def test_unsloth_by_release() -> None:
    def of(version: str, **question: object) -> Recipe:
        return recipe(framework="unsloth", method="qlora", framework_version=version, **question)

    kinds = {
        version: (of(version).recomputation.policy.kind, of(version).loss.kind) for version in ("2024.1", "2024.8", "2025.1")
    }
    assert kinds == {"2024.1": ("none", "in_place"), "2024.8": ("offloaded", "in_place"), "2025.1": ("offloaded", "linear")}
    assert of("2024.1", checkpointing="full").recomputation.policy.kind == "full"


def test_a_model_that_returns_its_cache_holds_a_float_copy_of_it() -> None:
    def loss(**question: object) -> int:
        asked = Training(**({"model": "x", "seq": 512, "framework": "unsloth", "framework_version": "2024.1"} | question))
        return max(t.bytes for i in forecast_training(asked, model=MODEL).worst.instants for t in i.terms if t.name == "loss")

    cache = 8 * 2 * 1024 * 512  # layers x keys and values x width x tokens
    assert loss(checkpointing="none") - loss(checkpointing="full") == cache * (2 + 4)


def test_a_card_before_ampere_runs_the_memory_efficient_kernel() -> None:
    question = Training(model="x", seq=512)
    old, new = (forecast_training(question, model=MODEL, card=find_accelerator(name)) for name in ("T4", "A100"))
    assert (old.recipe.kernels.attention, new.recipe.kernels.attention) == ("efficient", "flash")
    assert any(a.name == "attention" and "older than flash attention 2 needs" in a.because for a in old.assumed)


def test_a_four_bit_matmul_saves_codes_and_its_output_is_not_the_policys() -> None:
    def activations(**question: object) -> int:
        layout = {"parallel": Parallel(dp=2), "gpus": 2}
        asked = Training(**({"model": "x", "seq": 512, "framework": "torchtitan", "checkpointing": "op"} | layout | question))
        return max(
            t.bytes for i in forecast_training(asked, model=MODEL).worst.instants for t in i.terms if t.name == "activations"
        )

    codes, narrow, wide = 9 / 16, activations(compute_dtype="nvfp4"), activations()
    stream = 512 * (2 * 2 * 1024 + 4 * 16) + 24  # the layer's input, attention's output, its statistics and random state
    assert narrow == 8 * (stream + codes * 512 * (1024 + 4096))  # of what lies behind a matmul; the rest is made again
    assert wide == 8 * (stream + 2 * 512 * (2 * 1024 + 4096 + 1024))  # every second matmul's output
    half = activations(compute_dtype="nvfp4", options={"narrow_layers": 4})
    assert half == (narrow + wide) / 2


def test_litgpt_saves_what_an_adapter_adds_to_some_parts_of_the_packed_projection() -> None:
    def activations(*targets: str) -> int:
        adapter = Adapter(rank=8, targets=targets)
        asked = Training(model="x", framework="litgpt", method="lora", adapter=adapter, seq=512, checkpointing="none")
        return max(
            t.bytes for i in forecast_training(asked, model=MODEL).worst.instants for t in i.terms if t.name == "activations"
        )

    padded = activations("q_proj", "v_proj") - activations("q_proj", "k_proj", "v_proj")
    assert padded == 2 * 512 * (1024 + 1024) * 8  # queries and values of eight layers, 16 bits; all three need no padding
    assert activations("v_proj") == activations("q_proj", "v_proj") - padded // 2


def test_the_longest_sample_first_finds_no_gradients() -> None:
    def alive(**options: object) -> list[int]:
        asked = Training(model="x", seq=512, accumulate=4, options={"weights": "bfloat16", **options})
        moments = forecast_training(asked, model=MODEL).worst.instants
        return [sum(t.bytes for t in i.terms if t.name == "gradients") for i in moments]

    always, late = alive(), alive(longest_first=True)
    assert always[0] == max(always) == max(late)
    assert late[0] == 0


def test_the_trainer_accumulates_whole_gradients_under_fsdp() -> None:
    asked = Training(model="Qwen/Qwen2.5-7B", gpu="H100", fsdp=2, parallel=Parallel(dp=8), seq=2048, checkpointing="full")
    model = read_model(asked.model, offline=True)

    def gradients(question: Training) -> tuple[int, str]:
        rank = forecast_training(question, model=model, card=find_accelerator("H100")).ranks[0]
        return next((t.bytes, t.why) for i in rank.instants for t in i.terms if t.name == "gradients")

    assert recipe(fsdp=1, parallel=Parallel(dp=8)).sharding.whole_accumulation == "trained"
    assert recipe(zero=2, parallel=Parallel(dp=8)).sharding.whole_accumulation == "none"
    each = msgspec.structs.replace(asked, accumulate=4, options={"whole_accumulation": "none"})
    assert gradients(each)[0] == pytest.approx(4 * model.parameters / 8, rel=1e-6)
    with pytest.raises(QuestionError, match="unknown whole_accumulation 'all': known: none, trained, units"):
        gradients(msgspec.structs.replace(each, options={"whole_accumulation": "all"}))
    size, why = gradients(msgspec.structs.replace(asked, accumulate=4))
    assert size == 2 * model.parameters
    assert "x 2 B (bfloat16, whole until the last micro-batch)" in why


@pytest.mark.parametrize(
    ("framework", "weights", "gradients", "sharding", "recomputes", "loss"),
    [
        ("openrlhf", "bfloat16", "bfloat16", "zero2", "none", "fused"),
        ("verl", "float32", "float32", "fsdp1", "full", "overwritten"),
        ("nemo_rl", "float32", "float32", "fsdp2", "none", "plain"),
        ("prime_rl", "float32", "float32", "fsdp2", "offloaded", "blocks"),
        ("nanotron", "bfloat16", "float32", "none", "none", "vocab_parallel_copy"),
        ("megatron_bridge", "bfloat16", "float32", "distributed_optimizer", "none", "float_gradient"),
    ],
)
def test_programs_around_models_have_defaults_of_their_own(
    framework: str, weights: str, gradients: str, sharding: str, recomputes: str, loss: str
) -> None:
    found = recipe(framework=framework, parallel=Parallel(dp=8), gpus=8)
    assert (found.precision.weights, found.precision.gradients) == (weights, gradients)
    assert (found.sharding.kind, found.recomputation.policy.kind, found.loss.kind) == (sharding, recomputes, loss)


@pytest.mark.parametrize(
    ("family", "loss", "norm"), [("shape", "fused", "native"), ("mpt", "fused", "native"), ("qwen3", "plain", "eager")]
)
def test_llm_foundry_has_layers_of_its_own_for_mpt_alone(family: str, loss: str, norm: str) -> None:
    model = msgspec.structs.replace(MODEL, family=family)
    found = forecast_training(Training(model="x", seq=512, framework="llm_foundry"), model=model).recipe
    assert (found.loss.kind, found.kernels.norm, found.precision.weights) == (loss, norm, "float32")


@pytest.mark.parametrize(("zero", "sharding"), [(None, "zero1"), (1, "zero1"), (2, "zero2")])
def test_megatron_deepspeed_cuts_by_the_stage_it_is_told(zero: int | None, sharding: str) -> None:
    found = recipe(framework="megatron_deepspeed", zero=zero, parallel=Parallel(dp=2), gpus=2)
    assert found.sharding.kind == sharding


@pytest.mark.parametrize(("dtype", "zero", "master"), [("float32", 0, ""), ("float32", 1, "float32"), ("bfloat16", 0, "float32")])
def test_deepspeed_copies_no_float_weights_without_zero(dtype: str, zero: int, master: str) -> None:
    asked = {"framework": "deepspeed", "zero": zero, "param_dtype": dtype, "options": {"compute": dtype}}
    assert recipe(**asked).update.master == master


@pytest.mark.parametrize(("cards", "sharding"), [(1, "none"), (2, "zero2")])
def test_openrlhf_divides_a_model_from_two_cards_on(cards: int, sharding: str) -> None:
    """openrlhf/cli/train_sft.py: --zero_stage 2 by default; one rank has nobody to share with."""
    assert recipe(framework="openrlhf", parallel=Parallel(dp=cards), gpus=cards).sharding.kind == sharding


@pytest.mark.parametrize("zero", [0, 3])
def test_megatron_deepspeed_refuses_stages_without_rules(zero: int) -> None:
    with pytest.raises(QuestionError, match=f"no rules for ZeRO stage {zero}: use --zero 1 or 2"):
        recipe(framework="megatron_deepspeed", zero=zero, parallel=Parallel(dp=2), gpus=2)


def test_a_release_of_llm_foundry_is_not_one_of_transformers() -> None:
    """0.22.0 is of 2025: transformers 0.22 would have filled gradients with zeros."""
    model = msgspec.structs.replace(MODEL, family="qwen3")
    named, newest = (
        forecast_training(Training(model="x", seq=512, framework="llm_foundry", framework_version=version), model=model)
        for version in ("0.22.0", None)
    )
    assert [rank.needed_bytes for rank in named.ranks] == [rank.needed_bytes for rank in newest.ranks]


def test_a_release_of_verl_is_not_one_of_transformers() -> None:
    """0.4 of verl is of 2025: gradients are given back after a step, which transformers 0.4 did not do."""
    assert recipe(framework="verl", framework_version="0.4", parallel=Parallel(dp=8), gpus=8).update.frees_gradients


def test_logits_that_become_their_gradient_are_held_once() -> None:
    """16-bit logits alone, beside what norm and head save: 2 bytes each instead of a float copy and two gradients."""
    question = Training(model="x", framework="verl", seq=512, parallel=Parallel(dp=8), gpus=8)
    rank = forecast_training(question, model=MODEL).worst
    loss = next(t.bytes for i in rank.instants if i.name == "loss" for t in i.terms if t.name == "loss")
    assert 2 * 512 * 32_000 < loss < 3 * 512 * 32_000


def test_nanotron_s_narrow_gradients_live_until_backward_is_over() -> None:
    model = shape_model(Shape(layers=4, hidden=256, heads=8, kv_heads=8, ffn=1024, vocab=1000))
    answer = forecast_training(Training(model="x", framework="nanotron", seq=128), model=model)
    gradients = {i.name: next(t.bytes for t in i.terms if t.name == "gradients") for i in answer.worst.instants}
    trained = gradients["optimizer step"] // 4
    assert gradients["end of forward"] == 4 * trained
    assert gradients["backward of the embedding"] == 6 * trained


def test_states_that_visit_the_card_are_there_for_the_step_alone() -> None:
    """prime-rl's CPUOffloadOptimizer: max(activations, states) instead of their sum."""
    model = shape_model(Shape(layers=4, hidden=512, heads=8, ffn=2048, vocab=32000))

    def optimizer_at(visits: bool) -> dict[str, int]:
        asked = Training(model="x", framework="prime_rl", seq=512, options={"visits": visits})
        moments = forecast_training(asked, model=model).worst.instants
        return {i.name: sum(t.bytes for t in i.terms if t.name == "optimizer") for i in moments}

    away, there = optimizer_at(True), optimizer_at(False)
    assert set(there.values()) == {8 * model.parameters}
    assert {name for name, size in away.items() if size} == {"optimizer step"}


def test_a_head_in_blocks_of_tokens_and_vocabulary_needs_no_whole_logits() -> None:
    """Measured: Qwen3-30B-A3B over eight H200 at 65,536 tokens peaks at 90.3 GiB, where logits alone would be 152."""
    model = shape_model(Shape(layers=4, hidden=512, heads=8, ffn=2048, vocab=150_000))

    def loss(seq: int) -> int:
        two = {"gpus": 2, "parallel": Parallel(dp=2)}
        asked = Training(model="x", framework="prime_rl", seq=seq, options={"task": "grpo"}, **two)  # type: ignore[arg-type]
        moments = forecast_training(asked, model=model).worst.instants
        return max(t.bytes for i in moments for t in i.terms if t.name == "loss")

    assert loss(65_536) - loss(32_768) == 32_768 * 512 * (
        2 + 2 + 3 * 2
    )  # the norm and head read, hidden states and their gradients
