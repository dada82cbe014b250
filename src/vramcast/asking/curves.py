"""What a picture of a serving question is drawn from: more and more users, the operators of a step, context by users."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from vramcast.asking.asked import Asked
from vramcast.errors import QuestionError, VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Fit
from vramcast.serving.layers import encodes_only
from vramcast.workload import Serving

if TYPE_CHECKING:
    from vramcast.serving.engines.base import Answer
    from vramcast.speed.load import Load

_MOST_USERS = 2048
_LEAST = 0.01  # of a step's time: an operator that takes less has no point
_FILLED = 0.75  # of the users: below it the seats or the cache are full


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a step: ``moment`` prefill or decode; FLOPs, bytes moved and seconds of all its calls in the step."""

    name: str
    moment: str
    flops: float
    bytes: float
    seconds: float


class Square(msgspec.Struct, frozen=True, kw_only=True):
    """One question of a map: what it needs on the worst card and its verdict, or why it cannot be asked."""

    context: int
    users: int
    needed_bytes: int = 0
    fit: Fit = Fit(verdict="unknown")
    refused: str = ""


def curve(asked: Asked[Serving]) -> list[dict[str, Any]]:
    """Steady states for 1, 2, 4 ... users, up to what seats and cache hold. Raises QuestionError without a card."""
    from vramcast.serving.engines.base import answer_of
    from vramcast.speed.answer import load_of

    question = asked.question
    if question.gpu is None:
        raise QuestionError("--curve needs a card: name one with --gpu")
    answer = answer_of(question, model=asked.model)
    if encodes_only(answer.resolved.model):
        raise QuestionError("--curve draws tokens over users, and this model makes vectors: ask with --prompt and --concurrency")
    state = _state_of(answer)
    load, _ = load_of(question, 1)
    points: list[dict[str, Any]] = []
    users = 1
    while users <= _MOST_USERS:
        tried = msgspec.structs.replace(load, concurrency=users, rate_per_s=0.0)
        ttft, tpot, rate, batch = state(tried)
        points.append({
            "concurrency": users, "ttft_s": ttft, "tpot_s": tpot, "tokens_per_s": rate * load.output,
            "requests_per_s": rate, "batch": batch,
        })  # fmt: skip
        if batch < _FILLED * users:
            break
        users *= 2
    return points


def _state_of(answer: "Answer") -> "Callable[[Load], tuple[float, float, float, float]]":
    """TTFT, TPOT, requests a second and sequences decoded at once of the whole server, by the closed form."""
    from vramcast.speed.answer import step_of
    from vramcast.speed.closed_form import steady
    from vramcast.speed.disaggregation import steady_pools
    from vramcast.speed.placing import replicas_of
    from vramcast.speed.pools import pools_of

    if answer.resolved.question.traffic.pools:
        pools, _ = pools_of(answer)

        def apart(load: "Load") -> tuple[float, float, float, float]:
            found = steady_pools(pools, load)
            return found.ttft_s, found.tpot_s, found.requests_per_s, found.batch * pools.decode_workers

        return apart
    step, copies = step_of(answer), replicas_of(answer.resolved) * answer.resolved.question.parallel.pp

    def whole(load: "Load") -> tuple[float, float, float, float]:
        found = steady(step, load, replicas=copies)
        return found.ttft_s, found.tpot_s, found.requests_per_s * copies, found.batch * copies

    return whole


def operators(asked: Asked[Serving]) -> tuple[tuple[Operator, ...], Accelerator, str]:
    """The operators of one prompt's prefill and of one decode step of all users, the card, and the format of the products.

    Raises QuestionError without a card, UnmodelledError where a kernel has no law.
    """
    from vramcast.models.operations import Batch, Linear
    from vramcast.serving.engines.base import answer_of
    from vramcast.speed.answer import load_of, step_of
    from vramcast.speed.deployment import law_format

    question = asked.question
    if question.gpu is None:
        raise QuestionError("a roofline needs a card: name one with --gpu")
    answer = answer_of(question, model=asked.model)
    load, _ = load_of(question, max(1, answer.resolved.requests))
    step = step_of(answer)
    batches = {
        "prefill": Batch(prefills=1, prefill_tokens=load.prompt),
        "decode": Batch(decodes=max(1, load.concurrency), decode_past=load.prompt + load.output // 2),
    }
    found = tuple(one for moment, batch in batches.items() for one in _operators(step, moment, batch))
    forms = [one.form for one in step.on.operations if isinstance(one, Linear)]
    return found, step.on.card, law_format(forms[0], step.clock.native) if forms else "bf16"


def _operators(step: Any, moment: str, batch: Any) -> Iterator[Operator]:
    """Operators of the same name together; those that compute nothing worth a point are left out."""
    sums: dict[str, list[float]] = {}
    for one in step.on.operations:
        flops, moved, estimate = _work(step.clock, one, moment, batch)
        if estimate is None or not flops:
            continue
        own = sums.setdefault(one.name, [0.0, 0.0, 0.0])
        for i, value in enumerate((flops, moved, float(estimate.seconds))):
            own[i] += value * one.count
    least = _LEAST * sum(seconds for _, _, seconds in sums.values())
    for name, (flops, moved, seconds) in sums.items():
        if seconds < least:
            continue
        yield Operator(name=name, moment=moment, flops=flops, bytes=moved, seconds=seconds)


def _work(clock: Any, one: Any, moment: str, batch: Any) -> tuple[float, float, Any]:
    """FLOPs, bytes and the estimate of an operation in a batch; no estimate where it does not run."""
    estimate = clock.rows(one, batch) or getattr(clock, moment)(one, batch)
    return float(one.flops(batch)), float(one.read_bytes(batch) + one.write_bytes(batch)), estimate


def squares(asked: Asked[Serving], contexts: Sequence[int], users: Sequence[int]) -> list[list[Square]]:
    """The verdict for each number of users (rows) and context (columns). Raises QuestionError without a card."""
    if asked.question.gpu is None:
        raise QuestionError("a map needs a card: name one with --gpu")
    return [[_square(asked, context, count) for context in contexts] for count in users]


def _square(asked: Asked[Serving], context: int, users: int) -> Square:
    from vramcast.planning.verdict import serving_fit, worst_of
    from vramcast.serving.engines.base import answer_of

    traffic = msgspec.structs.replace(asked.question.traffic, rate=None)
    question = msgspec.structs.replace(
        asked.question, context=context, concurrency=users, prompt=None, output=None, traffic=traffic
    )
    try:
        answer = answer_of(question, model=asked.model)
        fit = serving_fit(answer, answer.resolved.card)
    except VramcastError as error:
        return Square(context=context, users=users, refused=str(error))
    return Square(context=context, users=users, needed_bytes=worst_of(answer.ranks).needed_bytes, fit=fit)
