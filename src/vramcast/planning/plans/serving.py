"""A serving plan: all deployments on the cards offered, ranked; cost against speed; the fewest cards; why the others lost."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from vramcast.errors import MissingError, QuestionError, UnmodelledError, VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption
from vramcast.models.classes import model_class
from vramcast.models.inventory import Model
from vramcast.planning.plans.choices import Choice, Joined, Judge
from vramcast.planning.plans.disaggregated import DisaggregatedChoice, disaggregated
from vramcast.planning.plans.layouts import drafting, layouts, on_host
from vramcast.planning.plans.offers import Offer, without_a_job
from vramcast.planning.plans.plan import Plan, prices_taken
from vramcast.planning.plans.serving_table import Columns, Fitting, fitting, one_by_one, timed
from vramcast.planning.plans.wanted import Setting, Wanted
from vramcast.planning.plans.weights import weights_of
from vramcast.serving.engines.base import answer_of, why_not
from vramcast.serving.engines.registries import newest_with
from vramcast.serving.layers import encodes_only
from vramcast.speed.answer import load_of, step_of
from vramcast.speed.closed_form import steady
from vramcast.speed.step import Step
from vramcast.truth.bars import serving_spread

SHOWN, _MOST_OF_THE_FRONT, _MOST_APART, _MOST_WEIGHTS = 6, 8, 3, 4
_A_CHOICE = 0.98  # of the time before: steps below two per cent are no choice
_NEARLY = 1.25  # times the least by which a service level or rate is missed: what is further off is no choice either
Watch = Callable[[int, int], None]


class ServingPlan(Plan, frozen=True, kw_only=True):
    """``ranked``: the best first, one of each kind (card, count, weights, engine). ``front``: none is both cheaper and faster.

    ``fewest``: the least cards of each offer that hold the job. ``by_weights``: the best for each format of weights.
    ``longest_ttft_s``: of one prompt that fills the context, alone on the best.
    ``apart``: the best with prefill and decode on workers of their own, where that was asked.
    """

    wanted: Wanted
    ranked: tuple[Choice, ...] = ()
    front: tuple[Choice, ...] = ()
    fewest: tuple[Choice, ...] = ()
    by_weights: tuple[Choice, ...] = ()
    longest_ttft_s: float | None = None
    apart: tuple[DisaggregatedChoice, ...] = ()

    shown_by: ClassVar[tuple[str, str, str]] = ("pages.plan", "serving_plan_page", "serving_object")


def plan_serving(
    wanted: Wanted, *, model: Model, watch: Watch | None = None, assumed: tuple[Assumption, ...] = ()
) -> ServingPlan:
    """The plan; ``watch`` is told how many structures of how many are done.

    Raises MissingError without NumPy, QuestionError for a model that makes vectors, and UnmodelledError where no structure can be
    forecast at all.
    """
    check_numpy()
    if encodes_only(model):
        raise QuestionError(f"a plan ranks tokens, and {model.id} makes vectors: vramcast serve {model.id} --gpu CARD --prompt N")
    watch = watch or (lambda done, of: None)
    settings, refused = list(_settings(wanted, model)), dict[str, int]()
    tables = list(_tables(wanted, settings, refused, watch))
    if wanted.any_engine and (left := _not_held(wanted, tables)):
        alone = msgspec.structs.replace(wanted, offers=left, engines=("llama_cpp",))
        settings += (others := list(_settings(alone, model)))
        tables += _tables(alone, others, refused, watch)
        assumed = (*assumed, *_by_llama_cpp(left, others))
    refused |= dict.fromkeys(_cards_without_engine(wanted, settings), 0)
    if not tables:
        raise UnmodelledError(f"no deployment can be forecast: {_because(wanted, refused, model)}")
    plan = ServingPlan(
        wanted=wanted, tried=sum(t.tried for t in tables), structures=len(settings), refused=refused,
        assumed=(*assumed, *_releases(wanted, model), *model.assumed, *prices_taken(wanted.offers)),
    )  # fmt: skip
    shown = [table for table in tables if not table.setting.layout.on_host]
    if not any(len(table.gpus) for table in shown):  # what is read from the host is slower: only where no cards hold all
        shown = tables
    return _ranked(plan, Joined(wanted, shown), shown)


def _not_held(wanted: Wanted, tables: Sequence[Columns]) -> tuple[Offer, ...]:
    """The named cards too small for the whole model under every server, and those that no server starts on."""
    held = {table.setting.card.id for table in tables if len(table.gpus) and not table.setting.layout.on_host}
    small = {table.setting.card.id for table in tables} - held
    left = (one for one in wanted.offers if one.card.id in small or all(why_not(engine, one.card) for engine in wanted.engines))
    return () if wanted.rented else tuple(left)


def _by_llama_cpp(offers: Sequence[Offer], settings: Sequence[Setting]) -> tuple[Assumption, ...]:
    """Which cards llama.cpp is asked for although nobody named it."""
    names = dict.fromkeys(offer.card.name for offer in offers if any(one.card.id == offer.card.id for one in settings))
    because = "none of the servers holds the whole model there; --engine says another"
    return (Assumption("engine", f"llama_cpp on {', '.join(names)}", because),) if names else ()


def _releases(wanted: Wanted, model: Model) -> tuple[Assumption, ...]:
    """Engines whose newest release has the class no more, with the one that is asked instead."""
    last = {engine: newest_with(engine, model) for engine in wanted.engines}
    said = {engine: (release, f"newest release that {what}") for engine, (release, what) in last.items() if release}
    return tuple(Assumption(f"{engine}_version", release, because) for engine, (release, because) in said.items())


def _tables(wanted: Wanted, settings: Sequence[Setting], refused: dict[str, int], watch: Watch) -> Iterator[Columns]:
    """The columns of every structure: memory first, then the times of those that share their steps together."""
    alike: dict[Any, list[Fitting]] = {}
    for done, setting in enumerate(settings):
        watch(done, 2 * len(settings))
        try:
            if setting.engine == "llama_cpp":
                yield one_by_one(wanted, setting)
            else:
                own = fitting(wanted, setting)
                alike.setdefault(own.alike, []).append(own)
        except VramcastError as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
    known: dict[Any, Step] = {}
    for done, group in enumerate(alike.values()):
        watch(len(settings) + done * len(settings) // len(alike), 2 * len(settings))
        try:
            yield from timed(wanted, group, known)
        except VramcastError as error:
            refused[str(error)] = refused.get(str(error), 0) + len(group)


def check_numpy() -> None:
    """Raises MissingError where NumPy is not installed."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        raise MissingError.extra("plan", "planning") from None


