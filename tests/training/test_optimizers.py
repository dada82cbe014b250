"""Optimizer rows: bytes per element, by shape where it matters."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from vramcast.errors import QuestionError
from vramcast.training.optimizers.rows import ALIASES
from vramcast.training.optimizers.rules import ROWS, TrainedTensor, kept_states, optimizer, state_bytes, update_of, working_bytes


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
    parts = (TrainedTensor((4096, 16), 3, "q"), TrainedTensor((4096, 4096), 1, "q"), TrainedTensor((32000, 4096), 1, "embedding"))
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


def test_muon_orthogonalises_one_matrix_at_a_time() -> None:
    """Executed by torch's own Muon on one matrix: what its step allocates at the most, beside states that exist."""
    torch = pytest.importorskip("torch")
    rows, columns = 256, 1024
    for dtype, width in ((torch.float32, 4), (torch.bfloat16, 2)):
        weight = torch.nn.Parameter(torch.zeros(rows, columns, dtype=dtype, device="meta"))
        muon = torch.optim.Muon([weight], lr=1e-3)
        peaks = []
        for _ in range(2):
            weight.grad = torch.ones_like(weight)
            peaks.append(_peak_of(muon.step, torch))
        expected = working_bytes(optimizer("muon"), [(rows, columns)], width=width)
        assert peaks[1] == pytest.approx(expected, rel=0.02)


def _peak_of(step: Callable[[], object], torch: Any) -> int:
    """The largest sum of storages that a call makes and that live at once; on meta tensors no kernel adds its own."""
    alive: dict[int, int] = {}
    most = 0

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal most
            given = {x.untyped_storage()._cdata for x in args if isinstance(x, torch.Tensor)}
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and (key := out.untyped_storage()._cdata) not in given:
                alive[key] = out.untyped_storage().nbytes()
                weakref.finalize(out.untyped_storage(), alive.pop, key, None)
                most = max(most, sum(alive.values()))
            return out

    with Counting():
        step()
    return most
