"""Cases written by trace, measure or forecast: their question asked again, their figures beside the new forecast."""

import msgspec

from vramcast.errors import QuestionError
from vramcast.ledger import RankMemory
from vramcast.truth.case import Case
from vramcast.truth.judgement import Judgement, Pair, Unexpressed
from vramcast.truth.rows import Row
from vramcast.workload import Serving, Training

_COUNTERS = {"allocated": "allocated_bytes", "reserved": "reserved_bytes", "device": "device_bytes"}


def judge(row: Row) -> Judgement:
    """The case beside today's forecast of its question. Raises Unexpressed when no figure of it is forecast."""
    case = _case(row)
    figures, keys = _serving(case.serving) if case.serving else _training(case.training)
    pairs = tuple(
        Pair(measure=measure, predicted=figures[measure], measured=value)
        for measure, value in case.figures.items()
        if measure in figures and value
    )
    if not pairs:
        raise Unexpressed(f"none of its figures is forecast: {', '.join(case.figures)[:100]}")
    return Judgement(id=case.id, keys=keys | {"source": case.source, "level": case.level}, pairs=pairs, quality=case.quality)


def _case(row: Row) -> Case:
    try:
        return msgspec.convert(row, type=Case)
    except msgspec.ValidationError as error:
        raise QuestionError(f"not a whole case: {error}") from None


def _serving(question: Serving) -> tuple[dict[str, float], dict[str, str]]:
    from vramcast.serving.engines.base import answer_of
    from vramcast.truth.bars import model_keys

    answer = answer_of(question)
    worst = max(answer.ranks, key=lambda rank: rank.device_bytes)
    keys = {"engine": question.engine, "version": answer.resolved.version}
    return _figures(worst) | {"kv_pool": answer.cache.pool_bytes}, keys | model_keys(answer.resolved.model, question.quant)


def _training(question: Training | None) -> tuple[dict[str, float], dict[str, str]]:
    from vramcast.models.reading import read_model
    from vramcast.training.forecast import forecast_training
    from vramcast.truth.steps import training_keys

    if question is None:
        raise Unexpressed("the case holds no question")
    answer = forecast_training(question, model=read_model(question.model), replays=True)
    return _figures(answer.worst), training_keys(answer)


def _figures(rank: RankMemory) -> dict[str, float]:
    """Counters of a rank, and each top-level term at its largest."""
    terms: dict[str, float] = {}
    for instant in rank.instants:
        for term in instant.terms:
            terms[term.name] = max(terms.get(term.name, 0), term.bytes)
    return terms | {measure: getattr(rank, field) for measure, field in _COUNTERS.items()}
