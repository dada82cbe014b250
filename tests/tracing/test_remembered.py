"""Operators that are repeated from memory, against the same operators run: on meta tensors, in this process."""

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
aten = torch.ops.aten


@pytest.fixture
def ran() -> Counter[Any]:
    return Counter()


@pytest.fixture
def call(ran: Counter[Any]) -> Any:
    from vramcast.tracing.execution.kernels.remembered import Remembered

    def run(func: Any, args: Any, kwargs: Any) -> Any:
        ran[func] += 1
        return func(*args, **kwargs)

    def make(shape: Any, stride: Any, dtype: Any) -> Any:
        return torch.empty_strided(shape, stride, dtype=dtype, device="meta")

    return Remembered(run, plain=lambda t: t.is_meta, make=make).call


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype
    return [_described(v) for v in value] if isinstance(value, list | tuple) else value


X = {"device": "meta"}
CASES = [
    (aten.mm.default, (torch.empty(3, 4, **X), torch.empty(5, 4, **X).t()), {}),
    (aten.add.Tensor, (torch.empty(3, 4, **X).t(), torch.empty(4, 3, **X)), {"alpha": 2}),
    (aten._to_copy.default, (torch.empty(3, 4, **X),), {"dtype": torch.float64}),
    (aten._foreach_sqrt.default, ([torch.empty(3, **X), torch.empty(2, 2, **X)],), {}),
    (aten.native_layer_norm.default, (torch.empty(2, 8, **X), [8], None, None, 1e-5), {}),
    (aten.max.dim, (torch.empty(4, 7, **X), 1), {}),
    (aten._foreach_mul_.Scalar, ([torch.empty(3, **X)], 2), {}),
]


@pytest.mark.parametrize(("func", "args", "kwargs"), CASES, ids=[str(c[0]) for c in CASES])
def test_a_second_call_gives_the_same_without_running(func: Any, args: Any, kwargs: Any, call: Any, ran: Counter[Any]) -> None:
    first, second = call(func, args, kwargs), call(func, args, kwargs)
    assert ran[func] == 1
    assert _described(first) == _described(second)
    storages = [t.untyped_storage()._cdata for t in torch.utils._pytree.tree_leaves([first, second]) if t is not None]
    assert len(set(storages)) == len(storages)


def test_in_place_gives_back_the_argument_it_was_given(call: Any, ran: Counter[Any]) -> None:
    one, other = torch.empty(3, **X), torch.empty(3, **X)
    assert call(aten.add_.Scalar, (one, 1), {}) is one
    assert call(aten.add_.Scalar, (other, 1), {}) is other
    assert ran[aten.add_.Scalar] == 1


@pytest.mark.parametrize(
    ("func", "rest"), [(aten.t.default, ()), (aten._unsafe_view.default, ([12],)), (aten.unsqueeze_.default, (0,))], ids=str
)
def test_views_and_changes_of_shape_run_every_time(func: Any, rest: Any, call: Any, ran: Counter[Any]) -> None:
    for _ in range(3):
        given = torch.empty(3, 4, **X)
        assert call(func, (given, *rest), {}).untyped_storage()._cdata == given.untyped_storage()._cdata
    assert ran[func] == 3


def test_a_number_of_another_type_is_another_operator(call: Any) -> None:
    whole = torch.empty(3, dtype=torch.int64, **X)
    assert call(aten.mul.Scalar, (whole, 2), {}).dtype is torch.int64
    assert call(aten.mul.Scalar, (whole, 2.0), {}).dtype is torch.float32
    assert call(aten.mul.Scalar, (whole, True), {}).dtype is torch.int64
