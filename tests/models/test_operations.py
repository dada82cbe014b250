"""Operations against sums worked out by hand: products, attention, latent attention, experts, states, backward, layouts."""

import pytest

from vramcast.models.operations import (
    Batch,
    ExpertProducts,
    LatentScores,
    Linear,
    Recurrence,
    Scores,
    Split,
    backward,
    operations,
    recomputed,
)
from vramcast.models.operations.counts import conventions, forward_flops
from vramcast.models.quantization import scheme_for
from vramcast.models.reading import read_model


def _named(found, name, kind=object):
    return next(one for one in found if one.name == name and isinstance(one, kind))


def test_the_products_of_a_dense_model_are_twice_its_weights() -> None:
    model = read_model("Qwen/Qwen2.5-7B-Instruct", offline=True)
    batch = Batch(prefills=1, prefill_tokens=10, all_logits=True)
    flops = sum(one.count * one.flops(batch) for one in operations(model) if isinstance(one, Linear))
    assert flops == 10 * model.matmul_flops


def test_decode_reads_every_weight_once_and_the_cache_of_every_sequence() -> None:
    model = read_model("Qwen/Qwen2.5-7B-Instruct", offline=True)
    found = operations(model)
    weights = sum(one.count * one.weight_bytes for one in found if isinstance(one, Linear))
    biases_and_norms = sum(t.elements * b.count for b in model.blocks for t in b.tensors if len(t.shape) == 1) + model.hidden
    assert weights / 2 == model.parameters - model.vocab * model.hidden - biases_and_norms
    scores = _named(found, "scores", Scores)
    assert scores.cache_bytes(Batch(decodes=3, decode_past=999)) == 3 * 1000 * 2 * 4 * 128 * 2


def test_a_window_bounds_keys_and_flops() -> None:
    found = operations(read_model("openai/gpt-oss-120b", offline=True))
    near = next(one for one in found if isinstance(one, Scores) and one.attention.window)
    far = next(one for one in found if isinstance(one, Scores) and not one.attention.window)
    late = Batch(decodes=1, decode_past=10_000)
    assert near.decode_keys(late) == 128
    assert far.decode_keys(late) == 10_001
    assert near.flops(late) * 10_001 == pytest.approx(far.flops(late) * 128)


def test_latent_attention_is_absorbed_for_decodes_only() -> None:
    found = operations(read_model("deepseek-ai/DeepSeek-V3", offline=True), split=Split(tp=8, moe_tp=8))
    scores = _named(found, "scores", LatentScores)
    decode, prefill = Batch(decodes=1, decode_past=999), Batch(prefills=1, prefill_tokens=1000)
    assert scores.flops(decode) == 2 * 16 * 1000 * (576 + 512)
    assert scores.flops(prefill) == 2 * 16 * (1000 * 1001 / 2) * (192 + 128)
    assert scores.cache_bytes(decode) == 1000 * 576 * 2, "the latent is whole on every rank"
    assert _named(found, "kv_b").flops(decode) == 0
    assert _named(found, "absorb_k").flops(prefill) == 0
    assert _named(found, "absorb_k").flops(decode) == 2 * 16 * 128 * 512


def test_experts_touched_grow_with_tokens() -> None:
    experts = _named(operations(read_model("Qwen/Qwen3-30B-A3B", offline=True)), "experts", ExpertProducts)
    assert experts.touched(Batch(decodes=1)) == pytest.approx(8)
    assert experts.touched(Batch(decodes=10_000)) == pytest.approx(128)
    spread = operations(read_model("Qwen/Qwen3-30B-A3B", offline=True), split=Split.of(tp=1, dp=4, ep=4))
    ours = _named(spread, "experts", ExpertProducts)
    assert ours.held == 32
    assert ours.rows_of(Batch(decodes=10)) == 10 * 4 * 8 / 4


def test_a_state_is_read_and_written_whole() -> None:
    found = operations(read_model("Qwen/Qwen3.5-397B-A17B", offline=True))
    state = _named(found, "state", Recurrence)
    one, two = Batch(decodes=1), Batch(decodes=2)
    assert state.read_bytes(two) == 2 * state.read_bytes(one)
    assert state.write_bytes(one) > 64 * 128 * 128 * 4


def test_quantised_weights_carry_their_scales_and_the_head_stays_plain() -> None:
    model = read_model("Qwen/Qwen2.5-7B-Instruct", offline=True)
    found = operations(model, scheme=scheme_for(model, quant="awq"))
    down, head = _named(found, "down"), _named(found, "head")
    assert down.weight_bytes / (down.inputs * down.outputs) == pytest.approx(0.5 + (2 + 0.5) / 128, rel=1e-3)
    assert head.weight_bytes == head.inputs * head.outputs * 2


def test_tensor_parallel_shares_add_up_and_meet_twice_a_layer() -> None:
    model = read_model("meta-llama/Llama-3.3-70B-Instruct", offline=True)
    batch = Batch(decodes=16, decode_past=100)
    whole = sum(one.count * one.flops(batch) for one in operations(model) if isinstance(one, Linear))
    share = sum(one.count * one.flops(batch) for one in operations(model, split=Split.of(tp=8)) if isinstance(one, Linear))
    assert share * 8 == pytest.approx(whole, rel=1e-3)
    reduces = [one for one in operations(model, split=Split.of(tp=8)) if getattr(one, "collective", "") == "all_reduce"]
    assert sum(one.count for one in reduces) == 2 * 80 + 1


def test_backward_is_twice_the_products_once_when_frozen() -> None:
    model = read_model("Qwen/Qwen2.5-7B-Instruct", offline=True)
    batch = Batch(prefills=1, prefill_tokens=512, all_logits=True)
    forward = operations(model)

    def flops(found):
        return sum(one.count * one.flops(batch) for one in found if isinstance(one, Linear))

    assert flops(backward(forward)) == 2 * flops(forward)
    assert flops(backward(forward, frozen=True)) == flops(forward)
    again = sum(one.count * one.flops(batch) for one in recomputed(forward, selective=True))
    assert again == sum(one.count * one.flops(batch) for one in forward if isinstance(one, Scores))


def test_arrays_give_what_numbers_give() -> None:
    numpy = pytest.importorskip("numpy")
    found = operations(read_model("deepseek-ai/DeepSeek-V3", offline=True))
    many = Batch(decodes=numpy.array([1.0, 8, 64]), decode_past=numpy.array([10.0, 100, 1000]))
    for one in found:
        for i, (n, past) in enumerate([(1, 10), (8, 100), (64, 1000)]):
            alone = Batch(decodes=n, decode_past=past)
            assert (one.flops(many) + 0 * many.decodes)[i] == pytest.approx(one.flops(alone))
            assert (one.read_bytes(many) + 0 * many.decodes)[i] == pytest.approx(one.read_bytes(alone))


def test_conventions_stand_in_their_order() -> None:
    model = read_model("Qwen/Qwen3-30B-A3B", offline=True)
    by_name = {row.name: row.flops for row in conventions(model, seq=4096)}
    assert by_name["vramcast"] == forward_flops(model, seq=4096)
    assert by_name["fvcore"] < by_name["vramcast"] < by_name["torch FlopCounterMode"] < by_name["2N (6N/3)"]
