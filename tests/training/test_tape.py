"""The tape against what autograd does, and the exact per-layer identity of an executed Llama layer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.models.operations import Linear, Split, operations
from vramcast.models.reading import read_model
from vramcast.training.activations.choice import LowRank, Style
from vramcast.training.activations.layer import layer_tape
from vramcast.training.activations.tape import Tape, work_of
from vramcast.training.recipe.parts import Kernels
from vramcast.training.shape import Shape, shape_model

LLAMA_8B = shape_model(Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256))


def test_a_saved_tensor_lives_until_its_operation_has_run_backward() -> None:
    tape = Tape(10)
    wide = tape.run("up", [0], 100)
    tape.run("down", [wide], 10, saves=[wide])
    life = tape.life()
    assert life.saved == 100
    assert life.forward_peak == 110
    assert life.backward_peak == 10 + 100 + 100  # gradient of the output, the saved tensor, its gradient


def test_what_is_not_saved_is_gone_at_the_end_of_forward() -> None:
    tape = Tape(10)
    first = tape.run("first", [0], 100)
    tape.run("second", [first], 10)
    assert tape.life().saved == 0
    assert tape.life().forward_peak == 110


def test_an_addition_hands_its_gradient_on_without_a_copy() -> None:
    tape = Tape(10)
    branch = tape.run("branch", [0], 10)
    tape.run("residual", [0, branch], 10, aliases=True)
    assert tape.life().backward_peak == 30  # the shared gradient, the branch's own, and their sum out of place


def test_a_gathered_copy_is_saved_as_its_shard() -> None:
    tape = Tape(10)
    shard = tape.run("norm", [0], 10)
    whole = tape.gather("gather", shard, 40)
    tape.run("linear", [whole], 20, saves=[whole], trains=True)
    assert tape.life().saved == 10


@pytest.mark.parametrize("tokens", [512, 4096])
def test_an_eager_llama_layer_saves_what_execution_saves(tokens: int) -> None:
    h, kv, ff, heads = 4096, 1024, 14336, 32
    life = layer_tape(LLAMA_8B.blocks[0], Style(), hidden=h, tokens=tokens, seq=tokens).life()
    by_hand = 20 * tokens * h + 4 * tokens * kv + 8 * tokens * ff + 8 * tokens + 4 * tokens * heads
    assert life.saved == by_hand + 24  # flash attention's random state


def test_frozen_weights_save_no_inputs() -> None:
    block = LLAMA_8B.blocks[0]
    trained = layer_tape(block, Style(kernels=Kernels(norm="fused")), hidden=4096, tokens=1024, seq=1024).life()
    frozen = layer_tape(block, Style(kernels=Kernels(norm="fused"), trains=False), hidden=4096, tokens=1024, seq=1024).life()
    assert trained.saved - frozen.saved == 1024 * 2 * (4096 + 4096 + 14336)  # normed rows twice, the product
    assert frozen.weight_gradients == 0


def test_rank_hardly_moves_what_a_lora_layer_saves() -> None:
    def saved(rank: int) -> float:
        adapter = LowRank(ranks=dict.fromkeys("qkvo", rank), width=2, casts=False)
        style = Style(trains=False, adapter=adapter)
        return layer_tape(LLAMA_8B.blocks[0], style, hidden=4096, tokens=2048, seq=2048).life().saved

    assert saved(8) / saved(2) < 1.01


@given(st.integers(1, 64), st.sampled_from(["eager", "fused", "native"]), st.sampled_from(["eager", "fused", "packed"]))
def test_peaks_bound_what_is_saved_and_grow_with_tokens(scale: int, norm: str, glu: str) -> None:
    style = Style(kernels=Kernels(norm=norm, glu=glu), gradient_width=0)
    one = layer_tape(LLAMA_8B.blocks[0], style, hidden=4096, tokens=128, seq=128).life()
    many = layer_tape(LLAMA_8B.blocks[0], style, hidden=4096, tokens=128 * scale, seq=128).life()
    assert one.forward_peak >= one.saved
    assert one.backward_peak >= one.saved
    assert many.saved - 24 == pytest.approx(scale * (one.saved - 24))  # but for flash attention's random state
    assert many.backward_peak - 24 == pytest.approx(scale * (one.backward_peak - 24))


def test_eager_attention_keeps_its_scores() -> None:
    flash = layer_tape(LLAMA_8B.blocks[0], Style(), hidden=4096, tokens=2048, seq=2048).life()
    eager = layer_tape(LLAMA_8B.blocks[0], Style(kernels=Kernels(attention="eager")), hidden=4096, tokens=2048, seq=2048).life()
    assert eager.saved - flash.saved > 6 * 32 * 2048 * 2048 * 0.99  # fp32 and 16-bit probabilities


def test_an_eight_bit_matmul_saves_narrow_inputs() -> None:
    packed = Style(kernels=Kernels(norm="fused", glu="packed", qkv="copies"))
    narrow = Style(kernels=Kernels(norm="fused", glu="packed", qkv="copies"), saved_inputs=1)
    tapes = (layer_tape(LLAMA_8B.blocks[0], style, hidden=4096, tokens=1024, seq=1024) for style in (packed, narrow))
    wide_life, narrow_life = (tape.life() for tape in tapes)
    # normed rows twice and the product at half the width; the output of attention stays whole and is copied too
    assert wide_life.saved - narrow_life.saved == 1024 * (4096 + 4096 + 14336) - 1024 * 4096


@pytest.mark.parametrize(
    "model_id", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3", "google/gemma-2-9b-it"]
)
def test_a_tapes_operations_are_those_that_speed_counts(model_id: str) -> None:
    """Each does the arithmetic of an operation of models/operations, and its matrices are as large as theirs."""
    model = read_model(model_id, offline=True)
    block = model.blocks[-1]
    tape = layer_tape(block, Style(kernels=Kernels(experts="grouped")), hidden=model.hidden, tokens=512.0, seq=512)
    counted = {one.name: one for one in operations(model, split=Split())}
    worked = {work_of(op.name) for op in tape.operations} - {""}
    latent = {"qkv_a": "qkv", "shared activation": "activation"}  # a name for each form that a kernel has
    assert worked <= {latent.get(name, name) for name in counted} | {"activation", "routing"}
    plain = [op for op in tape.operations if work_of(op.name) in ("o", "down")]
    for op in plain:
        one = counted[work_of(op.name)]
        assert isinstance(one, Linear)
        assert op.weight_gradient == 2 * one.inputs * one.outputs