def _settings(wanted: Wanted, model: Model) -> Iterator[Setting]:
    """Every structure: engines that start on the card, weights that they load, layouts of the cards offered, types of cache."""
    weights = weights_of(model, least_bits=wanted.least_bits)
    for offer in wanted.offers:
        for engine in wanted.engines:
            if why_not(engine, offer.card):
                continue
            for layout in layouts(engine, model, offer.card, most=offer.most):
                for own in (one for one in weights if one.loads_in(engine)):
                    drafts = drafting(engine, own.model, layout, **wanted.drafts)
                    away = () if wanted.rented else on_host(engine, own.model, own.bits, layout, offer.card)
                    for held_at in (layout, *away, *drafts):
                        for kv_dtype in (None, "fp8") if wanted.least_bits <= 8 else (None,):
                            yield Setting(weights=own, engine=engine, offer=offer, layout=held_at, kv_dtype=kv_dtype)


def _cards_without_engine(wanted: Wanted, settings: Sequence[Setting]) -> list[str]:
    """Why the engines asked do not start on a card, for cards that no structure uses, and what does."""
    used = {one.card.id for one in settings}
    unused = [offer.card for offer in wanted.offers if offer.card.id not in used]
    reasons = [[why_not(engine, card) for engine in wanted.engines] for card in unused]
    return ["; ".join(map(str, own)) + _next_step(card) for card, own in zip(unused, reasons, strict=True) if all(own)]


