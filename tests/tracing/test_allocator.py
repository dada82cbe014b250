"""The caching allocator model: rounding, pools, splits, merges, segments, running out of memory."""

import random
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramcast.tracing.allocator.caching import CachingAllocator, OutOfMemoryError
from vramcast.tracing.allocator.device import Device
from vramcast.tracing.allocator.replay import new_allocator, replay, smallest_card_bytes
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.tracing.eventlog import Allocation, EventLog
from vramcast.units import GiB, KiB, MiB


def test_small_requests_share_a_segment_of_2_mib_in_blocks_of_512_bytes() -> None:
    allocator = CachingAllocator()
    first, second = allocator.malloc(1), allocator.malloc(513)
    assert (first.size, second.size) == (512, 1024)
    assert second.address == first.address + 512
    assert (allocator.reserved_bytes, allocator.requested_bytes) == (2 * MiB, 514)


@pytest.mark.parametrize(
    ("requested", "segment"),
    [(MiB, 2 * MiB), (MiB + 1, 20 * MiB), (10 * MiB - 512, 20 * MiB), (10 * MiB, 10 * MiB), (21 * MiB + 1, 22 * MiB)],
)
def test_segment_sizes(requested: int, segment: int) -> None:
    allocator = CachingAllocator()
    allocator.malloc(requested)
    assert allocator.reserved_bytes == segment


def test_slack_of_up_to_1_mib_stays_in_a_large_block_and_counts_as_allocated() -> None:
    allocator = CachingAllocator()
    assert allocator.malloc(41 * MiB).size == 42 * MiB
    assert allocator.allocated_bytes == 42 * MiB
    assert CachingAllocator().malloc(12 * MiB - 512).size == 12 * MiB


def test_freed_neighbours_merge_and_serve_a_larger_request() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.malloc(4 * MiB) for _ in range(5)]
    for block in (blocks[1], blocks[3], blocks[2]):
        allocator.free(block)
    assert allocator.malloc(12 * MiB).address == blocks[1].address
    assert allocator.reserved_bytes == 20 * MiB


def test_streams_do_not_share_blocks() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(4 * MiB, stream=0))
    allocator.malloc(4 * MiB, stream=7)
    assert allocator.reserved_bytes == 40 * MiB


def test_running_out_empties_the_cache_before_it_fails() -> None:
    allocator = new_allocator(capacity_bytes=100 * MiB)
    allocator.free(allocator.malloc(60 * MiB))
    kept = allocator.malloc(80 * MiB)
    assert (allocator.retries, allocator.reserved_bytes, kept.size) == (1, 80 * MiB, 80 * MiB)
    with pytest.raises(OutOfMemoryError, match=r"out of memory: 30\.0 MiB requested with 80\.0 MiB allocated"):
        allocator.malloc(30 * MiB)


def test_a_graph_pool_keeps_its_segments() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(4 * MiB, owner=3))
    allocator.malloc(4 * MiB)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 40 * MiB


def test_max_split_size_keeps_large_blocks_whole() -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_size_bytes=64 * MiB))
    allocator.free(allocator.malloc(200 * MiB))
    allocator.malloc(40 * MiB)
    assert allocator.reserved_bytes == 240 * MiB
    assert allocator.malloc(190 * MiB).size == 200 * MiB


def test_max_split_size_releases_the_oversize_block_when_memory_is_short() -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_size_bytes=64 * MiB), Device(300 * MiB))
    small = allocator.malloc(20 * MiB)
    allocator.free(small)
    allocator.free(allocator.malloc(200 * MiB))
    allocator.malloc(100 * MiB)
    assert (allocator.reserved_bytes, allocator.retries) == (120 * MiB, 0)


def test_garbage_collection_releases_the_oldest_segments_first() -> None:
    tuned = AllocatorSettings(garbage_collection_threshold=0.5, memory_fraction=1.0)
    allocator = CachingAllocator(tuned, Device(400 * MiB))
    old = allocator.malloc(100 * MiB)
    young = allocator.malloc(130 * MiB)
    allocator.free(old)
    for _ in range(5):
        allocator.free(allocator.malloc(1))
    allocator.free(young)
    allocator.malloc(150 * MiB)
    assert allocator.reserved_bytes == (130 + 150 + 2) * MiB


