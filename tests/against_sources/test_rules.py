"""Each row of each version table, on either side of its border, against what the source said when it was read."""

import importlib
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vramcast.serving.engines.base import Fitted, Version, at
from vramcast.training.frameworks.releases import RELEASED, released

HERE = Path(__file__).parent
RULES = tomllib.loads((HERE / "rules.toml").read_text())["rule"]
MONTHS = tomllib.loads((HERE / "releases.toml").read_text())
MODULES = sorted({rule["module"] for rule in RULES})


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def _just_below(border: Version) -> Version:
    """The latest release before a border, however many patches there were."""
    *head, last = border
    return (*head, last - 1, 10**6) if last else _just_below(tuple(head))


def _plain(value: Any) -> Any:
    """A table's value as the file of facts writes it."""
    if isinstance(value, Fitted):
        return value.value
    if isinstance(value, tuple):
        return [list(msgspec.structs.astuple(row)) for row in value]
    return "none" if value is None else msgspec.to_builtins(value)


def _agrees(value: Any, fact: Any) -> bool:
    plain = _plain(value)
    return {k: plain[k] for k in fact} == fact if isinstance(fact, dict) else (type(plain), plain) == (type(fact), fact)


BORDERS = [
    pytest.param(rule["module"], rule["name"], before, row, id=f"{rule['module'].split('.')[-2]}-{rule['name']}-{row[0]}")
    for rule in RULES
    for before, row in zip([None, *rule["rows"]], rule["rows"], strict=False)
]


@pytest.mark.parametrize(("module", "name", "before", "row"), BORDERS)
def test_a_rule_changes_where_its_source_says(module: str, name: str, before: list[Any] | None, row: list[Any]) -> None:
    table = getattr(importlib.import_module(module), name)
    border, value = _version(row[0]), row[1]
    assert _agrees(at(border, table), value)
    if before is None:
        assert _agrees(at((0,), table), value)
        return
    old = at(_just_below(border), table)
    assert not _agrees(old, value)
    assert isinstance(before[1], dict) or _agrees(old, before[1])


@pytest.mark.parametrize("module", MODULES)
def test_no_row_of_a_table_is_without_a_source(module: str) -> None:
    told = {rule["name"]: [_version(row[0]) for row in rule["rows"]] for rule in RULES if rule["module"] == module}
    assert all(rule["source"] for rule in RULES)
    tables = {
        name: [since for since, _ in value]
        for name, value in vars(importlib.import_module(module)).items()
        if name.isupper()
        and isinstance(value, tuple)
        and value
        and isinstance(value[0], tuple)
        and isinstance(value[0][0], tuple)
    }
    assert told == tables


RELEASES = [
    pytest.param(framework, rows, index, id=f"{framework}-{rows[index][0]}")
    for framework, rows in MONTHS.items()
    for index in range(len(rows))
]


@pytest.mark.parametrize(("framework", "rows", "index"), RELEASES)
def test_a_release_came_out_in_its_month(framework: str, rows: list[list[str]], index: int) -> None:
    release, month = _version(rows[index][0]), rows[index][1]
    assert released(framework, release) == _month(month)
    if index and framework in RELEASED:
        assert released(framework, _just_below(release)) == _month(rows[index - 1][1])


def test_every_release_has_a_fact() -> None:
    assert {f: [(_version(r), _month(m)) for r, m in rows] for f, rows in MONTHS.items()} == {
        f: list(rows) for f, rows in RELEASED.items()
    }


def _month(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("-"))
