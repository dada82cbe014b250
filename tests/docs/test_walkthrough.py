"""The walk through the code names files that exist and figures that the program gives."""

import re
from pathlib import Path

from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.planning.serving import forecast_serving
from vramcast.training.forecast import forecast_training
from vramcast.workload import Adapter, Serving, Training

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "walkthrough.md").read_text()
SERVING = PAGE.split("## Serving")[1].split("\n## ")[0]
TRAINING = PAGE.split("## Training")[1].split("\n## ")[0]


def test_every_file_it_names_exists() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)*/[a-z_0-9]+\.(?:py|toml))", SERVING))
    folders = (ROOT / "src" / "vramcast", ROOT / "src" / "vramcast" / "serving", ROOT)
    missing = {name for name in named if not any((folder / name).exists() for folder in folders)}
    assert len(named) > 20
    assert not missing


def test_every_file_of_training_exists() -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_0-9]+\.(?:py|md))", TRAINING))
    folders = (ROOT / "src" / "vramcast", ROOT / "src" / "vramcast" / "training", ROOT)
    missing = {name for name in named if not any((folder / name).exists() for folder in folders)}
    assert len(named) > 15
    assert not missing


def test_the_figures_of_training_are_the_programs() -> None:
    question = Training(
        model="meta-llama/Llama-3.1-8B", gpu="H100", method="lora", adapter=Adapter(rank=16), seq=4096, checkpointing="full"
    )
    rank = forecast_training(question, model=read_model(question.model, offline=True), card=find_accelerator("H100")).worst
    rows = re.findall(r"^\| ([a-z ]+) \| .* \| ([\d,]+) \|$", TRAINING, re.MULTILINE)
    told = {name: int(size.replace(",", "")) for name, size in rows}
    assert told == {i.name: i.bytes for i in rank.instants} | {t.name: t.bytes for t in rank.peak.terms}


def test_its_figures_are_the_programs() -> None:
    answer = forecast_serving(Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="H100"))
    (rank,) = answer.ranks
    terms = {term.name: term.bytes for instant in rank.instants for term in instant.terms}
    rows = re.findall(r"^\| (\w+) \| .* \| ([\d,]+) \|$", SERVING, re.MULTILINE)
    assert {name: int(size.replace(",", "")) for name, size in rows} == {
        name: terms[name] for name in ("weights", "activations", "logits", "workspace", "graphs", "communication", "context")
    }
    assert answer.limits.max_concurrency == 31.34
