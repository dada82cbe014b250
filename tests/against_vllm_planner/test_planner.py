"""vLLM 0.33's own cache planner, run once without a GPU, printed these groups, blocks and sizes; ours must equal them."""

import pytest

from vramcast.serving.engines.vllm.pages import CacheTypes, Demand, Paged, group_size, hybrid_block, paged_layers, plan
from vramcast.serving.layers import CacheLayer

BF16 = CacheTypes()
VERSION = (0, 33)


def mix(full: int, sliding: int, heads: int, width: int, window: int) -> list[tuple[CacheLayer, int]]:
    layers = [(CacheLayer("full", heads, heads * width, heads * width), full)]
    return layers + [(CacheLayer("sliding", heads, heads * width, heads * width, window), sliding)] * bool(sliding)


GEMMA3_27B = mix(10, 52, 16, 128, 1024)
GPT_OSS_20B = mix(12, 12, 8, 64, 128)
LLAMA3_8B = mix(32, 0, 8, 128, 0)


@pytest.mark.parametrize(
    ("layers", "in_flight", "groups", "blocks", "gib"),
    [
        (GEMMA3_27B, 16384, [10, 9, 9, 9, 9, 8, 8], 14726, 17.976),
        (GEMMA3_27B, 4096, [10, 9, 9, 9, 9, 8, 8], 10118, 12.351),
        (GEMMA3_27B, 8192, [10, 9, 9, 9, 9, 8, 8], 11654, 14.226),
        (GPT_OSS_20B, 16384, [12, 12], 9225, 3.378),
        (GPT_OSS_20B, 4096, [12, 12], None, 3.097),
        (LLAMA3_8B, 16384, [32], 8192, 16.0),
    ],
)
def test_groups_blocks_and_bytes_of_one_long_request(layers, in_flight, groups, blocks, gib) -> None:
    pages = plan(paged_layers(layers, BF16, hybrid=True), VERSION)
    request = pages.request_blocks(131072, Demand(in_flight=in_flight))
    assert [g.layers for g in pages.groups] == groups
    assert blocks is None or request == blocks
    assert request * pages.block_bytes / 2**30 == pytest.approx(gib, abs=0.0005)


def test_padding_layers_are_counted() -> None:
    assert plan(paged_layers(GEMMA3_27B, BF16, hybrid=True), VERSION).padded_layers == 8


def test_without_the_hybrid_manager_sliding_layers_pay_the_full_length() -> None:
    pages = plan(paged_layers(GEMMA3_27B, BF16, hybrid=False), VERSION)
    assert pages.request_blocks(131072, Demand(in_flight=8192)) * pages.block_bytes == 62 * 8192 * 131072


@pytest.mark.parametrize(
    ("buckets", "stretch", "size"), [([10, 52], 1.5, 10), ([20, 28], 1.5, 28), ([20, 30], 1.5, 20), ([12, 12], 1.5, 12)]
)
def test_group_size_is_the_smallest_bucket_unless_the_largest_is_close(buckets, stretch, size) -> None:
    assert group_size(buckets, stretch) == size


@pytest.mark.parametrize(
    ("token", "state", "block"),
    [
        (1024, 2_179_072, 2128),  # Qwen3.6-35B-A3B, fp8 cache, fp32 states, two drafted tokens: block size in its log
        (1024, 1, 16),
    ],
)
def test_attention_blocks_grow_until_a_page_holds_a_state(token, state, block) -> None:
    growing, states = [Paged("full", token, 0, 0, 10)], [Paged("state", 0, state, 0, 30)]
    assert hybrid_block(growing, states, 16) == block


def test_longest_request_is_exact_at_block_edges() -> None:
    pages = plan(paged_layers(LLAMA3_8B, BF16, hybrid=True), VERSION)
    assert pages.longest(100, Demand(in_flight=0), 10**6) == 1600
    assert pages.longest(0, Demand(in_flight=0), 10**6) == 0
