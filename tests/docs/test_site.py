"""The documentation as a site: built strictly, links and anchors held, its first page answers, the Chinese pages are true."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="pip install 'vramcast[docs]'")
    folder = tmp_path_factory.mktemp("site")
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(ROOT / "mkdocs.yml"), "-d", str(folder)]
    done = subprocess.run(line, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_the_first_page_answers_from_the_examples(site: Path) -> None:
    told = json.loads((site / "site" / "answers.json").read_text("utf-8"))
    asked = len(told["models"]) * len(told["cards"]) * len(told["contexts"])
    assert len(told["answers"]) == asked
    found = told["answers"]["Qwen/Qwen2.5-7B-Instruct|RTX 4090|32768"]
    assert found["verdict"] == "fits"
    assert found["words"][1][0] == "放得下"
    assert {name for name, _ in found["parts"]} <= set(told["names"])
    for page in ("index.html", "zh/index.html"):
        assert 'id="ask"' in (site / page).read_text("utf-8")


def test_search_knows_both_languages(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    assert index["config"]["lang"] == ["en", "zh"]
    assert any("首 token 延迟" in entry["text"] for entry in index["docs"])


def test_the_rules_in_chinese_are_those_of_the_page() -> None:
    """Every figure of the Chinese table stands in the generated page."""
    known = (ROOT / "docs" / "folklore.md").read_text("utf-8")
    rows = [row for row in (ROOT / "docs" / "zh" / "folklore.md").read_text("utf-8").splitlines() if row.startswith("|")][2:]
    for row in rows:
        for cell in row.split("|")[2:5]:
            for figure in re.findall(r"\d[\d.,]* (?:GiB|MiB|KiB|GB|ms|%|bytes per parameter)", cell):
                assert figure.rstrip(".,") in known, (figure, row[:60])


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_links_of_the_readmes_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / name).read_text("utf-8")):
        assert target.startswith("http") or (ROOT / target).exists(), target
