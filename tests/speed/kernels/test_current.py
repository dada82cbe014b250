"""The committed constants are those of the fit script, and the page is that of the constants."""

import importlib.util
import sys
from pathlib import Path

import pytest

from vramcast.speed.kernels import laws

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "tools/kernels"


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))


def test_the_page_shows_these_laws(tools: None) -> None:
    page = _module("page").page
    text = (ROOT / "docs/kernels.md").read_text("utf-8")
    scored = text[text.index("<!-- scored -->") : text.index("<!-- /scored -->") + len("<!-- /scored -->")] + "\n"
    assert page(laws().values(), scored) == text, "write it again: python tools/fit_kernels.py --page"


def test_every_constant_on_the_page_has_a_meaning(tools: None) -> None:
    meaning = _module("page").MEANING
    assert {name for law in laws().values() for name in law.constants} <= set(meaning)


@pytest.mark.shared
def test_a_law_fitted_again_is_the_committed_one(shared: Path, tools: None) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("pyarrow")
    corpus, fitting, specs = _module("corpus"), _module("fitting"), _module("specs")
    columns = corpus.load(shared / "kernels/aiconfigurator/custom_allreduce.parquet")
    tables = corpus.gather(corpus.read(columns, "custom_allreduce", "test"))
    key = ("all_reduce", "vllm", "8", "hopper_dc")
    again = fitting.fit(tables[key], specs.spec_of(*key[:2])).constants
    committed = laws()[key].constants
    assert set(again) == set(committed)
    for name, value in committed.items():
        assert again[name] == pytest.approx(value, rel=0.02, abs=0.02), name


def _module(name: str):
    found = sys.modules.get(name)
    if found is not None and str(TOOLS) in str(found.__file__):
        return found
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
