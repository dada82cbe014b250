"""Each rule of thumb: its own number reproduced, the page current, and the claims of its last line true of the exact answers."""

import importlib.util
from pathlib import Path

import pytest

from vramcast.truth.folklore import Entry, entries

ROOT = Path(__file__).parents[2]
ENTRIES = {entry.id: entry for entry in entries()}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda e: e.id)
def test_the_rule_gives_the_number_people_quote(entry: Entry) -> None:
    assert entry.figures or entry.quoted
    for figure in entry.figures:
        assert figure.reproduced == pytest.approx(figure.said, abs=figure.within), figure.label


def exact(entry: str) -> list[float]:
    return [e.value for e in ENTRIES[entry].exact]


def test_every_rule_from_1_to_29_is_there() -> None:
    assert list(ENTRIES) == [f"F{i}" for i in range(1, 30)]


def test_weights() -> None:
    bf16, _, awq, nf4 = exact("F1")
    assert bf16 == pytest.approx(12.551, abs=5e-4)
    assert 3.26 < nf4 < awq + 0.5 < 4.5


def test_the_calculator_forgets_the_head_and_counts_rotary_tables() -> None:
    layer, total, bert = exact("F4")
    assert (layer, total) == (pytest.approx(386.02, abs=0.01), pytest.approx(12.551, abs=5e-4))
    assert bert == pytest.approx(413.287, abs=1e-3), "with its masked-LM head"


def test_grouped_and_latent_caches_are_4_and_25_times_smaller() -> None:
    multi_head, grouped, latent, rule_on_latent = exact("F5")
    assert multi_head / grouped == 4
    assert rule_on_latent / latent == pytest.approx(24.9, abs=0.05)


def test_lora_share() -> None:
    assert exact("F18")[0] == pytest.approx(0.2966, abs=2e-4)


def test_rank_hardly_moves_memory_and_batch_does() -> None:
    low_rank, high_rank, low_rank_big, high_rank_big = exact("F21")
    assert high_rank - low_rank < 0.3
    assert high_rank_big - low_rank_big < 0.4
    assert low_rank_big - low_rank > 10


def test_tensor_parallelism_does_not_divide_activations_by_its_ranks() -> None:
    one, split, with_sequence = exact("F22")
    assert one / 4 == pytest.approx(with_sequence)
    assert split > 0.4 * one


def test_the_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("build_folklore", ROOT / "tools" / "build_folklore.py")
    assert spec and spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert (ROOT / "docs" / "folklore.md").read_text() == tool.page(), "run: python tools/build_folklore.py"
