"""Contexts and communication buffers against the readings that the rules were made from."""

import msgspec
import pytest

from vramcast.hardware.accelerator import catalogue
from vramcast.hardware.runtime import (
    CONTEXT_BASE_BYTES,
    CONTEXT_BYTES_PER_THREAD,
    CONTEXT_READINGS,
    assumed_class,
    context_bytes,
    cublas_workspace_bytes,
    engine_start_bytes,
    engine_start_term,
    nccl_bytes,
    resident_threads,
    workspace_of_capability,
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


@pytest.mark.parametrize(
    ("id_", "mib"),
    [
        ("t4", 8.125), ("a100-sxm4-80", 8.125), ("rtx-4090", 8.125), ("h100-sxm5-80", 32), ("b200-sxm-180", 32), ("rtx-5090", 32),
        ("mi250x", 32), ("mi300x", 128),
    ],
)  # fmt: skip
def test_cublas_workspaces_by_generation(id_: str, mib: float) -> None:
    assert cublas_workspace_bytes(catalogue()[id_]) == mib * MiB
    assert cublas_workspace_bytes(None) == 8.125 * MiB


def test_jetson_thor_is_no_data_centre_blackwell() -> None:
    """Compute capability 11 is in no branch of torch's rule."""
    assert workspace_of_capability((11, 0)) == 8.125 * MiB


def test_a_generation_that_nobody_has_read_is_answered_as_the_newest_and_says_so() -> None:
    newest = catalogue()["rtx-5090"]
    later = msgspec.structs.replace(newest, name="RTX 9090", capability=(13, 1))
    assert cublas_workspace_bytes(later) == cublas_workspace_bytes(newest)
    assert context_bytes(later) == context_bytes(newest)
    assert [(note.name, note.value) for note in assumed_class(later)] == [("compute_capability", "12.0")]
    assert "RTX 9090 has compute capability 13.1" in assumed_class(later)[0].because
    assert all(assumed_class(card) == () for card in catalogue().values())
    assert assumed_class(None) == ()


@pytest.mark.parametrize(
    ("ranks", "experts", "gib"), [(1, False, 0.51), (2, False, 1.53), (4, False, 1.55), (4, True, 2.07), (2, True, 2.01)]
)
def test_what_a_serving_engine_holds_before_its_weights(ranks: int, experts: bool, gib: float) -> None:
    """vLLM 0.19 on H100: total less free at the baseline snapshot."""
    card = catalogue()["h100-sxm5-80"]
    held = engine_start_bytes(card, ranks, expert_group=experts)
    assert held / GiB == pytest.approx(gib, abs=0.07)
    assert engine_start_term(card, ranks, expert_group=experts).bytes == held


def test_what_the_driver_keeps_of_a_card() -> None:
    assert all(card.driver_bytes >= card.visible_bytes for card in catalogue().values())
    h100 = catalogue()["h100-sxm5-80"]
    assert (h100.driver_bytes - h100.visible_bytes) / MiB == pytest.approx(470, abs=100)
