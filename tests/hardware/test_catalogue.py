"""The catalogue: both copies agree, every number has a source, the rules reproduce what was read."""

import tomllib

import pytest

from vramcast.hardware import build
from vramcast.hardware.accelerator import FACTS, TWIN, catalogue, link_between, source_texts
from vramcast.hardware.cards import find_accelerator
from vramcast.hardware.visible import visible_total
from vramcast.units import MiB

FACTS_TABLE = tomllib.loads(FACTS.read_text("utf-8"))
PARTS = {name: table for name, table in FACTS_TABLE.items() if name != "sources"}


def test_the_compact_twin_is_what_the_builder_makes() -> None:
    assert TWIN.read_bytes() == build.build(), "run: python -m vramcast.hardware.build"


@pytest.mark.parametrize("part", PARTS)
def test_every_number_names_its_source(part: str) -> None:
    facts = [*PARTS[part].items(), *PARTS[part].get("tflops", {}).items()]
    for field, fact in facts:
        if isinstance(fact, (int, float)) and not isinstance(fact, bool):
            pytest.fail(f"{part}.{field} is a bare number")
        if isinstance(fact, list) and field != "aliases":
            assert fact[1] and set(fact[1].split()) <= set(source_texts()), f"{part}.{field}: {fact[1]}"


@pytest.mark.parametrize("part", catalogue().values(), ids=lambda p: p.id)
def test_memory_shrinks_from_sold_to_driver_to_visible(part) -> None:
    assert part.visible_bytes <= part.driver_bytes <= part.sold_bytes * 1.002
    assert part.visible_bytes > 0.6 * part.sold_bytes


def test_no_rate_counts_zeros() -> None:
    """Dense only: fp8 is twice bf16 and not four times, except where fp8 accumulates in fp16."""
    for part in catalogue().values():
        if {"fp8", "bf16"} <= set(part.flops):
            assert part.flops["fp8"] / part.flops["bf16"] < 2.05, part.id


def test_the_reserve_rule_meets_the_cards_that_were_read() -> None:
    read = [p for p in catalogue().values() if p.vendor == "NVIDIA" and not {"visible_bytes", "driver_bytes"} & set(p.inferred)]
    errors = {p.id: (visible_total(vendor="NVIDIA", driver_bytes=p.driver_bytes) / p.visible_bytes - 1) for p in read}
    assert len(errors) >= 15
    assert {part: off for part, off in errors.items() if abs(off) > 0.008} == {}


@pytest.mark.parametrize("part", [n for n, t in PARTS.items() if {"fp32", "fp16"} <= set(t.get("tflops", {}))])
def test_worked_out_rates_meet_the_read_ones(part: str) -> None:
    table = PARTS[part]
    without = {**table, "tflops": {"fp32": table["tflops"]["fp32"]}}
    rates, inferred = build._rates(without)
    if not inferred or part in {
        "l40",
        "l20",
        "a10g",
        "rx-7900-xtx",
        "quadro-rtx-8000",
        "h20-96",
        "gb10",
    }:  # L40 and GB10 at half rate; L20, H20 are cut
        pytest.skip("no rule, or cut by the maker")
    assert rates["fp16"] == pytest.approx(table["tflops"]["fp16"][0] * 1e12, rel=0.07)


@pytest.mark.parametrize(
    ("part", "visible_mib", "within_mib"),
    [("h100-sxm5-80", 81081, 1), ("l40s", 45467, 1), ("rtx-4090", 24080, 4), ("a40", 45467, 120), ("rtx-4080-super", 15942, 1)],
)
def test_what_logs_show(part: str, visible_mib: int, within_mib: int) -> None:
    assert catalogue()[part].visible_bytes / MiB == pytest.approx(visible_mib, abs=within_mib)


@pytest.mark.parametrize(
    ("name", "reach"),
    [("A100 PCIe 80GB", 2), ("H100 PCIe 80GB", 2), ("H100 NVL 94GB", 2), ("H200 NVL 141GB", 4), ("H100 SXM5 80GB", 8)],
)
def test_a_bridge_reaches_so_many_boards(name: str, reach: int) -> None:
    card = find_accelerator(name)
    assert link_between(card, reach) == card.link_bytes_per_s
    assert reach == 8 or link_between(card, reach + 1) == card.host_link_bytes_per_s > 0


def test_lpddr_on_a_board_is_its_own_memory() -> None:
    """A Mac, a Jetson and a Ryzen share the host's; a Cambricon or an Atlas board hangs on PCIe."""
    cards = {
        name: catalogue()[name].unified
        for name in ("apple-m5-16", "jetson-orin-nx-16", "radeon-780m", "mlu370-x8", "atlas-300i-duo")
    }
    assert cards == {
        "apple-m5-16": True,
        "jetson-orin-nx-16": True,
        "radeon-780m": True,
        "mlu370-x8": False,
        "atlas-300i-duo": False,
    }


@pytest.mark.parametrize(
    ("card", "missing"), [("K100_AI", "bandwidth|peak rate"), ("MTT S80", "peak rate"), ("RTX PRO 3000", "peak rate")]
)
def test_a_card_without_a_figure_answers_memory_and_says_that_no_time_is_known(capsys, card: str, missing: str) -> None:
    import json
    import re

    from vramcast.cli import run

    assert run(["serve", "Qwen/Qwen2.5-7B-Instruct", "--gpu", card, "--prompt", "500", "--output", "50", "--json"]) in (0, 1)
    answer = json.loads(capsys.readouterr().out)
    assert answer["memory"]["per_gpu"][0]["needed_bytes"] > 0
    assert (answer.get("speed") or {}).get("tpot_s") is None
    assert any(re.search(f"no known ({missing})", str(told)) for told in answer["unmodelled"])