def _because(wanted: Wanted, refused: dict[str, int], model: Model) -> str:
    """Why nothing was left to rank: what most structures were refused for, and llama.cpp where it holds the class."""
    most = [why for why in sorted(refused, key=lambda why: -refused[why]) if refused[why]][: len(wanted.engines)]
    if most and "llama_cpp" not in wanted.engines and model_class(model.text_class).served.gguf:
        most.append("llama.cpp holds the class: add --engine llama_cpp")
    return (
        "; ".join(most) or next(iter(refused), "") or "; ".join(_not_started(wanted)) or "no engine, card and layout go together"
    )


def _next_step(card: Accelerator) -> str:
    """What starts where none of the engines asked does: llama.cpp has builds for nearly every chip."""
    return "" if why_not("llama_cpp", card) else f". llama.cpp runs on {card.name}: add --engine llama_cpp"


def _not_started(wanted: Wanted) -> list[str]:
    return [why for offer in wanted.offers for engine in wanted.engines if (why := why_not(engine, offer.card))]


def _ranked(plan: ServingPlan, joined: Joined, tables: Sequence[Columns]) -> ServingPlan:
    import numpy as np

    if not joined.tables:
        least = max(tables, key=lambda t: t.best_margin_bytes)
        short = max(0, -least.best_margin_bytes)
        return msgspec.structs.replace(plan, meets=False, nearest=(_words(least.setting), short))
    judge, order = Judge(joined), joined.order()
    kept = order[joined.meets[order]]
    meets = len(kept) > 0
    order = kept if meets else order
    cards, of_card = joined.kinds(lambda own: own.card.id, counted=True), joined.kinds(lambda own: own.card.id)
    alike = joined.kinds(lambda own: (own.card.id, own.weights.name, own.engine), counted=True)
    best = list(judge.first(order, kinds=alike, most=SHOWN))
    shown = {choice.setting.card.id for choice in best}
    others = [place for place, table in enumerate(joined.tables) if table.setting.card.id not in shown]
    best += judge.first(order[np.isin(joined.place[order], others)], kinds=of_card, most=SHOWN)
    best.sort(key=lambda choice: (choice.fit.verdict != "fits", *_order(plan.wanted, choice)))
    if not best:
        return msgspec.structs.replace(plan, meets=False, nearest=(_words(joined.tables[joined.place[order[0]]].setting), 0))
    answer = answer_of(best[0].question, model=best[0].setting.weights.model, card=best[0].setting.card, limits=False)
    memory = tuple(msgspec.structs.replace(rank, interval=serving_spread(answer, rank).interval()) for rank in answer.ranks)
    near = order if meets else order[joined.miss()[order] <= _NEARLY * joined.miss()[order].min()]
    front = list(judge.first(_front(joined, near), kinds=np.arange(len(joined.place)), most=_MOST_OF_THE_FRONT))
    by_weights = judge.first(order, kinds=joined.kinds(lambda own: own.weights.name), most=_MOST_WEIGHTS)
    judged = [*best, *front, *by_weights]  # what one table found, the others may not leave out
    return msgspec.structs.replace(
        plan, ranked=tuple(best), meets=meets, memory=memory, longest_ttft_s=_longest_ttft_s(plan.wanted, best[0]),
        front=_unbeaten(judged), apart=_apart(plan.wanted, (*best, *front)),
        fewest=_fewest(judge, joined, order, cards),
        without=without_a_job(plan.wanted.offers, {joined.tables[at].setting.card.id for at in np.unique(joined.place[order])}),
        by_weights=_best_of_each(plan.wanted, judged),
    )  # fmt: skip


