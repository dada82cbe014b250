"""Contexts and communication buffers against the readings that the rules were made from."""

import pytest

from vramcast.hardware.catalogue import catalogue
from vramcast.hardware.overheads import (
    CONTEXT_BASE_BYTES,
    CONTEXT_BYTES_PER_THREAD,
    CONTEXT_READINGS,
    context_bytes,
    nccl_bytes,
    resident_threads,
)
from vramcast.units import GiB, MiB


@pytest.mark.parametrize(("what", "sms", "threads", "mib", "source"), CONTEXT_READINGS)
def test_contexts_follow_the_shape_of_the_card(what: str, sms: int, threads: int, mib: int, source: str) -> None:
    assert (CONTEXT_BASE_BYTES + CONTEXT_BYTES_PER_THREAD * sms * threads) / MiB == pytest.approx(mib, abs=5)


def test_a_cards_context() -> None:
    card = catalogue()["h100-sxm5-80"]
    assert context_bytes(card) / MiB == pytest.approx(518, abs=5)
    assert context_bytes(card, lazy=False) - context_bytes(card) == 720 * MiB
    assert context_bytes(catalogue()["a100-sxm4-40"], lazy=False) / MiB == pytest.approx(1573, abs=5)
    assert context_bytes(catalogue()["rtx-3090"], lazy=False) / MiB == pytest.approx(1001, abs=35)
    assert context_bytes(catalogue()["rtx-3090"], wsl=True) / MiB == pytest.approx(1341, abs=5)
    assert context_bytes(None) == 400 * MiB


def test_resident_threads_by_generation() -> None:
    assert [resident_threads(c) for c in ((7, 0), (7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))] == [
        2048,
        1024,
        2048,
        1536,
        2048,
        2048,
        1536,
    ]


def test_communicators() -> None:
    assert nccl_bytes(1) == 0
    assert nccl_bytes(2) == 342 * MiB
    assert nccl_bytes(8) == nccl_bytes(64) == 392 * MiB
    # eight H100 in an all-to-all went from 1.06 to 4.34 GiB (nccl issue 1685)
    assert (nccl_bytes(8, all_to_all=True) - nccl_bytes(8)) / GiB == pytest.approx(4.34 - 1.06, rel=0.25)
