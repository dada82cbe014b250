"""Methods that train a part, and tasks that bring further models."""

import pytest

from vramcast import train
from vramcast.errors import QuestionError
from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.training.forecast import TrainingForecast, forecast_training
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Adapter, Parallel, Training

MODEL = shape_model(Shape(layers=32, hidden=4096, heads=32, ffn=11008, vocab=32000))
LAYER = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
ENDS = 2 * 32000 * 4096


def answer(**changes: object) -> TrainingForecast:
    question = {"model": "x", "framework": "pytorch", "micro_batch": 1, "seq": 1024, "param_dtype": "bf16"} | changes
    return forecast_training(Training(**question), model=MODEL)


def term(forecast: TrainingForecast, name: str, instant: int = 0) -> int:
    return next((t.bytes for t in forecast.worst.instants[instant].terms if t.name == name), 0)


@pytest.mark.parametrize(("method", "trained"), [("freeze", 2 * LAYER), ("badam", LAYER), ("lisa", 2 * LAYER + ENDS + 4096)])
def test_partial_methods_train_their_layers_only(method: str, trained: int) -> None:
    assert answer(method=method).trainable_parameters == trained


def test_freezing_the_lower_layers_ends_backward_there() -> None:
    assert term(answer(method="freeze"), "activations") * 8 < term(answer(method="badam"), "activations")


def test_the_head_is_adapted_under_the_name_that_peft_targets() -> None:
    rank, trained = 16, {}
    for name in ("lm_head", "embed_out", "head", "q_proj"):
        adapter = Adapter(rank=rank, targets=("q_proj", name))
        trained[name] = answer(method="lora", adapter=adapter).trainable_parameters
    assert trained["lm_head"] == trained["embed_out"] == trained["head"] == trained["q_proj"] + rank * (4096 + 32000)


@pytest.mark.parametrize(
    ("target", "saved", "trained"),  # counted on the model itself, peft 0.21.2
    [
        (("embed_tokens", "lm_head"), (), 2 * 16 * (151_936 + 896)),
        (("lm_head",), (), 16 * (151_936 + 896)),
        (("v_proj",), ("embed_tokens", "lm_head"), 24 * 16 * (896 + 128) + 2 * 151_936 * 896),
        (("v_proj",), ("lm_head",), 24 * 16 * (896 + 128) + 151_936 * 896),
    ],
)
def test_a_tied_head_is_a_module_of_its_own(target: tuple[str, ...], saved: tuple[str, ...], trained: int) -> None:
    adapter = Adapter(rank=16, targets=target, modules_to_save=saved)
    question = Training(model="x", framework="trl", micro_batch=1, seq=1024, method="lora", adapter=adapter)
    assert forecast_training(question, model=read_model("Qwen/Qwen2.5-0.5B", offline=True)).trainable_parameters == trained


def test_lomo_has_no_gradients() -> None:
    assert not any(t.name == "gradients" for i in answer(optimizer="lomo").worst.instants for t in i.terms)


def test_dpo_doubles_the_sequences_and_holds_a_reference() -> None:
    plain, preference = answer(), answer(options={"task": "dpo"})
    assert term(preference, "weights") == 2 * term(plain, "weights")
    assert term(preference, "activations") == pytest.approx(2 * term(plain, "activations"), rel=0.01)


def test_an_adapter_is_its_own_reference() -> None:
    plain = answer(method="lora", adapter=Adapter(rank=8))
    preference = answer(method="lora", adapter=Adapter(rank=8), options={"task": "dpo"})
    assert term(preference, "weights") == term(plain, "weights")


def test_a_colocated_engine_claims_its_share_of_the_card() -> None:
    card = find_accelerator("H100")
    question = Training(model="x", framework="trl", seq=512, method="lora", options={"task": "grpo_colocated"})
    alone = forecast_training(Training(model="x", framework="trl", seq=512, method="lora"), model=MODEL, card=card)
    shared = forecast_training(question, model=MODEL, card=card)
    assert shared.worst.device_bytes - alone.worst.device_bytes == round(0.3 * card.visible_bytes)


