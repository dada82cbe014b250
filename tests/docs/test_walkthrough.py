"""The walk through the code names files that exist and figures that the program gives."""

import re
from pathlib import Path

from vramcast.planning.serving import forecast_serving
from vramcast.workload import Serving

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "walkthrough.md").read_text()
SERVING = PAGE.split("## Serving")[1].split("\n## ")[0]


def test_every_file_it_names_exists() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)*/[a-z_0-9]+\.(?:py|toml))", SERVING))
    folders = (ROOT / "src" / "vramcast", ROOT / "src" / "vramcast" / "serving", ROOT)
    missing = {name for name in named if not any((folder / name).exists() for folder in folders)}
    assert len(named) > 20
    assert not missing


def test_its_figures_are_the_programs() -> None:
    answer = forecast_serving(Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="H100"))
    (rank,) = answer.ranks
    terms = {term.name: term.bytes for instant in rank.instants for term in instant.terms}
    rows = re.findall(r"^\| (\w+) \| .* \| ([\d,]+) \|$", SERVING, re.MULTILINE)
    assert {name: int(size.replace(",", "")) for name, size in rows} == {
        name: terms[name] for name in ("weights", "activations", "logits", "graphs", "communication", "context")
    }
    assert answer.limits.max_concurrency == 32.25
