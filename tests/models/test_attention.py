"""Pairs and FLOPs of attention against brute counting, for numbers and for arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.models.layers import Attention, Indexer, LatentAttention

small = st.integers(0, 60)
GQA = {"heads": 8, "kv_heads": 2, "head_dim": 16}


def seen(position: int, *, window: int = 0, chunk: int = 0) -> int:
    """Keys that the token at that position meets, itself included."""
    if chunk:
        return position % chunk + 1
    return min(position + 1, window) if window else position + 1


@given(queries=small, past=small, window=st.integers(0, 40))
def test_window_pairs_are_counted(queries: int, past: int, window: int) -> None:
    kind = Attention(**GQA, window=window)
    assert kind.pairs(queries, past) == sum(seen(past + i, window=window) for i in range(queries))


@given(queries=small, past=small, chunk=st.integers(1, 40))
def test_chunk_pairs_are_counted(queries: int, past: int, chunk: int) -> None:
    assert Attention(**GQA, chunk=chunk).pairs(queries, past) == sum(seen(past + i, chunk=chunk) for i in range(queries))


@pytest.mark.parametrize("options", [{}, {"window": 7}, {"chunk": 5}, {"causal": False}])
def test_arrays_give_what_numbers_give(options: dict) -> None:
    kind = Attention(**GQA, **options)
    queries, past = np.array([1, 3, 8, 40]), np.array([0, 20, 5, 3])
    assert kind.score_flops(queries, past).tolist() == [
        kind.score_flops(int(q), int(p)) for q, p in zip(queries, past, strict=True)
    ]


def test_llama_prefill_flops() -> None:
    # 4 * heads * head_dim * s^2 / 2 and the diagonal
    kind = Attention(heads=32, kv_heads=8, head_dim=128)
    assert kind.score_flops(4096) == 4 * 4096 * 4096 * 4097 / 2


def test_an_indexer_bounds_what_attention_meets_and_costs_its_own_scores() -> None:
    plain = Attention(**GQA, window=16)
    indexed = Attention(**GQA, indexer=Indexer(heads=2, head_dim=8, top_k=16))
    assert indexed.pairs(10, 100) == plain.pairs(10, 100) == 160
    assert indexed.score_flops(10, 100) - plain.score_flops(10, 100) == 2 * 2 * 8 * (10 * 100 + 55)


MLA = LatentAttention(heads=128, query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)


def test_latent_decode_costs_more_flops_absorbed_than_decompressed() -> None:
    assert MLA.score_flops(1, 999) == 2 * 128 * 320 * 1000
    assert MLA.score_flops(1, 999, absorbed=True) == 2 * 128 * 1088 * 1000


def test_compressed_latent_meets_its_window_and_one_entry_for_each_so_many_tokens() -> None:
    kind = LatentAttention(
        heads=64, query_rank=1024, kv_rank=448, nope_dim=448, rope_dim=64, value_dim=512, window=128, compression=128
    )
    assert kind.pairs(1, 12_799) == 128 + 100