def test_only_scored_tokens_have_logits() -> None:
    whole, scored = answer(options={"task": "grpo"}), answer(options={"task": "grpo", "scored": 0.25})
    assert term(scored, "loss", 1) == pytest.approx(term(whole, "loss", 1) / 4, rel=0.01)
    assert term(scored, "activations") == term(whole, "activations")


def test_evaluation_keeps_float_logits() -> None:
    rank = answer(options={"eval_batch": 8}).worst
    evaluation = next(i for i in rank.instants if i.name == "evaluation")
    assert next(t.bytes for t in evaluation.terms if t.name == "loss") == 8 * 1024 * 32000 * 6


def test_the_first_step_has_no_states_until_its_end() -> None:
    forecast = answer(micro_batch=8)
    assert 0 < (forecast.worst.first_step_bytes or 0) <= forecast.worst.peak.bytes


def test_deepspeed_makes_the_states_before_the_first_step() -> None:
    forecast = answer(micro_batch=8, framework="deepspeed", zero=2, gpus=8, parallel=Parallel(dp=8))
    assert forecast.worst.first_step_bytes == max(i.bytes for i in forecast.worst.instants)


def test_ia3_is_smaller_than_lora() -> None:
    ia3 = answer(method="ia3", adapter=Adapter(kind="ia3", targets=("k_proj", "v_proj", "down_proj")))
    assert ia3.trainable_parameters == 32 * (4096 + 4096 + 11008)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "qlroa"}, r"unknown method 'qlroa': did you mean .*qlora"),
        ({"options": {"task": "dop"}}, r"unknown task 'dop': did you mean .*dpo"),
    ],
)
def test_unknown_names_get_the_nearest(changes: dict[str, object], message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        answer(**changes)


def test_what_is_left_out_is_named() -> None:
    named = [u.what for u in answer(compute_dtype="bf16").unmodelled]
    assert named == []
    with pytest.raises(QuestionError, match=r"unknown dtype of compute 'fp5': known: bfloat16"):
        answer(param_dtype=None, compute_dtype="fp5")


def test_trained_weights_are_counted_whole_where_tensor_ranks_cut_experts() -> None:
    mixture = shape_model(Shape(layers=2, hidden=256, heads=4, vocab=1024, experts=8, expert_ffn=128))
    layout = Parallel(tp=2, ep=4, dp=4, sp=True)
    question = Training(model="x", framework="megatron", seq=128, gpus=8, parallel=layout, options={"expert_tp": 2})
    assert forecast_training(question, model=mixture).trainable_parameters == mixture.parameters


def test_an_adapter_without_a_rank_stands_beside_fused_experts_too() -> None:
    """(IA)3 trains one vector for the tensor that holds gate and up of all experts (transformers 5)."""
    mixture = shape_model(Shape(layers=2, hidden=256, heads=4, vocab=1000, experts=4, expert_ffn=128))
    question = Training(model="x", seq=128, method="ia3", options={"adapts_experts": "layers"})
    assert forecast_training(question, model=mixture).trainable_parameters > 0


@pytest.mark.parametrize(
    "layout", [Parallel(tp=8, dp=8), Parallel(tp=2, pp=4, dp=8), Parallel(pp=16, dp=4), Parallel(cp=8, dp=8)]
)
def test_what_is_trained_is_the_whole_models_however_it_is_cut(layout: Parallel) -> None:
    model = read_model("meta-llama/Llama-3.1-70B")
    asked = Training(model=model.id, framework="megatron", gpus=64, parallel=layout)
    assert forecast_training(asked, model=model).trainable_parameters == model.parameters


def test_a_quantised_checkpoint_is_trained_by_adapters_alone() -> None:
    """Full training of a bnb-4bit upload was answered as of 16-bit weights; transformers refuses it, and so do we."""
    with pytest.raises(QuestionError, match=r"holds weights in nf4, which no trainer trains: use --method qlora"):
        train("unsloth/Qwen2.5-7B-Instruct-bnb-4bit", gpu="T4")
    stored = train("unsloth/Qwen2.5-7B-Instruct-bnb-4bit", gpu="3090", method="lora")
    whole = train("Qwen/Qwen2.5-7B-Instruct", gpu="3090", method="lora")
    terms = [{t.name: t.bytes for t in one.worst.terms} for one in (stored, whole)]
    assert terms[0]["weights"] < 0.6 * terms[1]["weights"]
