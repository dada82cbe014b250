"""A question as it was understood, the words that serving and training share (cards, numbers, ranks), and its whole answer."""

from collections.abc import Iterable, Mapping
from typing import Generic, TypedDict, TypeVar

import msgspec

from vramcast.errors import QuestionError, VramcastError, unknown_name
from vramcast.ledger import Assumption, Forecast, Unmodelled
from vramcast.models.inventory import Model
from vramcast.units import parse_count
from vramcast.untrusted import shown, whole_number
from vramcast.workload import Parallel, Serving, Training

IMAGES = ("images", "image_patches")  # words of what stands beside the text
Question = TypeVar("Question", Serving, Training)


class Asked(msgspec.Struct, Generic[Question], frozen=True, kw_only=True):
    """A question; the model, where it was given by numbers alone; and what the answer must list beside its own assumptions.

    ``told``: what files say beside a model that they name, for an answer that cannot read that model.
    """

    question: Question
    model: Model | None = None
    assumed: tuple[Assumption, ...] = ()
    unmodelled: tuple[Unmodelled, ...] = ()
    told: str = ""


def check_words(words: Mapping[str, object], known: Iterable[str], *, what: str) -> None:
    """Raises QuestionError for a word that no question has, with the nearest that one has."""
    names = set(known)
    for word in words:
        if word not in names:
            raise unknown_name(what, word, names)


def count_of(value: int | str, name: str) -> int:
    """The number, ``128k`` and the like included; a negative one is left to the question to refuse."""
    if isinstance(value, str) and value.startswith("-") and (below := whole_number(value[1:])) is not None:
        return -below
    return parse_count(value, what=flag_of(name))


def flag_of(name: str) -> str:
    """How the command line spells a word: ``micro_batch`` is ``--micro-batch``."""
    return f"--{name.replace('_', '-')}"


def answer_serving(asked: Asked[Serving], *, advises: bool = True) -> Forecast:
    """The whole answer to a serving question as it was understood; without ``advises`` no advice and no table of cards."""
    from vramcast.planning.serving import forecast_serving

    forecast = forecast_serving(asked.question, model=asked.model, assumed=asked.assumed, advises=advises)
    return (
        msgspec.structs.replace(forecast, unmodelled=(*asked.unmodelled, *forecast.unmodelled)) if asked.unmodelled else forecast
    )


def answer_training(asked: Asked[Training], *, advises: bool = True) -> Forecast:
    """The whole answer to a training question as it was understood; without ``advises`` no advice and no table of cards."""
    from vramcast.planning.training import forecast_training

    try:
        return forecast_training(
            asked.question, model=asked.model, assumed=asked.assumed, unmodelled=asked.unmodelled, advises=advises
        )
    except VramcastError as error:
        if asked.told and not _at_hand(asked.question.model):
            error.args = (f"{error}; another of its shape: vramcast train MODEL --from FILE ({asked.told})",)
        raise


def _at_hand(model: str) -> bool:
    """Whether a model can be read here."""
    from vramcast.models.reading import read_model

    try:
        read_model(model)
    except VramcastError:
        return False
    return True


class NamedCards(msgspec.Struct, frozen=True, kw_only=True):
    """``gpu``: the card that decides, None when none was named; ``count``: how many, 0 for none.

    ``capability``: the compute capability, of several kinds the lowest; None where none was named, and for other makers' cards.
    """

    gpu: str | None = None
    count: int = 0
    capability: tuple[int, int] | None = None
    assumed: tuple[Assumption, ...] = ()


def named_cards(text: str | None) -> NamedCards:
    """Cards from text such as ``H100x8`` or ``RTX 5090, RTX 4090``: of several kinds the one with least memory decides.

    Raises QuestionError for unknown names and counts out of range; MissingError for ``local`` without NVML.
    """
    if text is None:
        return NamedCards()
    from vramcast.hardware.cards import parse_gpus

    found = parse_gpus(text)
    kinds = sorted({c.name for c in found.cards})
    mixed = (Assumption("gpu", ", ".join(kinds), "of cards of several kinds, the one with least memory decides"),)
    least = min(found.cards, key=lambda c: c.visible_bytes).id.removeprefix("custom-")
    return NamedCards(
        gpu="local" if text.strip().lower() == "local" else least,
        count=len(found.cards),
        capability=min((c.capability for c in found.cards if c.capability), default=None),
        assumed=(*found.assumed, *(mixed if len(kinds) > 1 else ())),
    )


class LayoutWords(TypedDict, total=False):
    """Ranks along each axis of parallelism; None is one, except that ``replicate`` and ``shard`` follow from each other."""

    tp: int | None
    pp: int | None
    cp: int | None
    ep: int | None
    vpp: int | None
    sp: bool | None
    replicate: int | None
    shard: int | None
    hpz: int | None


def layout_of(words: LayoutWords, gpus: int) -> tuple[Parallel, int]:
    """The layout and the number of cards it is for: data parallelism is what the other axes leave.

    Raises QuestionError when they do not divide, or when replicas and shards do not multiply to the data-parallel ranks.
    """
    for name, value in words.items():
        if name in LayoutWords.__annotations__ and not (value is None or isinstance(value, int)):
            raise QuestionError(f"{flag_of(name)} is {shown(value)}: expected a whole number, for example 2")
    axes = {name: words.get(name) for name in ("tp", "pp", "cp", "ep", "vpp", "hpz")}
    given = {name: value for name, value in axes.items() if isinstance(value, int)}
    model = Parallel(**given, sp=bool(words.get("sp")))
    world = gpus if gpus > 1 else model.model_ranks
    if world % model.model_ranks:
        asked = f"tp {model.tp} x pp {model.pp} x cp {model.cp} = {model.model_ranks}"
        raise QuestionError(f"{world} cards do not divide into {asked}")
    data = world // model.model_ranks
    replicate = _replicas(words.get("replicate"), words.get("shard"), data, model.model_ranks)
    return Parallel(**given, sp=model.sp, dp=data, replicate=replicate), world


def _replicas(replicate: int | None, shard: int | None, data: int, each: int) -> int:
    """From ``replicate``, from ``shard``, or from both when they agree; ``each``: cards of one data-parallel rank."""
    if shard is None:
        return 1 if replicate is None else replicate
    if shard < 1:
        raise QuestionError(f"shard is {shard}: expected at least 1")
    if data % shard or (replicate is not None and replicate * shard != data):
        asked = f"{replicate} replicas x {shard} shards" if replicate is not None else f"replicas of {shard} shards"
        fits = max(n for n in range(1, min(data, shard) + 1) if data % n == 0)
        cards = (replicate or 1) * shard * each
        told = f"use --replicate {data // fits} --shard {fits}, or {cards} cards (--gpu NAMEx{cards})"
        raise QuestionError(f"{data} data-parallel ranks are not {asked}: {told}")
    return data // shard
