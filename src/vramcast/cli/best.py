"""``serve --best``: the most that the cards give, setting by setting, and the line that starts it."""

from typing import Any

import msgspec

from vramcast.asking.asked import Asked
from vramcast.cli.pages.page import Page
from vramcast.cli.structs import print_struct
from vramcast.errors import QuestionError
from vramcast.hardware.cards import least_card
from vramcast.models.inventory import resolved_id
from vramcast.models.reading import read_model
from vramcast.planning.most import Rung, most_of, with_most
from vramcast.workload import Serving
from vramcast.writing.serving.lines import command_of

_UPLOADED = frozenset({"awq", "gptq", "w8a8", "nvfp4", "mxfp4"})
_RIGHT = frozenset({0})
_LEAST = {"context": 256, "users": 1}  # a context of fewer tokens serves nobody
_UNITS = {"context": "tokens", "users": "at once"}


def show_best(asked: Asked[Serving], wanted: str, *, as_json: bool) -> int:
    """The ladder as a page or as JSON; exit code 1 where nothing surely fits. Raises QuestionError without a card."""
    question = asked.question
    if question.gpu is None:
        raise QuestionError(f"--best {wanted} needs the card that it is the most of: add --gpu, for example --gpu 4090")
    card, model = least_card(question.gpu), asked.model or read_model(question.model)
    rungs = most_of(question, model, card, wanted)
    sure = wanted == "context" or bool(rungs[-1].value)
    if not sure:  # an engine that more likely than not starts serves somebody
        rungs = most_of(question, model, card, wanted, sure=False)
    best = rungs[-1]
    named = resolved_id(model)
    page = Page()
    shown = msgspec.structs.replace(with_most(best, wanted), model=named) if best.value else None
    line = command_of(shown, width=page.width - 4) if shown else []
    if as_json:
        told = [{"flags": r.flags, "costs": r.costs, _name(wanted): r.value} for r in rungs]
        print_struct(
            "best", {"wanted": wanted, "gpu": card.name, "gpus": question.gpus, "rungs": told, "command": "\n".join(line)}
        )
        return 0 if best.value else 1
    page.line((named, "title"), f"  on {question.gpus} x {card.name}, {question.engine}")
    likely = "surely fits" if sure else "likely fits (nothing surely does)"
    page.line((f"the most that {likely}, by settings: the cheapest first", "faint"))
    page.blank()
    pairs = zip(rungs, [None, *rungs], strict=False)
    page.table([_row(r, before, wanted) for r, before in pairs], styles=("number", "title", "faint"), right=_RIGHT)
    _command_lines(page, line, best.question, made=model.quantization is None)
    page.show()
    return 0 if best.value else 1


def _command_lines(page: Page, line: list[str], best: Serving, *, made: bool) -> None:
    """The command of the last rung; ``made``: its weights are of a checkpoint that is not quantised."""
    if not line:
        page.line("  ", "no setting makes room: vramcast serve with the same words says what is short and which cards would do")
        return
    page.heading("The last line starts with")
    for part in line:
        page.line("  ", part)
    if made and best.quant in _UPLOADED:
        upload = f"with an upload of this model in {best.quant} in its place: engines do not make {best.quant} while loading"
        page.line("  ", (upload, "faint"))


def _name(wanted: str) -> str:
    return "context_tokens" if wanted == "context" else "concurrency"


def _row(rung: Rung, before: Rung | None, wanted: str) -> tuple[Any, ...]:
    """What is served, the setting that is added to those of the row above (or takes the place of its last), and what it costs."""
    value = f"{rung.value:,} {_UNITS[wanted]}" if rung.value >= _LEAST[wanted] else "none"
    if not rung.flags or before is None:
        return value, "as asked", ""
    added = rung.flags.removeprefix(before.flags).strip()
    if rung.flags.startswith(before.flags):
        return value, f"and {added}", rung.costs
    ours, theirs = rung.flags.split(), before.flags.split()
    if len(ours) == len(theirs) and sum(a != b for a, b in zip(ours, theirs, strict=True)) == 1:  # another value of one flag
        at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
        return value, f"or {ours[at - 1]} {ours[at]}", rung.costs
    same = 0
    while ours[same : same + 1] == theirs[same : same + 1]:
        same += 1
    *_, flag = [i for i, word in enumerate(ours[: same + 1]) if word.startswith("-")]
    return value, f"or {' '.join(ours[flag:])}", rung.costs
