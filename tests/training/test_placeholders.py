"""Megatron with Transformer Engine: placeholders of gradients that are added straight to their buffer, and its fused losses."""

from pathlib import Path

import pytest

from vramcast import read_model
from vramcast.reading.training.files import read_training_files
from vramcast.training.forecast import TrainingForecast, forecast_training
from vramcast.training.loss import Logits, loss_cost
from vramcast.training.shape import Shape, shape_model
from vramcast.workload import Parallel, Training

MODEL = read_model("meta-llama/Llama-3.1-8B", offline=True)
QKV, OUT, UP, DOWN, HEAD = 6144 * 4096, 4096 * 4096, 28672 * 4096, 4096 * 14336, 128_256 * 4096


def ask(**changes: object) -> TrainingForecast:
    asked = {"model": "x", "framework": "megatron", "seq": 4096, "framework_version": "2026.1"} | changes
    return forecast_training(Training(**asked), model=MODEL)


def gradients(answer: TrainingForecast, rank: int = 0) -> int:
    moment = next(i for i in answer.ranks[rank].instants if i.name == "optimizer step")
    return next(t.bytes for t in moment.terms if t.name == "gradients")


def test_one_placeholder_stays_for_each_weight_shape() -> None:
    """get_dummy_wgrad: 16 bits for qkv, the output projection, both halves of the MLP and the output layer."""
    kept = gradients(ask()) - gradients(ask(options={"placeholders": False}))
    assert kept == 2 * (QKV + OUT + UP + DOWN + HEAD)


def test_tensor_parallel_ranks_hold_their_part_and_only_the_last_stage_the_head() -> None:
    layout = Parallel(tp=2, pp=2)
    with_them = ask(parallel=layout, gpus=4)
    without = ask(parallel=layout, gpus=4, options={"placeholders": False})
    kept = [gradients(with_them, i) - gradients(without, i) for i in range(2)]
    block = QKV + OUT + UP + DOWN
    assert kept == [block, block + HEAD + 0]


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({"framework_version": "2025.4"}, False),
        ({"framework_version": "2025.5"}, True),
        ({"framework_version": "0.11"}, False),
        ({"framework_version": "0.12"}, True),
        ({"fsdp": 2, "gpus": 2, "parallel": Parallel(dp=2)}, False),
        ({"framework": "hf_trainer", "framework_version": None}, False),
    ],
)
def test_they_came_with_transformer_engine_in_april_2025(changes: dict[str, object], holds: bool) -> None:
    assert ask(**changes).recipe.precision.placeholders is holds


@pytest.mark.parametrize(("month", "kind"), [("2026.7", "overwritten"), ("2026.8", "float_gradient")])
def test_the_fused_loss_writes_a_float_gradient_since_july_2026(month: str, kind: str) -> None:
    recipe = ask(framework_version=month, loss="fused").recipe
    assert recipe.loss.kind == kind
    logits = Logits(tokens=1000, vocab=500, hidden=1, rows=1, width=2, head_trains=False, head_gradient=0)
    assert loss_cost(recipe, logits).forward.value == pytest.approx(
        {"overwritten": 2, "float_gradient": 6}[kind] * 500_000, rel=0.01
    )


@pytest.mark.parametrize(
    ("loss", "month", "first", "another"),
    [("fused", "2026.7", 2, 2), ("fused", "2026.8", 6, 4), ("vocab_parallel_copy", None, 10, 4)],
)
def test_every_prediction_head_leaves_its_probabilities_or_its_gradient(
    loss: str, month: str | None, first: int, another: int
) -> None:
    recipe = ask(framework_version=month, loss=loss).recipe
    for heads in (1, 3):
        logits = Logits(tokens=1000, vocab=500, hidden=1, rows=1, width=2, heads=heads, head_trains=False, head_gradient=0)
        assert loss_cost(recipe, logits).forward.value == pytest.approx((first + another * (heads - 1)) * 500_000, rel=0.01)


LINE = "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --bf16 "


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        ("--no-gradient-accumulation-fusion", "options.placeholders", False),
        ("--cross-entropy-loss-fusion", "loss", "vocab_parallel_copy"),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "loss", "fused"),
        ("--cross-entropy-fusion-impl te", "loss", None),
    ],
)
def test_the_flags_are_read(flags: str, name: str, value: object, tmp_path: Path) -> None:
    script = tmp_path / "pretrain.sh"
    script.write_text(LINE + flags + "\n")
    assert read_training_files((str(script),)).get(name) == value


@pytest.mark.parametrize(
    ("flags", "loss"),
    [
        ("", "fused"),
        ("--cross_entropy_loss_fusion true", "fused"),
        ("--cross_entropy_loss_fusion false", None),
        ("--cross_entropy_fusion_impl native", "vocab_parallel_copy"),
    ],
)
def test_ms_swift_s_megatron_fuses_its_loss_where_nothing_is_said(flags: str, loss: str | None, tmp_path: Path) -> None:
    script = tmp_path / "sft.sh"
    script.write_text(f"megatron sft --model Qwen/Qwen3-8B --max_length 4096 --micro_batch_size 1 {flags}\n")
    assert read_training_files((str(script),)).get("loss") == loss


def test_a_release_of_megatron_bridge_is_no_release_of_the_core() -> None:
    """Megatron-Bridge 0.1 came with megatron-core 0.14, whose Transformer Engine keeps placeholders."""
    bridge = gradients(ask(framework="megatron_bridge", framework_version="0.1.0"))
    assert bridge == gradients(ask(framework="megatron_bridge", framework_version="2025.10"))
    assert bridge > gradients(ask(framework_version="0.11"))


def test_normed_queries_and_keys_are_saved() -> None:
    """--qk-layernorm: its norms keep their inputs, (8 heads + 4 of keys) x 32 x 2 B a token and layer, and two factors a head."""
    tokens, layers = 2048, 4
    kept = [
        next(t.bytes for i in answer.worst.instants if i.name == "end of forward" for t in i.terms if t.name == "activations")
        for normed in (False, True)
        for answer in [
            forecast_training(
                Training(model="x", framework="megatron", seq=tokens),
                model=shape_model(Shape(layers=layers, hidden=256, heads=8, kv_heads=4, ffn=512, vocab=1024, qk_norm=normed)),
            )
        ]
    ]
    assert kept[1] - kept[0] == pytest.approx(tokens * layers * (8 + 4) * (2 * 32 + 8))


def test_the_flag_for_normed_queries_is_read(tmp_path: Path) -> None:
    script = tmp_path / "pretrain.sh"
    script.write_text(LINE + "--qk-layernorm\n")
    settings = read_training_files((str(script),))
    assert settings.get("shape.qk_norm") is True
