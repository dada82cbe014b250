"""The shared parts of serving: allocator rounding, stages, caches and weights of one rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.errors import QuestionError
from vramcast.models.inventory import Tensor
from vramcast.models.layers import Attention, GatedDeltaNet, LatentAttention, Mamba2
from vramcast.models.reading import read_model
from vramcast.models.sharding import Layout, cut, distinct_stages, every_stage, share_shape
from vramcast.serving.engines.layouts import even_split, front_split, middle_split
from vramcast.serving.layers import cache_layer, cache_layers
from vramcast.serving.weights import Loading, Storage, allocated_bytes, weights_term
from vramcast.units import GiB, MiB


@pytest.mark.parametrize(
    ("size", "counted"),
    [
        (1, 512),
        (9 * MiB + 1, 9 * MiB + 512),
        (259 * MiB, 260 * MiB),  # the remainder of 1 MiB is not split off
        (24 * MiB + MiB // 2, 24 * MiB + MiB // 2),  # 1.5 MiB would remain: split off
        (80 * MiB, 80 * MiB),
    ],
)
def test_allocator_counts_segments_it_does_not_split(size: int, counted: int) -> None:
    assert allocated_bytes(size) == counted


@given(st.integers(1, 200), st.integers(1, 64))
def test_every_split_places_every_layer_once(layers: int, pp: int) -> None:
    for split in (even_split, middle_split, front_split):
        if pp <= layers:
            lengths = split(layers, pp)
            assert len(lengths) == pp and sum(lengths) == layers


def test_vllm_gives_the_remainder_to_middle_stages() -> None:
    assert middle_split(62, 4) == (15, 16, 16, 15)
    assert even_split(62, 4) == (15, 15, 15, 17)
    assert front_split(62, 4) == (16, 16, 15, 15)


def test_stages_of_one_kind_are_answered_once() -> None:
    model = read_model("meta-llama/Llama-3.1-8B-Instruct", offline=True)
    assert [s.name for s in distinct_stages(model, 4, middle_split)] == ["stage 0 of 4", "stage 1 of 4", "stage 3 of 4"]
    assert len(every_stage(model, 4, middle_split)) == 4


def test_more_stages_than_layers_are_refused() -> None:
    model = read_model("meta-llama/Llama-3.1-8B-Instruct", offline=True)
    with pytest.raises(QuestionError, match=r"pp is 40 but .* has 32 layers: use at most one stage per layer"):
        distinct_stages(model, 40, middle_split)


@pytest.mark.parametrize(("tp", "elements"), [(1, 2048), (2, 1024), (8, 256), (16, 256)])
def test_kv_heads_are_replicated_beyond_their_number(tp: int, elements: int) -> None:
    assert cache_layer(Attention(heads=64, kv_heads=8, head_dim=128), tp).token_elements == elements


def test_a_latent_is_whole_on_every_rank() -> None:
    latent = LatentAttention(heads=128, query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
    assert {cache_layer(latent, tp).token_elements for tp in (1, 8, 16)} == {576}


def test_states_are_cut_by_heads_and_groups_replicated() -> None:
    mamba = Mamba2(heads=128, head_dim=64, groups=8, state=128, conv=4)
    assert cache_layer(mamba, 8).conv_elements == 3 * (128 * 64 // 8 + 2 * 1 * 128)
    assert cache_layer(mamba, 16).conv_elements == 3 * (128 * 64 // 16 + 2 * 1 * 128)
    delta = GatedDeltaNet(key_heads=16, value_heads=32, key_dim=128, value_dim=128, conv=4)
    assert cache_layer(delta, 2).state_elements == 32 * 128 * 128 // 2


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 131_072),
        ("Qwen/Qwen2.5-7B-Instruct", 57_344),
        ("Qwen/Qwen2.5-72B-Instruct", 327_680),
        ("deepseek-ai/DeepSeek-V3", 70_272),
    ],
)
def test_cache_bytes_per_token_in_16_bits(name: str, bytes_per_token: int) -> None:
    stage = every_stage(read_model(name, offline=True), 1, even_split)[0]
    assert sum(count * layer.token_elements for layer, count in cache_layers(stage, 1)) * 2 == bytes_per_token


def test_vocabulary_rows_are_padded_before_they_are_cut() -> None:
    head = Tensor(name="lm_head.weight", shape=(151_655, 64), role="head", shard=0)
    assert share_shape(head, Layout(tp=4, vocab_multiple=64)) == (151_680 // 4, 64)


def test_a_tied_embedding_stands_on_both_ends_of_a_pipeline() -> None:
    model = read_model("Qwen/Qwen2.5-3B-Instruct", offline=True)
    first, last = every_stage(model, 2, even_split)
    storage = Storage(model, quant=None, dtype="bfloat16")
    loaded = [weights_term(model, stage, Loading(), storage) for stage in (first, last)]
    assert all(term.find("embedding").bytes == model.vocab * model.hidden * 2 for term in loaded)


def test_weights_of_a_rank_sum_to_the_parameters() -> None:
    model = read_model("meta-llama/Llama-3.1-8B-Instruct", offline=True)
    stage = every_stage(model, 1, even_split)[0]
    term = weights_term(model, stage, Loading(fuses=False), Storage(model, quant=None, dtype="bfloat16"))
    assert term.bytes - term.find("rounding").bytes == model.parameters * 2
    assert term.bytes / GiB == pytest.approx(14.96, abs=0.01)


def test_weights_open_by_part_with_the_share_of_the_rank() -> None:
    model = read_model("Qwen/Qwen3-30B-A3B")
    storage = Storage(model, quant=None, dtype="bfloat16")
    whole = every_stage(model, 1, even_split)[0]
    term = weights_term(model, whole, Loading(layout=cut(2, ep=2, expert_tp=1)), storage)
    experts = term.find("experts")
    assert {"embedding", "attention", "experts", "norms", "head"} <= {part.name for part in term.terms}
    assert "of 29,003,612,160 on all ranks x 2 B" in experts.why


@pytest.mark.parametrize(
    ("mixer", "width"),
    [
        (Mamba2(heads=64, head_dim=64, state=128, groups=8, conv=4), 4096 + 2 * 8 * 128),
        (GatedDeltaNet(key_heads=16, value_heads=32, key_dim=128, value_dim=128, conv=4), 2 * 16 * 128 + 32 * 128),
    ],
)
def test_one_more_position_of_a_window_is_as_wide_as_each_of_its_others(mixer: Mamba2 | GatedDeltaNet, width: int) -> None:
    """The window of a convolution of four is three positions; each drafted token makes it one longer (mamba_utils.py)."""
    for tp in (1, 2):
        layer = cache_layer(mixer, tp)
        assert layer.conv_step_elements == width // tp
        assert layer.conv_elements == 3 * width // tp