def _apart(wanted: Wanted, found: Sequence[Choice]) -> tuple[DisaggregatedChoice, ...]:
    """The best in two pools, one of each engine, weights and card."""
    if not wanted.apart:
        return ()
    kept: dict[tuple[str, str, str], DisaggregatedChoice] = {}
    for one in sorted(disaggregated(wanted, found), key=lambda choice: _order(wanted, choice)):
        kept.setdefault((one.setting.engine, one.setting.weights.name, one.setting.card.id), one)
    return tuple(kept.values())[:_MOST_APART]


def _order(wanted: Wanted, choice: Choice) -> tuple[float, ...]:
    """What the plan is ordered by, of a judged choice; how far it misses the service level first."""
    cost = _cost(choice)
    level = ((wanted.ttft_s, choice.ttft_s), (wanted.tpot_s, choice.tpot_s))
    missed = max([1.0, *(own / asked for asked, own in level if asked)])
    keys = {"cost": (cost, choice.request_s), "speed": (choice.request_s, cost), "cards": (choice.gpus, cost)}[wanted.order]
    return (missed, *(float(f"{key:.8g}") for key in keys))


def _cost(choice: Choice) -> float:
    """What a token costs, in a unit of its own; cards without a price come behind all others."""
    price = choice.setting.offer.usd_per_hour
    return choice.gpus * (price or 1.0) / choice.tokens_per_s * (1 if price else _UNPRICED)


_UNPRICED = 1e6  # cards without a price come after those with one


def _words(setting: Setting) -> str:
    return f"{setting.layout.ranks} x {setting.card.name}, {setting.words}"


def _fewest(judge: Judge, joined: Joined, order: Any, cards: Any) -> tuple[Choice, ...]:
    """For each card the least number that does the job, the best deployment of that many. ``cards``: kinds by card and count."""
    by_count = order[joined.of["gpus"][order].argsort(kind="stable")]  # of one count the best first
    found: dict[str, Choice] = {}
    for choice in judge.first(by_count, kinds=cards, most=4 * SHOWN):
        found.setdefault(choice.setting.card.id, choice)
    return tuple(found.values())


def _front(joined: Joined, order: Any) -> list[int]:
    """Deployments that no other beats in both cost and time of a request, the cheapest first."""
    import numpy as np

    cost, request = joined.cost(), joined.request_s
    found: list[int] = []
    fastest = float("inf")
    for index in order[np.lexsort((request[order], cost[order]))].tolist():
        if request[index] < fastest * _A_CHOICE:
            found.append(index)
            fastest = request[index]
    return found


def _unbeaten(judged: Sequence[Choice]) -> tuple[Choice, ...]:
    """Of those that fit (of the tight ones where none does) those that no other beats in both cost and time of a request."""
    found: list[Choice] = []
    sure = [one for one in judged if one.fit.verdict == "fits"] or judged
    for choice in sorted(sure, key=lambda one: (_cost(one), one.request_s)):
        if not found or choice.request_s < found[-1].request_s * _A_CHOICE:
            found.append(choice)
    return tuple(found[:_MOST_OF_THE_FRONT])


def _best_of_each(wanted: Wanted, judged: Sequence[Choice]) -> tuple[Choice, ...]:
    """Of judged choices the best for each format of weights, the best format first."""
    kept: dict[str, Choice] = {}
    for choice in sorted(judged, key=lambda one: (one.fit.verdict != "fits", *_order(wanted, one))):
        kept.setdefault(choice.setting.weights.name, choice)
    return tuple(kept.values())[:_MOST_WEIGHTS]


def _longest_ttft_s(wanted: Wanted, best: Choice) -> float | None:
    """Seconds to the first token of a prompt that fills the context, with nobody else there."""
    answer = answer_of(best.question, model=best.setting.weights.model, card=best.setting.card, limits=False)
    load, _ = load_of(best.question, 1)
    alone = msgspec.structs.replace(load, prompt=wanted.context - wanted.output, cached=0.0, concurrency=1, rate_per_s=0.0)
    return float(steady(step_of(answer), alone, largest=False).ttft_s)
