"""The page of one card: which of today's models it runs or trains, each with the way that loses least."""

from typing import TYPE_CHECKING, Any

from vramcast.cli.pages.page import Page
from vramcast.errors import QuestionError
from vramcast.language import spoken
from vramcast.units import count, gib

if TYPE_CHECKING:
    from vramcast.asking.which_models import Choices

_MOST_LEFT_OUT = 3
_ROOM_FOR_SIZES = 100  # columns
_WHOLE = 10  # tokens a second: slower ones are shown with a tenth


def show_models(given: dict[str, Any]) -> int:
    """Ask and print, as a page or as JSON; the exit code: 1 where no model fits."""
    from vramcast.asking.which_models import models_for
    from vramcast.cli.progress import progress

    if not given["gpu"]:
        raise QuestionError("neither a model nor a card: vramcast fit MODEL, or vramcast fit --gpu CARD for the models it runs")
    with progress("models", quiet=given["as_json"]) as watch:
        lengths = {name: given[name] for name in ("context", "users", "seq")}
        found = models_for(given["gpu"], task=given["only"] or "run", watch=watch, **lengths)
    if given["as_json"]:
        from vramcast.cli.structs import print_struct

        print_struct("fit_models", found)
    else:
        models_page(found).show()
    return 0 if found.models else 1


def models_page(found: "Choices") -> Page:
    """The card, a table of the models that fit, what does not, and the commands that open the first."""
    page, say = Page(), spoken()
    load = say("fit-load", tokens=f"{found.context:,}", users=found.users)
    asked = load if found.task == "run" else say("models-seq", tokens=f"{found.seq:,}")
    each = say("fit-each", memory=gib(found.capacity_bytes, 1))
    page.line((f"{found.gpus} x {found.gpu}", "title"), f", {each}  ·  {asked}")
    title = say("models-run" if found.task == "run" else "models-train", some=len(found.models), all=found.asked)
    if not found.models:
        page.line((title, "bad"))
        _nearest(page, found)
        return page
    page.heading(title)
    _table(page, found)
    page.line("  ", (say("models-columns"), "faint"))
    if found.left_out:
        first, more = found.left_out[:_MOST_LEFT_OUT], len(found.left_out) - _MOST_LEFT_OUT
        told = ", ".join(first) + (f" {say('models-more', more=more)}" if more > 0 else "")
        page.line("  ", (f"{say('models-left-out')}: {told}", "faint"), hang=4)
    page.heading(say("fit-next"))
    best, command = found.models[0], "serve" if found.task == "run" else "train"
    page.line("  ", f"vramcast {command} {best.model} {found.gpu_flag} {best.way.flags}", hang=4)
    page.line("  ", f"vramcast fit {best.model} {found.gpu_flag}")
    return page


def _nearest(page: Page, found: "Choices") -> None:
    """What to ask where no model fits: the smallest one's own page, and the usual length where a longer one was asked."""
    from vramcast.asking.ways import CONTEXT, SEQ

    say = spoken()
    if found.left_out:
        page.line("  ", say("models-smallest", model=found.left_out[0]))
    page.heading(say("fit-next"))
    flag, asked, usual = ("context", found.context, CONTEXT) if found.task == "run" else ("seq", found.seq, SEQ)
    only = "" if found.task == "run" else " --only train"
    if asked > usual:
        page.line("  ", f"vramcast fit {found.gpu_flag}{only} --{flag} {usual}")
    if found.left_out:
        page.line("  ", f"vramcast fit {found.left_out[0]} {found.gpu_flag}{only}")


def _table(page: Page, found: "Choices") -> None:
    """A row for each model: its name behind the maker's, how, how much, how long and how fast; its size where there is room."""
    say, rows = spoken(), []
    for one in found.models:
        way, rate = one.way, one.way.tokens_per_s
        how = f"{way.how.partition(', ')[0]} {way.program}"
        tight = "" if way.fit.verdict == "fits" else f" ({say('verdict-tight').lower()})"
        fast = "-" if rate is None else f"{rate:,.0f}" if rate >= _WHOLE else f"{rate:.1f}"
        longest = f"{way.longest:,}" if way.longest else "-"
        per_card = gib(way.needed_bytes, 1).removesuffix(" GiB")
        rows.append((one.model.rpartition("/")[2], count(one.parameters), how + tight, per_card, longest, fast))
    head = ("", say("models-size"), say("models-way"), "GiB", say("fit-longest"), say("fit-rate"))
    right, styles = {1, 3, 4, 5}, ["title", "faint", "", "number"]
    table: list[tuple[str, ...]] = [head, *rows]
    if page.width < _ROOM_FOR_SIZES:
        table, right, styles = [(row[0], *row[2:]) for row in table], {2, 3, 4}, ["title", "", "number"]
    page.table(table, styles=tuple(styles), right=frozenset(right))
