"""The most that cards give: the longest context or the most users, setting by setting, each with what it costs."""

from collections.abc import Iterator

import msgspec

from vramcast.errors import QuestionError, VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.largest import edge_near
from vramcast.models.inventory import Model
from vramcast.planning.changes import Change
from vramcast.planning.serving import ServingOnCard, longest_context
from vramcast.planning.serving_changes import serving_changes
from vramcast.serving.engines.base import GGUF_ENGINES, answer_of
from vramcast.workload import Serving

# Kinds of change that keep the program, the cards and the work; in the order in which people give things up for room.
_SETTINGS = ("share", "batched tokens", "chunk", "micro-batch", "flash attention", "eager", "cache")
_PROBE_TOKENS = 1024
_MOST_USERS = 100_000
LEAST = {"context": 256, "users": 1}  # a context of fewer tokens serves nobody


class AddedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One more setting than before: all flags so far, what the last one costs, and the most that is then served.

    ``value``: tokens of the longest sequence, or sequences at once; 0 where nothing surely fits.
    """

    flags: str
    costs: str
    value: int
    question: Serving


def most_of(question: Serving, model: Model, card: Accelerator, wanted: str, *, sure: bool = True) -> tuple[AddedSetting, ...]:
    """The ladder of ``context`` or ``users``: as asked, then each setting that gives more, then lighter weights on top of them.

    Every value is the largest whose verdict is ``fits``; ``tight`` too where users need not be ``sure``. Raises QuestionError for
    users where the engine shares one context.
    """
    if wanted == "users" and question.engine in GGUF_ENGINES:
        raise QuestionError("llama.cpp shares one context between its slots: ask --best context, and -np for the slots")
    start = _started(question, model, wanted)
    changes = tuple(serving_changes(answer_of(start, model=model, card=card, limits=False).resolved, card))
    settings = [AddedSetting(flags="", costs="as asked", value=_most(start, model, card, wanted, sure=sure), question=start)]
    settings += _fewer_slots(settings[0], changes, model, card, wanted, sure=sure)
    for change in _settings(changes):
        settings += _better(settings[-1], change, model, card, wanted, sure=sure)
    if settings[-1].value < LEAST[wanted]:
        settings += _together(settings[0], changes, model, card, wanted, sure=sure)
    settings += _more_slots(settings[-1], changes, model, card, wanted, sure=sure)
    top = settings[-1]
    for change in (c for c in changes if c.kind == "weights"):
        settings += _better(msgspec.structs.replace(top, value=settings[-1].value), change, model, card, wanted, sure=sure)
    if top.value < LEAST[wanted] <= settings[-1].value:  # no setting was enough: with lighter weights each may give more
        for change in _settings(changes):
            settings += _better(settings[-1], change, model, card, wanted, sure=sure)
    if settings[-1] is not top:
        settings += _more_slots(settings[-1], changes, model, card, wanted, sure=sure)
    return tuple(settings)


def _started(question: Serving, model: Model, wanted: str) -> Serving:
    """The question at a context that the search may begin from."""
    if wanted == "users" and question.context is not None:
        return question
    if wanted == "users":
        raise QuestionError("--best users needs the length of a sequence: add --context, for example --context 8k")
    return probed(question, model)


def probed(question: Serving, model: Model) -> Serving:
    """The question at a context that any engine starts with, from which a search for the longest begins."""
    return msgspec.structs.replace(question, context=min(_PROBE_TOKENS, model.positions or _PROBE_TOKENS))


def _fewer_slots(
    start: AddedSetting, changes: tuple[Change, ...], model: Model, card: Accelerator, wanted: str, *, sure: bool
) -> list[AddedSetting]:
    """The number of slots that gives most: each keeps room for graphs and samplers, and none serves more than one user."""
    steps = [change for change in changes if change.kind == "seqs"]
    found = [setting for change in steps for setting in _better(start, change, model, card, wanted, sure=sure)]
    return sorted(found, key=lambda setting: setting.value)[-1:]


def _together(
    start: AddedSetting, changes: tuple[Change, ...], model: Model, card: Accelerator, wanted: str, *, sure: bool
) -> list[AddedSetting]:
    """Settings of which none alone is enough: the first of them, in their order, that together serve anybody; then the rest."""
    slots = [change for change in changes if change.kind == "seqs"][-1:]
    flags, costs, question = "", "", start.question
    found: list[AddedSetting] = []
    for change in (*slots, *_settings(changes)):
        if found:
            found += _better(found[-1], change, model, card, wanted, sure=sure)
            continue
        asked = change.apply(question)
        try:
            value = _most(asked, model, card, wanted, sure=sure)
        except VramcastError:
            continue
        flags, costs, question = f"{flags} {change.text}".strip(), "; ".join(filter(None, (costs, change.costs))), asked
        found = [AddedSetting(flags=flags, costs=costs, value=value, question=question)] if value >= LEAST[wanted] else []
    return found


def _more_slots(
    top: AddedSetting, changes: tuple[Change, ...], model: Model, card: Accelerator, wanted: str, *, sure: bool
) -> list[AddedSetting]:
    """The same settings with more slots, where those of an early setting now are what holds users back."""
    steps = [change for change in changes if change.kind == "seqs"]
    taken = next((change for change in steps if _told(top.flags, change.text)), None)
    if taken is None or wanted != "users":
        return []
    found: list[AddedSetting] = []
    for change in steps:
        for setting in _better(msgspec.structs.replace(top, flags=""), change, model, card, wanted, sure=sure):
            found.append(msgspec.structs.replace(setting, flags=_instead(top.flags, taken.text, change.text)))
    return sorted(found, key=lambda setting: setting.value)[-1:]


def _told(flags: str, text: str) -> bool:
    """Whether the flags have this one, word for word: ``--max-num-seqs 1`` is not in ``--max-num-seqs 16``."""
    return f" {text} " in f" {flags} "


def _instead(flags: str, taken: str, other: str) -> str:
    """The flags with another one in the place of ``taken``."""
    return f" {flags} ".replace(f" {taken} ", f" {other} ", 1).strip()


def _settings(changes: tuple[Change, ...]) -> Iterator[Change]:
    """The furthest step of each kind of setting."""
    for kind in _SETTINGS:
        steps = [change for change in changes if change.kind == kind]
        if steps:
            yield steps[-1]


def _better(
    before: AddedSetting, change: Change, model: Model, card: Accelerator, wanted: str, *, sure: bool
) -> list[AddedSetting]:
    """The setting with this change, where it gives more."""
    asked = change.apply(before.question)
    try:
        value = _most(asked, model, card, wanted, sure=sure)
    except VramcastError:
        return []
    if value <= before.value:
        return []
    return [AddedSetting(flags=f"{before.flags} {change.text}".strip(), costs=change.costs, value=value, question=asked)]


def _most(question: Serving, model: Model, card: Accelerator, wanted: str, *, sure: bool) -> int:
    held = ServingOnCard(question=question, answer=answer_of(question, model=model, card=card), card=card)
    if wanted == "context":
        return longest_context(held, sure=True, concurrency=held.answer.resolved.requests)

    enough = ("fits",) if sure else ("fits", "tight")

    def fits(users: int) -> bool:
        return held.serves(concurrency=users) and held.fit(concurrency=users).verdict in enough

    return edge_near(int(held.answer.max_concurrency) * held.answer.resolved.groups, fits, most=_MOST_USERS)


def with_most(setting: AddedSetting, wanted: str) -> Serving:
    """The question that serves the setting's most."""
    return msgspec.structs.replace(setting.question, **{"context" if wanted == "context" else "concurrency": setting.value})