def test_expandable_segments_reuse_what_the_native_allocator_cannot() -> None:
    log = EventLog()
    holes = [log.allocate(Allocation(size=30 * MiB)) for _ in range(10)]
    for number in holes:
        log.free(number)
    log.allocate(Allocation(size=300 * MiB))
    assert replay(log).peak_reserved_bytes == 600 * MiB
    assert replay(log, AllocatorSettings(expandable_segments=True)).peak_reserved_bytes == 300 * MiB


def test_expandable_segments_unmap_free_pages_and_map_them_again() -> None:
    allocator = new_allocator(AllocatorSettings(expandable_segments=True), 200 * MiB)
    blocks = [allocator.malloc(40 * MiB) for _ in range(4)]
    allocator.free(blocks[1])
    allocator.malloc(60 * MiB, stream=5)
    assert (allocator.retries, allocator.reserved_bytes) == (1, 180 * MiB)
    allocator.free(blocks[0])
    again = allocator.malloc(50 * MiB)
    assert again.address == blocks[0].address
    assert allocator.reserved_bytes == 200 * MiB


def test_would_it_fit_on_a_smaller_card() -> None:
    log = EventLog()
    first = log.allocate(Allocation(size=3 * GiB))
    log.free(first)
    log.allocate(Allocation(size=4 * GiB))
    assert replay(log).peak_reserved_bytes == 7 * GiB
    on_5 = replay(log, capacity_bytes=5 * GiB)
    assert on_5.fits
    assert on_5.retries == 1
    refused = replay(log, capacity_bytes=4 * GiB - 1)
    assert (refused.failed_at, refused.failed_request_bytes) == (2, 4 * GiB)
    assert smallest_card_bytes(log) == 4 * GiB


@pytest.mark.parametrize("settings", [None, AllocatorSettings(expandable_segments=True)], ids=["native", "expandable"])
@pytest.mark.parametrize("seed", range(6))
def test_the_smallest_card_serves_and_the_next_smaller_does_not(seed: int, settings: AllocatorSettings | None) -> None:
    draw, log, alive = random.Random(seed), EventLog(), list[int]()
    for _ in range(120):
        if alive and draw.random() < 0.45:
            log.free(alive.pop(draw.randrange(len(alive))))
        else:
            alive.append(log.allocate(Allocation(size=draw.choice([3 * MiB, 12 * MiB, 70 * MiB, 300 * MiB]))))
    smallest = smallest_card_bytes(log, settings)
    assert replay(log, settings, capacity_bytes=smallest).fits
    assert not replay(log, settings, capacity_bytes=smallest - 2 * MiB).fits


def test_a_log_without_some_allocations_tells_what_they_cost() -> None:
    log = EventLog()
    first = log.allocate(Allocation(size=30 * MiB))
    second = log.allocate(Allocation(size=50 * MiB))
    log.free(first)
    log.free(second)
    assert replay(log.without([second])).peak_allocated_bytes == 30 * MiB


@given(st.lists(st.tuples(st.integers(1, 64 * MiB), st.integers(0, 2), st.booleans()), max_size=60), st.booleans())
@settings(max_examples=60, deadline=None)
def test_blocks_never_overlap_and_the_books_always_balance(requests: list[tuple[int, int, bool]], expandable: bool) -> None:
    allocator = new_allocator(AllocatorSettings(expandable_segments=expandable))
    alive = []
    for size, stream, frees in requests:
        alive.append(allocator.malloc(size, stream))
        if frees:
            allocator.free(alive.pop(len(alive) // 2))
        placed = sorted((b.address, b.size) for b in alive)
        assert all(a + s <= b for (a, s), (b, _) in pairwise(placed))
        assert allocator.allocated_bytes == sum(s for _, s in placed)
        assert allocator.reserved_bytes >= allocator.allocated_bytes >= allocator.requested_bytes
    for block in alive:
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.allocated_bytes, allocator.requested_bytes, allocator.reserved_bytes) == (0, 0, 0)


def test_a_replay_handles_200_000_events_a_second() -> None:
    log = EventLog()
    for i in range(15_000):
        number = log.allocate(Allocation(size=(i % 97 + 1) * 40 * KiB))
        if i % 3:
            log.free(number)
    assert len(log.order) / min(_seconds(log) for _ in range(5)) > 200_000


def _seconds(log: EventLog) -> float:
    started = time.process_time()
    replay(log)
    return time.process_time() - started
