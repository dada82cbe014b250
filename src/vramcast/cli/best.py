"""``serve --best``: the most that the cards give, setting by setting, and the line that starts it."""

from typing import Any

import msgspec

from vramcast.asking.asked import Asked
from vramcast.cli.pages.page import Page
from vramcast.cli.structs import print_struct
from vramcast.errors import QuestionError
from vramcast.hardware.cards import least_card
from vramcast.language import spoken
from vramcast.models.inventory import Model, resolved_id
from vramcast.models.names import take_apart
from vramcast.models.reading import read_model
from vramcast.planning.most import LEAST, AddedSetting, most_of, with_most
from vramcast.workload import Serving
from vramcast.writing.serving.lines import command_of

_UPLOADED = frozenset({"awq", "gptq", "w8a8", "nvfp4", "mxfp4"})
_RIGHT = frozenset({0})
_UNITS = {"context": "best-context", "users": "best-users"}


def show_best(asked: Asked[Serving], wanted: str, *, as_json: bool) -> int:
    """The ladder as a page or as JSON; exit code 1 where nothing surely fits. Raises QuestionError without a card."""
    question = asked.question
    if question.gpu is None:
        raise QuestionError(f"--best {wanted} needs the card that it is the most of: add --gpu, for example --gpu 4090")
    card, model = least_card(question.gpu), asked.model or read_model(question.model)
    settings = most_of(question, model, card, wanted)
    sure = wanted == "context" or bool(settings[-1].value)
    if not sure:  # an engine that more likely than not starts serves somebody
        settings = most_of(question, model, card, wanted, sure=False)
    best = settings[-1]
    named = resolved_id(model)
    page = Page()
    said = _said_scheme(model)
    held = msgspec.structs.replace(best.question, model=named, quant=best.question.quant or said)
    shown = msgspec.structs.replace(with_most(best, wanted), model=named, quant=held.quant) if best.value else None
    line = command_of(shown, width=page.width - 4) if shown else []
    if as_json:
        told = [{"flags": r.flags, "costs": r.costs, _name(wanted): r.value} for r in settings]
        print_struct(
            "best", {"wanted": wanted, "gpu": card.name, "gpus": question.gpus, "rungs": told, "command": "\n".join(line)}
        )
        return 0 if best.value else 1
    say = spoken()
    page.line((named, "title"), "  ", say("best-where", gpus=question.gpus, card=card.name, engine=question.engine))
    page.line((say("best-sure" if sure else "best-likely"), "faint"))
    page.blank()
    pairs = zip(settings, [None, *settings], strict=False)
    page.table([_row(r, before, wanted) for r, before in pairs], styles=("number", "title", "faint"), right=_RIGHT)
    _command_lines(page, line, held, made=model.quantization is None or bool(said))
    page.show()
    return 0 if best.value else 1


def _said_scheme(model: Model) -> str | None:
    """The scheme that a short name ends in (Qwen3-32B-AWQ), which the id that it was read as does not say."""
    if resolved_id(model) == model.id or all(told.name != "quantization" for told in model.assumed):
        return None
    return take_apart(model.id).ending.partition("-")[0] or None


def _command_lines(page: Page, line: list[str], best: Serving, *, made: bool) -> None:
    """The command of the last setting; ``made``: its weights are of a checkpoint that is not quantised."""
    if not line:
        page.line("  ", spoken()("best-no-room"))
        return
    page.heading(spoken()("best-starts"))
    for part in line:
        page.line("  ", part)
    if made and best.quant in _UPLOADED:
        page.line("  ", (spoken()("best-upload", scheme=best.quant), "faint"))


def _name(wanted: str) -> str:
    return "context_tokens" if wanted == "context" else "concurrency"


def _row(setting: AddedSetting, before: AddedSetting | None, wanted: str) -> tuple[Any, ...]:
    """What is served, the setting that is added to those of the row above (or takes the place of its last), and what it costs."""
    say = spoken()
    costs = say.phrase("cost", setting.costs)
    value = say(_UNITS[wanted], value=f"{setting.value:,}") if setting.value >= LEAST[wanted] else say("none")
    if not setting.flags or before is None:
        return value, say("best-as-asked"), ""
    added = setting.flags.removeprefix(before.flags).strip()
    if setting.flags.startswith(before.flags):
        return value, say("best-and", flags=added), costs
    ours, theirs = setting.flags.split(), before.flags.split()
    if len(ours) == len(theirs) and sum(a != b for a, b in zip(ours, theirs, strict=True)) == 1:  # another value of one flag
        at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
        return value, say("best-or", flags=f"{ours[at - 1]} {ours[at]}"), costs
    same = 0
    while ours[same : same + 1] == theirs[same : same + 1]:
        same += 1
    *_, flag = [i for i, word in enumerate(ours[: same + 1]) if word.startswith("-")]
    return value, say("best-or", flags=" ".join(ours[flag:])), costs
