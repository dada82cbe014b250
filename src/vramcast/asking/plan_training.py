"""A training plan from words: model, method, tokens or samples, deadline or budget, cards at which prices."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from vramcast.asking.asked import check_words, count_of
from vramcast.asking.plan import offers_of
from vramcast.asking.serving import number_of
from vramcast.errors import QuestionError, unknown_name
from vramcast.ledger import Assumption
from vramcast.workload import Adapter

if TYPE_CHECKING:
    from vramcast.planning.plans.serving import Watch
    from vramcast.planning.plans.training import TrainingPlan
    from vramcast.planning.plans.training_layouts import Task

_ORDERS = ("time", "cost", "cards")
_METHODS = ("full", "pretrain", "lora", "qlora")
_SPAN = re.compile(r"\s*([\d.]+)\s*(d|day|days|h|hour|hours|w|week|weeks|min)?\s*")
_UNITS_S = {"min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SEQ = 4096
_BATCH_TOKENS, _BATCH_SAMPLES = 2**20, 64
_MOST_CARDS = 8


class PlanTrainWords(TypedDict, total=False):
    """What can be asked of a training plan, in Python and as ``--words`` of ``vramcast plan train``."""

    gpu: str | Sequence[str] | None
    framework: str | Sequence[str] | None
    method: str | None
    rank: int | None
    optimizer: str | None
    seq: int | str | None
    batch: int | str | None
    tokens: int | str | None
    samples: int | str | None
    epochs: float | str | None
    deadline: str | None
    budget: float | str | None
    offload: bool | None
    by: str | None


def plan_train(model: str, *, watch: "Watch | None" = None, **words: Unpack[PlanTrainWords]) -> "TrainingPlan":
    """What ``vramcast plan train`` answers: ``plan_train("Qwen/Qwen3-32B", gpu="H100x64", tokens="1T", deadline="60d")``.

    Raises QuestionError for words that cannot be, UnmodelledError where no layout can be forecast, MissingError without NumPy.
    """
    from vramcast.models.inventory import under_its_id
    from vramcast.models.reading import read_model
    from vramcast.planning.plans.serving import check_numpy
    from vramcast.planning.plans.training import plan_training

    check_numpy()
    check_words(words, PlanTrainWords.__annotations__, what="plan word")
    task, assumed = task_of(model, {name: value for name, value in words.items() if value not in (None, ())})
    held = under_its_id(read_model(model))
    return plan_training(msgspec.structs.replace(task, model=held.id), model=held, watch=watch, assumed=assumed)


def task_of(model: str, words: dict[str, Any]) -> "tuple[Task, tuple[Assumption, ...]]":
    """The training that these words ask for, and what was taken where they say nothing."""
    from vramcast.planning.plans.training_layouts import Task

    if not words.get("gpu"):
        raise QuestionError("a training plan needs cards: name some with --gpu, for example --gpu H100x64, or any")
    assumed: list[Assumption] = []
    method = str(words.get("method", "full"))
    if method not in _METHODS:
        raise unknown_name("method", method, _METHODS)
    seq = _positive(words, "seq")
    if seq is None:
        seq = _SEQ
        assumed.append(Assumption("seq", _SEQ, "where nothing was said: say yours"))
    batch = _positive(words, "batch")
    if batch is None:
        batch = max(1, _BATCH_TOKENS // seq) if method in ("full", "pretrain") else _BATCH_SAMPLES
        assumed.append(Assumption("batch", batch, "sequences of a step over all cards: the answer depends on it, say yours"))
    order = str(words.get("by", "time"))
    if order not in _ORDERS:
        raise unknown_name("order", order, _ORDERS)
    task = Task(
        model=model, offers=offers_of(words["gpu"], most=_MOST_CARDS), frameworks=_frameworks(words, method), seq=seq,
        batch=batch,
        tokens=_tokens(words, seq), method="full" if method == "pretrain" else method, optimizer=words.get("optimizer"),
        adapter=Adapter(rank=rank) if (rank := _positive(words, "rank")) else None, deadline_s=_deadline(words),
        budget_usd=_budget(words), offload=bool(words.get("offload")), order=order,
    )  # fmt: skip
    if (task.deadline_s or task.budget_usd) and task.tokens is None:
        raise QuestionError("a deadline or a budget needs the length of the run: --tokens 1T, or --samples 100k --epochs 3")
    return task, tuple(assumed)


def _positive(words: dict[str, Any], name: str) -> int | None:
    if name not in words:
        return None
    value = count_of(words[name], name)
    if value < 1:
        raise QuestionError(f"--{name} is {value}: expected at least 1")
    return value


def _frameworks(words: dict[str, Any], method: str) -> tuple[str, ...]:
    """Those named, else the two that pretrain on many cards; for adapters the Trainer."""
    from vramcast.training.frameworks import framework_name

    given = words.get("framework")
    if not given:
        return ("torchtitan", "megatron") if method in ("full", "pretrain") else ("hf_trainer",)
    texts = (given,) if isinstance(given, str) else given
    return tuple(dict.fromkeys(framework_name(name) for text in texts for name in text.split(",")))


def _tokens(words: dict[str, Any], seq: int) -> int | None:
    if "tokens" in words:
        return _positive(words, "tokens")
    samples = _positive(words, "samples")
    if samples is None:
        if "epochs" in words:
            raise QuestionError("--epochs needs --samples, how many sequences one epoch has; or give --tokens")
        return None
    return max(1, round((number_of(words, "epochs") or 1.0) * samples * seq))


def _deadline(words: dict[str, Any]) -> float | None:
    """``30d``, ``12h``, ``2 weeks`` in seconds; a bare number is days."""
    if not words.get("deadline"):
        return None
    match = _SPAN.fullmatch(str(words["deadline"]).lower())
    try:
        seconds = float(match[1]) * _UNITS_S["min" if match[2] == "min" else (match[2] or "d")[0]] if match else 0.0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 10**10:
        raise QuestionError(f"--deadline is {words['deadline']!r}: write for example 30d or 12h")
    return seconds


def _budget(words: dict[str, Any]) -> float | None:
    if words.get("budget") is None:
        return None
    text = str(words["budget"]).strip().lstrip("$").replace(",", "").lower()
    try:
        value = float(text.rstrip("km")) * (1e6 if text.endswith("m") else 1e3 if text.endswith("k") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 10**12:
        raise QuestionError(f"--budget is {words['budget']!r}: write dollars, for example 50000 or 50k")
    return value
