"""Buffers that llama.cpp and ik_llama.cpp printed at load, from public reports: facts.jsonl, one run per line with its source."""

import json
from pathlib import Path

import msgspec
import pytest

from vramcast.models.reading import read_model
from vramcast.serving.engines import engine
from vramcast.serving.engines.llama_cpp.answer import process_of
from vramcast.units import MiB
from vramcast.workload import Serving

FACTS = [json.loads(line) for line in (Path(__file__).parent / "facts.jsonl").read_text().splitlines()]
PRINTED_MIB = 0.006
MODEL_TOLERANCE = 0.005


def _run(index: int) -> tuple[dict, object]:
    question = msgspec.convert(FACTS[index]["question"], Serving)
    model = read_model(question.model)
    return FACTS[index]["mib"], process_of(engine(question.engine).resolve(question, model, None), question.engine).plan


def _device(at: str) -> int:
    return int("".join(c for c in at if c.isdigit()) or 0)


@pytest.mark.parametrize("index", [i for i, f in enumerate(FACTS) if "kv_buffer" in f["mib"]])
def test_the_cache_is_equal(index: int) -> None:
    measured, plan = _run(index)
    assert sum(plan.cache) / MiB == pytest.approx(measured["kv_buffer"], abs=PRINTED_MIB)


@pytest.mark.parametrize("index", [i for i, f in enumerate(FACTS) if "state" in f["mib"]])
def test_the_recurrent_state_is_equal(index: int) -> None:
    measured, plan = _run(index)
    assert sum(plan.state) / MiB == pytest.approx(measured["state"], abs=PRINTED_MIB)


@pytest.mark.parametrize("index", [i for i, f in enumerate(FACTS) if "compute_buffer" in f["mib"]])
def test_the_compute_buffer_is_equal(index: int) -> None:
    measured, plan = _run(index)
    for at, value in measured["compute_buffer"].items():
        device = _device(at) if len(plan.compute) > 2 else 0
        assert plan.compute[device] / MiB == pytest.approx(value, abs=PRINTED_MIB), at


@pytest.mark.parametrize("index", [i for i, f in enumerate(FACTS) if "model_buffer" in f["mib"]])
def test_the_model_buffer_is_within_half_a_percent(index: int) -> None:
    measured, plan = _run(index)
    for at, value in measured["model_buffer"].items():
        held = sum(plan.weights[:-1]) if at == "all GPUs" else plan.weights[0]
        assert held / MiB == pytest.approx(value, rel=MODEL_TOLERANCE), at


def test_the_facts_cover_both_programs_and_every_kind_of_buffer() -> None:
    assert {f["question"]["engine"] for f in FACTS} == {"llama_cpp", "ik_llama_cpp"}
    assert {"kv_buffer", "model_buffer", "compute_buffer", "state"} <= {kind for f in FACTS for kind in f["mib"]}
