"""Build the bundled catalogue: config.json files -> derived models, in src/vramcast/models/reading.

Run it again whenever a family lands or changes:

    PYTHONPATH=src python tools/build_catalogue.py ../shared/models

Beside the configs it reads tools/catalogue/documented.jsonl (architectures of well-known models typed from public figures, each
checked against a published parameter count), tools/catalogue/aliases.tsv (ids that share another's shapes), and what a copied
config has wrong or lacks, each with its proof: tools/catalogue/positions.tsv, dtypes.tsv and schemes.tsv.
Configs that no family reads yet are listed and left out.
"""

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import ConfigError, UnmodelledError, VramcastError
from vramcast.models.families import read_config
from vramcast.models.inventory import Model
from vramcast.models.reading import FOLDER, Alias, Index, Place, Row
from vramcast.models.sources.described import UNTYPED
from vramcast.models.sources.local import read_path

HERE = Path(__file__).parent / "catalogue"
STORED_TWICE = ("stores the tied lm_head too", "2 B x untied params")


class Lines:
    """The lines of rows.jsonl, equal ones written once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.places: dict[bytes, Place] = {}

    def add(self, value: object) -> Place:
        """Where that value stands."""
        line = msgspec.json.encode(value)
        if line not in self.places:
            self.places[line] = (len(self.data), len(line))
            self.data += line + b"\n"
        return self.places[line]

    def at(self, place: tuple[int, int]) -> Row:
        """The row that stands at a place."""
        return msgspec.json.decode(self.data[place[0] : place[0] + place[1]], type=Row)


def build(models: Path) -> tuple[bytes, bytes, dict[str, str]]:
    """The two files' contents, and the reason for each config left out."""
    lines, index, skipped = Lines(), Index(models={}, aliases={}), {}
    for facts, read in (*corpus(models), *documented()):
        try:
            index.models[facts["model_id"].lower()] = lines.add(row(lines, facts, read()))
        except VramcastError as error:
            skipped[facts["model_id"]] = str(error)
    for alias, base, because in aliases():
        place = index.models.get(base.lower())
        if place is None or alias.lower() in index.models:
            continue
        if alias in positions() or alias in schemes():  # a row of its own, as shapes are all that it shares
            index.models[alias.lower()] = lines.add(sharing(lines, lines.at(place), alias, because))
        else:
            index.aliases[alias.lower()] = Alias(place, because)
    return bytes(lines.data), msgspec.json.format(msgspec.json.encode(index), indent=0), skipped


def sharing(lines: Lines, base: Row, alias: str, because: str) -> Row:
    """The row of an id that has another's shapes, and positions or a scheme of its own; a scheme of {} is none."""
    scheme = schemes().get(alias)
    stored = base.quantization if scheme is None else lines.add(scheme) if scheme else None
    told = f"shapes of {base.id} ({because})"
    longest = positions().get(alias, base.positions)
    return msgspec.structs.replace(base, id=alias, trust="documented", source=told, positions=longest, quantization=stored)


def corpus(models: Path) -> Iterator[tuple[dict[str, Any], Any]]:
    """Facts about each config of the corpus with the call that reads it."""
    for line in (models / "INDEX.jsonl").read_bytes().splitlines():
        facts = msgspec.json.decode(line)
        folder = models / facts["model_id"].replace("/", "__")
        if (folder / "config.json").is_file():
            yield facts, lambda folder=folder: by_rule(read_path(folder))


def by_rule(model: Model) -> Model:
    """That model, unless it was built by the transformers that happens to be installed."""
    if any(f"model_type {model.family!r} was built" in said for said in model.unmodelled):
        raise UnmodelledError(model.unmodelled[0])
    return model


def documented() -> Iterator[tuple[dict[str, Any], Any]]:
    """The same for the architectures typed in documented.jsonl: facts, and ``config`` in the words of a config.json."""
    for line in (HERE / "documented.jsonl").read_bytes().splitlines():
        facts = msgspec.json.decode(line)
        yield facts, lambda facts=facts: checked(facts, read_config(facts["config"], path=facts["model_id"]))


def checked(facts: dict[str, Any], model: Model) -> Model:
    """That model, whose size agrees with the published one within 2 % (published figures are often rounded)."""
    if abs(model.parameters / facts["parameters"] - 1) > 0.02:
        raise ConfigError(f"{facts['model_id']} has {model.parameters:,} parameters here, {facts['parameters']:,.0f} published")
    return model


def aliases() -> Iterator[tuple[str, str, str]]:
    """Alias, base and reason of each line of aliases.tsv."""
    yield from _lines("aliases.tsv")


@functools.cache
def dtypes() -> dict[str, str]:
    """Types of the published weights of the ids in dtypes.tsv."""
    return {name: dtype for name, dtype, _ in _lines("dtypes.tsv")}


@functools.cache
def schemes() -> dict[str, dict[str, Any]]:
    """Schemes of the published weights of the ids in schemes.tsv."""
    return {name: msgspec.json.decode(scheme) for name, scheme, _ in _lines("schemes.tsv")}


@functools.cache
def positions() -> dict[str, int]:
    """Positions of the ids in positions.tsv."""
    return {name: int(count) for name, count, _ in _lines("positions.tsv")}


def _lines(table: str) -> Iterator[tuple[str, str, str]]:
    for line in (HERE / table).read_text().splitlines():
        if line and not line.startswith("#"):
            first, second, because = line.split("\t")
            yield first, second, because


def row(lines: Lines, facts: dict[str, Any], model: Model) -> Row:
    """The id's row, its shapes and scheme written before it."""
    return Row(
        id=facts["model_id"],
        shapes=lines.add(shapes(typed(model) if facts["model_id"] in dtypes() else model)),
        trust=facts["trust"],
        source=source(facts),
        positions=positions().get(facts["model_id"], model.positions),
        dtype=dtypes().get(facts["model_id"], model.dtype),
        architecture=model.architecture,
        head_stored=model.tied and any(mark in checks(facts) for mark in STORED_TWICE),
        quantization=lines.add(scheme) if (scheme := model.quantization or schemes().get(facts["model_id"])) else None,
    )


def typed(model: Model) -> Model:
    """The model without the notes on a type that dtypes.tsv settles."""
    return msgspec.structs.replace(
        model,
        assumed=tuple(a for a in model.assumed if a.name != "dtype"),
        unmodelled=tuple(what for what in model.unmodelled if what != UNTYPED),
    )


def shapes(model: Model) -> Model:
    """The model without what is an id's own."""
    return msgspec.structs.replace(
        model, id="", positions=0, dtype="bfloat16", architecture="", quantization=None, trust="", loaded_from=""
    )


def source(facts: dict[str, Any]) -> str:
    """Where the config was seen, in one line."""
    commit = f"@{facts['commit'][:12]}" if facts.get("commit") else ""
    return facts["source"] if "source" in facts else f"{facts['source_repo']}{commit} {facts['source_path']}"


def checks(facts: dict[str, Any]) -> str:
    """What comparisons with published counts and indexes found."""
    return f"{facts.get('params_published_check', '')} {facts.get('index_check', '')}"


def main(models: str) -> None:
    """Write the catalogue and say what was left out."""
    rows, index, skipped = build(Path(models))
    (FOLDER / "rows.jsonl").write_bytes(rows)
    (FOLDER / "index.json").write_bytes(index)
    print(f"{index.count(b'[')} names, {len(rows) + len(index):,} bytes")
    for name, reason in skipped.items():
        print(f"left out: {name}: {reason}")


if __name__ == "__main__":
    main(sys.argv[1])
