"""A tensor's share of a rank: known layouts by hand, and the laws that hold for every family under every layout."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_of_each import FAMILIES

from vramcast.models.families import parts
from vramcast.models.inventory import Model, Tensor
from vramcast.models.layers import Attention
from vramcast.models.quantization.scheme import walk
from vramcast.models.reading import read_model
from vramcast.models.sharding import Layout, copies_held, cut, is_routed, share, share_shape, units_held

TENSOR_PARALLEL = (1, 2, 4, 8, 16)


def test_kv_heads_are_replicated_once_tensor_parallelism_exceeds_them() -> None:
    key = Tensor(name="k", shape=(2 * 128, 4096), role="k", shard=0, groups=2)
    assert [share(key, cut(tp)) // 4096 for tp in (1, 2, 4, 8)] == [256, 128, 128, 128]


def test_a_fused_qkv_is_cut_in_query_heads_and_its_one_kv_head_replicated() -> None:
    """StarCoder: 48 query heads and one KV head of 128."""
    qkv = parts.fused_attention(Attention(heads=48, kv_heads=1, head_dim=128), 6144, qkv="qkv", out="o")[0]
    assert [share(qkv, cut(tp)) // 6144 for tp in (1, 2, 4, 8)] == [50 * 128, 26 * 128, 14 * 128, 8 * 128]


@pytest.mark.parametrize(("tp", "rows"), [(1, 4608), (2, 2304), (4, 1024 + 256), (8, 512 + 256), (16, 256 + 256)])
def test_glm_4_9b_repeats_its_two_kv_heads_beside_cut_queries(tp: int, rows: int) -> None:
    """32 query heads and two KV heads of 128 in one matrix: 4,096 + 256 + 256 rows."""
    model = read_model("THUDM/glm-4-9b-chat", offline=True)
    qkv = next(t for t in model.blocks[0].tensors if t.role == "qkv" and len(t.shape) == 2)
    assert qkv.shape == (4608, 4096)
    assert share(qkv, cut(tp)) == rows * 4096


def test_experts_are_dealt_out_whether_stacked_or_apart() -> None:
    apart = Tensor(name="{}.up", shape=(768, 2048), role="expert.up", shard=0, copies=128)
    stacked = Tensor(name="up", shape=(128, 768, 2048), role="expert.up", shard=1, stacked=128)
    joined = Tensor(name="up", shape=(128 * 768, 2048), role="expert.up", shard=0, stacked=128)
    for tp, ep in ((1, 1), (1, 8), (2, 1), (1, 3), (5, 3)):
        layout = Layout(expert_tp=tp, ep=ep)
        assert share(apart, layout) == share(stacked, layout) == share(joined, layout) == -(-128 // ep) * -(-768 // tp) * 2048


@pytest.mark.parametrize(
    ("name", "billions"), [("openai/gpt-oss-120b", 114.7), ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 96.6)]
)
def test_expert_parallelism_spreads_experts_that_lie_in_one_tensor(name: str, billions: float) -> None:
    model = read_model(name, offline=True)
    routed = [(t, b.count) for b in model.blocks for t in b.tensors if is_routed(t)]
    whole, eighth = (sum(share(t, Layout(ep=ep)) * n for t, n in routed) for ep in (1, 8))
    assert whole / 1e9 == pytest.approx(billions, abs=0.1)
    assert whole == eighth * 8


def test_vocabulary_rows_are_padded_before_they_are_cut() -> None:
    head = Tensor(name="lm_head.weight", shape=(151_655, 64), role="head", shard=0)
    assert share_shape(head, Layout(tp=4, vocab_multiple=64)) == (151_680 // 4, 64)
    replicated = Tensor(name="pooler", shape=(151_655, 64), role="head")
    assert share_shape(replicated, Layout(tp=4, vocab_multiple=64)) == (151_655, 64)


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.family)
def test_the_shares_of_all_ranks_cover_every_tensor_of_every_family(model: Model) -> None:
    """Counted unit by unit on every rank: together they hold each unit, replicas only where ranks outnumber units."""
    for tensor, _, _ in walk(model):
        for tp in TENSOR_PARALLEL:
            for ep in (1, 2, 16) if is_routed(tensor) else (1,):
                layout = cut(tp, ep=ep)
                assert share(tensor, layout) == max(_held(tensor, rank, tp, ep) for rank in (0, tp * ep - 1))
                assert _covered(tensor, tp, ep) == tensor.elements


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.family)
def test_more_ranks_never_hold_more_each(model: Model) -> None:
    for tensor, _, _ in walk(model):
        cuts = [share(tensor, cut(tp)) for tp in range(1, 17)]
        spreads = [share(tensor, Layout(ep=ep)) for ep in range(1, 17)]
        assert cuts == sorted(cuts, reverse=True)
        assert spreads == sorted(spreads, reverse=True)
        assert cuts[0] == spreads[0] == tensor.elements


def _held(tensor: Tensor, rank: int, tp: int, ep: int) -> int:
    """Elements of one rank, counted: its experts times what its cut of the axis holds; the first rank holds the longest."""
    experts, each, length = _plain(tensor)
    own = len(_slice(experts, rank // tp, ep))
    return own * (each // length * sum(size * len(_slice(units, rank % tp, tp)) for size, units in _units(tensor, length)))


def _covered(tensor: Tensor, tp: int, ep: int) -> int:
    """Distinct elements over all ranks."""
    experts, each, length = _plain(tensor)
    own = len({e for rank in range(ep) for e in _slice(experts, rank, ep)})
    axis = sum(size * len({u for rank in range(tp) for u in _slice(units, rank, tp)}) for size, units in _units(tensor, length))
    return own * each // length * axis


def _plain(tensor: Tensor) -> tuple[int, int, int]:
    """Experts (1 for any other tensor, all copies in one), elements of each, and the length of the axis that is cut."""
    experts = (tensor.stacked or tensor.copies) if is_routed(tensor) else 1
    each = tensor.elements // experts
    length = 1 if tensor.shard is None else tensor.shape[tensor.shard]
    return experts, each, length // (tensor.stacked if tensor.stacked and tensor.shard == 0 else 1)


def _units(tensor: Tensor, length: int) -> list[tuple[int, int]]:
    """(length of a unit, units) of every piece of the axis; an axis that is not cut is one unit, which every rank holds."""
    if tensor.shard is None:
        return [(1, 1)]
    return [(part // units, units) for part, units in tensor.pieces or ((length, tensor.groups or length),)]


def _slice(units: int, rank: int, ranks: int) -> range:
    """The units of one rank: ceil(units / ranks) from the front, or its replica where ranks outnumber units."""
    if ranks > units:
        return range(rank * units // ranks, rank * units // ranks + 1)
    each = -(-units // ranks)
    return range(min(units, rank * each), min(units, (rank + 1) * each))


@given(units=st.integers(1, 64), width=st.integers(1, 64), tp=st.integers(1, 64))
def test_ranks_together_hold_every_unit(units: int, width: int, tp: int) -> None:
    tensor = Tensor(name="t", shape=(units * width, 3), role="q", shard=0, groups=units)
    held = share(tensor, cut(tp))
    assert held * tp >= tensor.elements
    assert held % (3 * width) == 0


@given(units=st.integers(1, 256), ranks=st.integers(1, 256))
def test_units_repeat_once_ranks_outnumber_them(units: int, ranks: int) -> None:
    assert units_held(units, ranks) == max(1, -(-units // ranks))
    assert units_held(units, ranks) * ranks >= units


def test_a_layout_of_arrays_is_answered_as_its_numbers_are() -> None:
    numpy = pytest.importorskip("numpy")
    model = read_model("openai/gpt-oss-120b", offline=True)
    tp, ep = numpy.array([1, 2, 4, 8]), numpy.array([8, 4, 2, 1])
    for tensor in (t for b in model.blocks for t in b.tensors):
        together = share(tensor, cut(tp, ep=ep, vocab_multiple=64 * tp))
        apart = [share(tensor, cut(int(t), ep=int(e), vocab_multiple=64 * int(t))) for t, e in zip(tp, ep, strict=True)]
        assert numpy.broadcast_to(together, 4).tolist() == apart
        assert numpy.all(copies_held(tensor, Layout(ep=ep)) >= 1)
