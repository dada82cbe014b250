"""``serve --best``: the most that the cards give, setting by setting, and the line that starts it."""

from typing import Any

from vramcast.asking.asked import Asked
from vramcast.cli.page import Page
from vramcast.cli.structs import print_struct
from vramcast.errors import QuestionError
from vramcast.hardware.cards import least_card
from vramcast.models.reading import read_model
from vramcast.planning.most import Rung, most_of, with_most
from vramcast.workload import Serving
from vramcast.writing.serving.lines import command_of

_UPLOADED = frozenset({"awq", "gptq", "w8a8", "nvfp4", "mxfp4"})
_UNITS = {"context": "tokens", "users": "at once"}


def show_best(asked: Asked[Serving], wanted: str, *, as_json: bool) -> int:
    """The ladder as a page or as JSON; exit code 1 where nothing surely fits. Raises QuestionError without a card."""
    question = asked.question
    if question.gpu is None:
        raise QuestionError(f"--best {wanted} needs the card that it is the most of: add --gpu, for example --gpu 4090")
    card, model = least_card(question.gpu), asked.model or read_model(question.model)
    rungs = most_of(question, model, card, wanted)
    best = rungs[-1]
    line = command_of(with_most(best, wanted)) if best.value else []
    if as_json:
        told = [{"flags": r.flags, "costs": r.costs, _name(wanted): r.value} for r in rungs]
        print_struct(
            "best", {"wanted": wanted, "gpu": card.name, "gpus": question.gpus, "rungs": told, "command": "\n".join(line)}
        )
        return 0 if best.value else 1
    page = Page()
    page.line((question.model, "title"), f"  on {question.gpus} x {card.name}, {question.engine}")
    page.line(("the most that surely fits, by settings: the cheapest first", "faint"))
    page.blank()
    page.table([_row(rung, wanted) for rung in rungs], styles=("number", "title", "faint"), right=frozenset({0}))
    if line:
        page.heading("The last line starts with")
        for part in line:
            page.line("  ", part)
        if (scheme := best.question.quant) in _UPLOADED and model.quantization is None:
            page.line(
                "  ",
                (f"with an upload of this model in {scheme} in its place: engines do not make {scheme} while loading", "faint"),
            )
    else:
        page.line("  ", "no setting makes room: vramcast serve with the same words says what is short and which cards would do")
    page.show()
    return 0 if best.value else 1


def _name(wanted: str) -> str:
    return "context_tokens" if wanted == "context" else "concurrency"


def _row(rung: Rung, wanted: str) -> tuple[Any, ...]:
    value = f"{rung.value:,} {_UNITS[wanted]}" if rung.value else "none"
    return value, rung.flags or "as asked", "" if not rung.flags else rung.costs
