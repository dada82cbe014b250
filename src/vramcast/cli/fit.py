"""``vramcast fit``: one page per model: what runs and trains, and on which cards; or one per card: which models."""

from typing import TYPE_CHECKING, Any

import click

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.errors import QuestionError
from vramcast.units import count, gib

if TYPE_CHECKING:
    from vramcast.asking.ways import Way, Ways
    from vramcast.cli.pages.page import Page

_EPILOG = """\b
Examples:
  vramcast fit "qwen2.5 72b" --gpu 3090x2
  vramcast fit gpt-oss-120b                          no card: the fewest and smallest that hold each way
  vramcast fit llama-3.1-8b --gpu 4090 --context 32k --users 4
  vramcast fit --gpu 3060                            no model: which of today's models the card runs
  vramcast qwen2.5 72b on 2x3090                     the same question in a person's words
"""
_STYLES = {"fits": "good", "tight": "warn"}
_WHOLE = 10  # tokens a second: slower ones are shown with a tenth


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.argument("model", required=False)
@click.option("--gpu", metavar="NAME[xN]", help="The card, and how many: 4090, A100-80Gx2, local.")
@click.option("--context", metavar="TOKENS", help="Longest sequence to serve.  [default: 8192]")
@click.option("--users", metavar="N", help="Sequences at once, each of --context.  [default: 1]")
@click.option("--seq", metavar="TOKENS", help="Length of the sequences to train on.  [default: 2048]")
@click.option("--only", type=click.Choice(("run", "train")), help="Only what runs it, or only what trains it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(**given: Any) -> int:
    """One page per MODEL: every usual way to run and to train it, with what each needs and whether it fits.

    Weights go from most bits to fewest, methods from the whole model to adapters. Without MODEL: which of today's models --gpu
    runs, or trains with --only train. Exit code 1: none of them fits the card.
    """
    _refuse_what_is_not_read(given)
    if not given["model"]:
        from vramcast.cli.pages.models import show_models

        return show_models(given)
    from vramcast.asking.ways import ways_of

    ways = ways_of(
        given["model"], gpu=given["gpu"], context=given["context"], users=given["users"], seq=given["seq"],
        only=given["only"] or "",
    )  # fmt: skip
    if given["as_json"]:
        from vramcast.cli.structs import print_struct

        print_struct("fit", ways)
    else:
        ways_page(ways, given["model"]).show()
    return 0 if not ways.gpu or any(_holds(way) for way in (*ways.run, *ways.train)) else 1


def _refuse_what_is_not_read(given: dict[str, Any]) -> None:
    """Raises QuestionError for a length or a load of the task that is not asked: nothing typed is dropped."""
    trains = given["only"] == "train"
    only_serving = given["only"] == "run" or (not given["model"] and not trains)
    if given["seq"] is not None and only_serving:
        raise QuestionError("--seq is the length that is trained on: say --only train beside it, or --context TOKENS to serve")
    serving = next((name for name in ("context", "users") if given[name] is not None), "")
    if trains and serving:
        raise QuestionError(
            f"--{serving} is of serving, and --only train asks for training alone: say --seq TOKENS, or leave it out"
        )


def _holds(way: "Way") -> bool:
    return way.fit.verdict in ("fits", "tight")


def ways_page(ways: "Ways", asked: str) -> "Page":
    """The page: the headlines, a table for running and one for training, and the commands that open the best of each."""
    from vramcast.cli.pages.page import Page
    from vramcast.language import spoken

    page, say = Page(), spoken()
    _title(page, ways, asked)
    if ways.gpu:
        page.blank()
        _headline(page, ways.run, say("fit-runs"))
        _headline(page, ways.train, say("fit-trains"))
    _table(page, ways, ways.run, say("fit-run-it", tokens=f"{ways.context:,}"))
    _table(page, ways, ways.train, say("fit-train-it", tokens=f"{ways.seq:,}"))
    _next(page, ways)
    return page


def _title(page: "Page", ways: "Ways", asked: str) -> None:
    from vramcast.language import spoken

    say, model = spoken(), ways.model
    few = model.active_parameters < 0.9 * model.parameters
    active = f" {say('t-active', active=count(model.active_parameters))}" if few else ""
    typed = f" ({say('t-asked', what=asked)})" if asked != model.id and "/" not in asked else ""
    told = say("t-model", parameters=count(model.parameters), active=active, layers=model.layers)
    page.line((model.id, "title"), (typed, "faint"), "  ", (told, "faint"))
    each = say("fit-each", memory=gib(ways.capacity_bytes, 1))
    cards = f"{ways.gpus} x {ways.gpu}, {each}" if ways.gpu else say("no-card")
    page.line(f"{cards}  ·  {say('fit-load', tokens=f'{ways.context:,}', users=ways.users)}")
    for one in ways.assumed:
        if one.because.startswith("of cards of several kinds"):
            page.line((say("t-mixed", cards=str(one.value), least=ways.gpu), "warn"))


def _headline(page: "Page", found: "tuple[Way, ...]", task: str) -> None:
    """The way that loses least of those that surely fit, else of those that may."""
    from vramcast.asking.ways import least_lossy
    from vramcast.language import spoken

    say, best = spoken(), least_lossy(found)
    if not found:
        return
    if best is None:
        page.line((f"{task}: {say('fit-no')}", "bad"), "  ", say("fit-none"))
        return
    tight = "" if best.fit.verdict == "fits" else f"  ({say('verdict-tight').lower()})"
    page.line((f"{task}: {best.how}", _STYLES[best.fit.verdict]), f"  {best.program}{tight}")


def _table(page: "Page", ways: "Ways", found: "tuple[Way, ...]", title: str) -> None:
    from vramcast.language import spoken

    if not found:
        return
    say, known = spoken(), [way for way in found if not way.refused]
    page.heading(title)
    if ways.gpu:
        rows = [("", "", *(say(name) for name in ("fit-per-card", "fit-verdict", "fit-longest", "fit-rate")))]
        rows += [(w.how, w.program, gib(w.needed_bytes, 1), _verdict(w), _longest(w), _rate(w)) for w in known]
        right = frozenset({2, 4, 5})
    else:
        rows = [("", "", say("fit-needed"), say("fit-fewest"))]
        rows += [(w.how, w.program, gib(w.needed_bytes, 1), w.cards or say("fit-no-cards")) for w in known]
        right = frozenset({2})
    if known:
        page.table(rows, styles=("title", "", "number"), right=right)
    for why in dict.fromkeys(f"{w.program}: {w.refused or w.fit.error}" for w in found if w.refused or w.fit.refused):
        page.line("  ", (why, "faint"))


def _verdict(way: "Way") -> str:
    """The verdict's word; ``shorter`` where a shorter sequence surely fits."""
    from vramcast.language import spoken

    verdict = "refused" if way.fit.refused else way.fit.verdict
    return spoken()("fit-shorter" if not _holds(way) and way.longest else f"verdict-{verdict}").lower()


def _longest(way: "Way") -> str:
    return f"{way.longest:,}" if way.longest else "-"


def _rate(way: "Way") -> str:
    if way.tokens_per_s is None or not (way.longest or _holds(way)):
        return "-"
    return f"{way.tokens_per_s:,.0f}" if way.tokens_per_s >= _WHOLE else f"{way.tokens_per_s:.1f}"


def _next(page: "Page", ways: "Ways") -> None:
    """The commands of the best, or of the first, and what the columns mean."""
    from vramcast.asking.ways import least_lossy
    from vramcast.language import spoken

    say = spoken()
    if ways.gpu:
        page.line("  ", (say("fit-columns"), "faint"))
    page.heading(say("fit-next"))
    for command, found in (("serve", ways.run), ("train", ways.train)):
        way = least_lossy(found) or (None if ways.gpu else next((w for w in found if not w.refused), None))
        if way is not None:
            page.line("  ", " ".join(part for part in ("vramcast", command, ways.model.id, ways.gpu_flag, way.flags) if part))
