"""Which results of a compiled graph are in memory."""

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from vramcast.tracing.execution.fusion import fused  # noqa: E402


def test_inner_results_of_pointwise_chains_are_not_in_memory() -> None:
    def run(x: "torch.Tensor", w: "torch.Tensor") -> tuple["torch.Tensor", ...]:
        y = x @ w
        read_by_a_product = (y * 2).relu()
        only_summed = (y + 1).exp()
        returned = y.tanh()
        return read_by_a_product @ w, only_summed.sum(), returned

    graph = make_fx(run)(torch.zeros(4, 4), torch.zeros(4, 4))
    names = {node.name for node in fused(graph)}
    assert names == {"mul", "add", "exp"}


def test_a_view_between_does_not_bring_a_result_into_memory() -> None:
    graph = make_fx(lambda x: (x * 2).view(2, 8).exp().sum())(torch.zeros(4, 4))
    assert {node.name for node in fused(graph)} == {"mul", "exp"}


def test_a_scatter_into_a_constant_is_part_of_its_reader() -> None:
    def run(x: "torch.Tensor", places: "torch.Tensor") -> "torch.Tensor":
        return (torch.full_like(x, 0).scatter(1, places, -1.0) * x).sum()

    into_made = make_fx(run)(torch.zeros(4, 4), torch.zeros(4, 1, dtype=torch.long))
    assert "scatter" not in {node.name for node in fused(into_made)}
    assert "mul" in {node.name for node in fused(into_made)}
