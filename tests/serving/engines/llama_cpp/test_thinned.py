"""Graphs of few layers have the buffers of the whole model."""

from typing import Any

import pytest

from vramcast import serve
from vramcast.ledger import Forecast
from vramcast.serving.engines.llama_cpp import compute, reserve


def _terms(forecast: Forecast) -> Any:
    return forecast.to_dict()["memory"]["per_gpu"]


@pytest.mark.parametrize(
    ("model", "quant", "gpu", "layers"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", "Q4_K_M", "4090", "31"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Q5_K_M", "3090x2", "25"),
        ("Qwen/Qwen3-30B-A3B", "Q3_K_M", "3060", "20"),
    ],
)
def test_few_layers_of_a_kind_are_enough(model: str, quant: str, gpu: str, layers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = serve(model, gpu=gpu, engine="llama.cpp", quant=quant, context="4352", flags=["-ngl", layers])
    monkeypatch.setattr(compute, "thinned", compute._three_of_a_run)
    monkeypatch.setattr(reserve, "thinned", compute._three_of_a_run)
    whole = serve(model, gpu=gpu, engine="llama.cpp", quant=quant, context="4352", flags=["-ngl", layers])
    assert _terms(few) == _terms(whole)


def test_layers_that_alternate_are_all_built() -> None:
    """Sliding and full layers leave holes for each other: only runs of equal ones are cut."""
    from vramcast.models.reading import read_model

    sliding, full = read_model("google/gemma-3-12b-it").blocks
    layers = [compute.Layer(full if place % 6 == 5 else sliding, {"attn_q.weight": (place % 2, 1)}, 0) for place in range(48)]
    assert len([*compute.thinned(layers, 1)]) == len([*compute._three_of_a_run(layers, 1)]) == 48
    same = [compute.Layer(full, {"attn_q.weight": (place % 2, 1)}, 0) for place in range(48)]
    assert len([*compute._three_of_a_run(same, 1)]) == 48
    assert len([*compute.thinned(same, 1)]) == 2 * 4 + 3
