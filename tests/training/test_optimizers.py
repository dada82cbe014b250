"""Optimizer rows: bytes per element, by shape where it matters."""

import pytest

from vramcast.errors import QuestionError
from vramcast.training.optimizer_rows import ALIASES
from vramcast.training.optimizer_states import Part, kept_states
from vramcast.training.optimizers import ROWS, optimizer, state_bytes, update_of


@pytest.mark.parametrize(
    ("name", "width", "per_element"),
    [
        ("adamw", 4, 8),
        ("adamw_torch_fused", 2, 4),
        ("adamw_bnb_8bit", 4, 2 + 8 / 256),
        ("paged_adamw_32bit", 2, 8),
        ("lion", 4, 4),
        ("sgd", 4, 0),
        ("sgd_momentum", 2, 2),
        ("lomo", 2, 0),
    ],
)
def test_state_bytes_per_element(name: str, width: int, per_element: float) -> None:
    assert state_bytes(optimizer(name), (4096, 1024), width=width) == pytest.approx(4096 * 1024 * per_element)


def test_adafactor_keeps_a_row_and_a_column() -> None:
    assert state_bytes(optimizer("adafactor"), (4096, 1024), width=2) == 4 * (4096 + 1024)


def test_eight_bit_states_of_small_tensors_stay_in_fp32() -> None:
    assert state_bytes(optimizer("adamw_8bit"), (1024,), width=2) == 1024 * 8


def test_galore_follows_its_rank() -> None:
    low = state_bytes(optimizer("galore_adamw"), (4096, 4096), width=2, rank=128)
    assert low == 128 * 4096 * 2 * 2 + 128 * 4096 * 2
    whole = state_bytes(optimizer("galore_adamw"), (4096, 4096), width=2, rank=128, inner=False)
    assert whole == 2 * 4096 * 4096 * 2


@pytest.mark.parametrize(("name", "whole"), [("adamw_8bit", 8), ("adamw_torchao_8bit", 4)])
def test_small_tensors_keep_plain_states(name: str, whole: int) -> None:
    assert state_bytes(optimizer(name), (2048,), width=2) == 2048 * whole


def test_torchao_leaves_incomplete_blocks_whole() -> None:
    assert state_bytes(optimizer("adamw_torchao_8bit"), (4097,), width=4) == 4097 * 8
    assert state_bytes(optimizer("adamw_8bit"), (4097,), width=4) == 4097 * 2 + 17 * 8


def test_paging_spares_small_tensors_and_embeddings_stay_wide() -> None:
    parts = (Part((4096, 16), 3, "q"), Part((4096, 4096), 1, "q"), Part((32000, 4096), 1, "embedding"))
    paged = kept_states(parts, optimizer("paged_adamw_8bit"), width=2, rank=128, wide_ends=True)
    small = 3 * (4096 * 16 * 2 + 256 * 8)
    assert paged.resident == small
    assert paged.dense == small + 4096 * 4096 * 2 + 65536 * 8 + 32000 * 4096 * 8


@pytest.mark.parametrize(
    ("name", "update"), [("adamw_torch", "foreach"), ("adamw_torch_fused", "fused"), ("adamw", None), (None, None)]
)
def test_a_name_may_fix_the_implementation(name: str | None, update: str | None) -> None:
    assert update_of(name) == update


def test_every_row_names_its_source() -> None:
    assert all(row.source for row in ROWS)


def test_aliases_lead_to_rows() -> None:
    assert set(ALIASES.values()) <= {row.name for row in ROWS}
    assert not set(ALIASES) & {row.name for row in ROWS}


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(QuestionError, match=r"unknown optimizer 'adamw8': did you mean .*adamw"):
        optimizer("adamw8")
