"""Everything that can be typed, listed: the flags of a serving engine, the words of a training question."""

from collections.abc import Iterator

from vramcast.cli.pages.page import Page
from vramcast.errors import QuestionError
from vramcast.serving.engines import engine as engine_named


def show_engine_options(name: str) -> int:
    """Print the engine's option table. Raises QuestionError for an unknown engine."""
    engine = engine_named(name.partition("==")[0])
    page = Page()
    page.line((engine.name, "title"), f"  rules read from versions {engine.versions[0]} to {engine.versions[-1]}")
    page.blank()
    rows = []
    for option in sorted(engine.options, key=lambda o: o.name):
        flags = ", ".join((f"--{option.name.replace('_', '-')}", *option.flags))
        words = " ".join(option.choices)
        rows.append((flags, "" if words else option.kind, f"{option.about}: {words}" if words else option.about))
    page.table(rows, styles=("title", "faint"))
    page.show()
    return 0


def show_training_words(find: str = "") -> int:
    """Print every word that ``vramcast train`` takes: methods, optimizers, frameworks, schemes, sweep axes, parts of a recipe.

    ``find``: only lines that contain it. Raises QuestionError when none does.
    """
    page = Page()
    for title, rows in _training_words():
        shown = [row for row in rows if not find or find.lower() in " ".join(row).lower()]
        if shown:
            page.heading(title) if page.lines else page.line((title, "title"))
            page.table(shown, styles=("title", "faint"))
    if not page.lines:
        raise QuestionError(f"no word of training contains {find[:40]!r}: vramcast train --options lists them all")
    page.show()
    return 0


def _training_words() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    from vramcast.asking.training import TrainingWords
    from vramcast.models.quantization.formats import NAMED
    from vramcast.training.frameworks import names as frameworks
    from vramcast.training.methods import LOW_RANK, PARTIALS, PROMPTS, TASKS
    from vramcast.training.optimizers.rows import ROWS
    from vramcast.training.recipe.draft import options

    yield (
        "--method: what is trained",
        [
            ("full", "every weight"),
            *((name, "adapters beside frozen weights") for name in LOW_RANK),
            *((name, "few trained vectors: prompts, prefixes, norms, gates") for name in PROMPTS),
            *((name, partial.source) for name, partial in PARTIALS.items()),
        ],
    )
    yield "--method: kinds of training (add --rank for adapters)", [(name, task.source) for name, task in TASKS.items()]
    yield "--optimizer", [(row.name, row.source) for row in ROWS]
    yield "--framework", [(", ".join(frameworks()), "")]
    yield "--quant: schemes of frozen weights", [(", ".join(NAMED), "")]
    yield "--sweep: axes", [(", ".join(["gpus", *TrainingWords.__annotations__]), "")]
    parts = [(o.name, f"{'|'.join(map(str, o.words)) or 'a number or name'}: {o.meaning}") for o in options().values()]
    yield "--set NAME=VALUE: parts of the recipe (docs/recipes.md has each with its default)", parts
