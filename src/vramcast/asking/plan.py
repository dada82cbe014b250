"""A plan from words: what has to be served, on which cards at which prices, and what it may cost in time."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from vramcast.asking.asked import check_words, count_of
from vramcast.asking.serving import number_of, service_level, share_of, time_of
from vramcast.errors import QuestionError, unknown_name
from vramcast.ledger import Assumption

if TYPE_CHECKING:
    from vramcast.models.inventory import Model
    from vramcast.planning.plans.offers import Offer
    from vramcast.planning.plans.serving import ServingPlan, Watch
    from vramcast.planning.plans.wanted import Wanted

MOST_CARDS = 32
POOLS = ("vllm", "sglang", "tensorrt_llm")
PROMPT, OUTPUT = 1024, 256
_PRICE = re.compile(r"(?P<name>.+?)\s*(?:@\s*\$?|:\s*\$|:(?=\d*\.\d))(?P<price>[\d.]+)(?:\s*/\s*h(?:our)?)?\s*$")


class PlanServeWords(TypedDict, total=False):
    """What can be asked of a serving plan, in Python and as ``--words`` of ``vramcast plan serve``."""

    gpu: str | Sequence[str] | None
    engine: str | Sequence[str] | None
    users: int | str | None
    rate: float | str | None
    context: int | str | None
    prompt: int | str | None
    output: int | str | None
    cached: float | str | None
    acceptance: float | str | None
    disagg: bool | None
    workload: str | None
    slo: str | None
    slo_ttft: str | None
    slo_tpot: str | None
    bits: float | str | None
    by: str | None
    most_gpus: int | str | None


def plan_serve(model: str, *, watch: "Watch | None" = None, **words: Unpack[PlanServeWords]) -> "ServingPlan":
    """What ``vramcast plan serve`` answers: ``plan_serve("Qwen/Qwen3-32B", gpu=["H100", "A100-80G@2.1"], users=20)``.

    Raises QuestionError for words that cannot be, UnmodelledError where nothing can be forecast, MissingError without NumPy.
    """
    from vramcast.models.inventory import under_its_id
    from vramcast.models.reading import read_model
    from vramcast.planning.plans.offers import offers_that_hold
    from vramcast.planning.plans.serving import check_numpy, plan_serving

    check_numpy()
    check_words(words, PlanServeWords.__annotations__, what="plan word")
    given = {name: value for name, value in words.items() if value not in (None, ())}
    held = under_its_id(read_model(model))
    wanted, assumed = wanted_of(model, given, positions=held.positions)
    if _any_card(given.get("gpu")):
        offers = offers_that_hold(_least_bytes(wanted, held), most=_most(given))
        wanted = msgspec.structs.replace(wanted, offers=offers)
    return plan_serving(msgspec.structs.replace(wanted, model=held.id), model=held, watch=watch, assumed=assumed)


def _any_card(given: Any) -> bool:
    texts = (given,) if isinstance(given, str) else tuple(given or ())
    return not texts or [text.strip().lower() for text in texts] == ["any"]


def _least_bytes(wanted: "Wanted", model: "Model") -> float:
    """Of the weights that an engine of the plan loads, the fewest bytes."""
    from vramcast.planning.plans.weights import weights_of

    found = [one for one in weights_of(model, least_bits=wanted.least_bits) if any(map(one.loads_in, wanted.engines))]
    return min((one.bits * model.parameters / 8 for one in found), default=0.0)


def wanted_of(model: str, words: dict[str, Any], *, positions: int = 0) -> "tuple[Wanted, tuple[Assumption, ...]]":
    """The service that these words ask for, and what was taken where they say nothing; ``positions``: the model's, 0 unknown."""
    from vramcast.planning.plans.wanted import ORDERS, Wanted

    words = {**_replayed(words), **words}
    assumed: list[Assumption] = []
    counts: dict[str, int] = {
        name: count_of(words[name], name) for name in ("users", "context", "prompt", "output") if name in words
    }
    room = min(positions or PROMPT + OUTPUT, counts.get("context", PROMPT + OUTPUT))
    for name, typical in (("prompt", PROMPT), ("output", OUTPUT)):
        if name not in counts:
            usual = typical if room >= PROMPT + OUTPUT else max(1, room * typical // (PROMPT + OUTPUT))
            counts[name] = usual
            assumed.append(Assumption(name, usual, "a typical length: the answer depends on it, say yours"))
    for name, value in counts.items():
        if value < 1:
            raise QuestionError(f"--{name} is {value}: expected at least 1")
    if "context" not in counts:
        counts["context"] = counts["prompt"] + counts["output"]
        assumed.append(Assumption("context", counts["context"], "prompt and output together: --context allows longer ones"))
    rate = number_of(words, "rate")
    if rate is not None and not 0 < rate < float("inf"):
        raise QuestionError(f"--rate is {rate:g}: expected requests a second, above 0")
    if rate is None and "users" not in counts:
        counts["users"] = 1
        assumed.append(Assumption("users", 1, "one user where neither --users nor --rate was said"))
    order = str(words.get("by", "cost"))
    if order not in ORDERS:
        raise unknown_name("order", order, ORDERS)
    ttft, tpot = _slo(words)
    drafts = _acceptance(words)
    wanted = Wanted(
        model=model, offers=offers_of(words.get("gpu"), most=_most(words)), engines=_engines(words.get("engine")), rate=rate,
        cached=min(0.999, share_of(words, "cached") or 0.0), ttft_s=ttft, tpot_s=tpot, least_bits=_bits(words), order=order,
        acceptance=drafts.get("mtp"), looked_up=drafts.get("ngram"), apart=bool(words.get("disagg")),
        rented=_any_card(words.get("gpu")), any_engine=not words.get("engine"),
        **counts,
    )  # fmt: skip
    return wanted, tuple(assumed)


def offers_of(given: str | Sequence[str] | None, *, most: int) -> "tuple[Offer, ...]":
    """Cards to choose from: ``H100`` (as many as the plan may), ``H100x8`` (at most eight), ``L4x1``.

    ``A100@2.1``: dollars an hour; ``any``: all rented ones.

    Raises QuestionError for unknown names, prices and counts.
    """
    from vramcast.hardware.cards import parse_gpus
    from vramcast.planning.plans.offers import offer_of, usual_offers

    texts = (given,) if isinstance(given, str) else tuple(given or ())
    if _any_card(given):
        return usual_offers(most=min(most, 8))
    found: list[Offer] = []
    for text in texts:
        priced = _PRICE.fullmatch(text)
        named = parse_gpus(priced["name"] if priced else text)
        price = _dollars(priced["price"], text) if priced else None
        for card in {c.id: c for c in named.cards}.values():
            count = sum(c.id == card.id for c in named.cards)
            found.append(offer_of(card, most=count if count > 1 or named.counted else most, usd_per_hour=price))
    return tuple(found)


def _dollars(text: str, whole: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 < price < 10**6:
        raise QuestionError(
            f"--gpu {whole!r}: {text!r} is no price; write for example 'A100-80G@2.10', dollars an hour for one card"
        )
    return price


def _engines(given: str | Sequence[str] | None) -> tuple[str, ...]:
    from vramcast.serving.engines import engine

    if not given:
        return POOLS
    names = [name for text in ((given,) if isinstance(given, str) else given) for name in text.split(",")]
    found = tuple(dict.fromkeys(engine(name.strip().partition("==")[0]).name for name in names))
    for name in found:
        if name not in (*POOLS, "llama_cpp"):
            raise QuestionError(f"a plan compares servers: {name} is none; known are {', '.join((*POOLS, 'llama_cpp'))}")
    return found


def _slo(words: dict[str, Any]) -> tuple[float | None, float | None]:
    ttft, tpot = service_level(str(words["slo"])) if words.get("slo") else (None, None)
    own = {
        name: time_of(str(words[f"slo_{name}"]), str(words[f"slo_{name}"]))
        for name in ("ttft", "tpot")
        if words.get(f"slo_{name}")
    }
    found = own.get("ttft", ttft), own.get("tpot", tpot)
    if any(value is not None and value <= 0 for value in found):
        raise QuestionError("a service level is a time above 0, for example --slo ttft=1s,tpot=50ms")
    return found


def _bits(words: dict[str, Any]) -> float:
    bits = number_of(words, "bits")
    if bits is None:
        return 4
    if not 1 <= bits <= 32:
        raise QuestionError(f"--bits is {bits:g}: expected the fewest bits of a weight to consider, for example 16, 8 or 4")
    return bits


def _acceptance(words: dict[str, Any]) -> dict[str, float]:
    """``0.8``, ``ngram=0.4`` or ``0.8,ngram=0.4``: shares of drafted tokens that are accepted, by the way of drafting."""
    said, found = words.get("acceptance"), {}
    for part in () if said is None else str(said).split(","):
        way, _, text = part.strip().rpartition("=")
        if way not in ("", "mtp", "ngram"):
            raise unknown_name("way of drafting", way, ("mtp", "ngram"))
        if (way or "mtp") in found:
            raise QuestionError(f"--acceptance is {str(said)[:60]}: the share of {way or 'mtp'} is said twice; say it once")
        share = share_of({"acceptance": text}, "acceptance")
        if share is None or not 0 <= share <= 1:
            raise QuestionError(f"--acceptance is {text[:40]}: expected the share of drafted tokens that are accepted, 0 to 1")
        found[way or "mtp"] = share
    return found


def _most(words: dict[str, Any]) -> int:
    most = count_of(words.get("most_gpus", MOST_CARDS), "most_gpus")
    if not 1 <= most <= 1024:
        raise QuestionError(f"--most-gpus is {most}: expected 1 to 1024")
    return most


def _replayed(words: dict[str, Any]) -> dict[str, Any]:
    """Mean lengths, rate and longest request of a log of requests."""
    if not words.get("workload"):
        return {}
    from vramcast.planning.under_load import read_requests

    requests = read_requests(str(words["workload"]))
    count, span = len(requests), requests[-1].arrival_s - requests[0].arrival_s
    found: dict[str, Any] = {
        "prompt": max(1, round(sum(r.prompt for r in requests) / count)),
        "output": max(1, round(sum(r.output for r in requests) / count)),
        "context": max(r.prompt + r.output for r in requests),
    }
    return found | ({"rate": (count - 1) / span} if span > 0 and "users" not in words else {})
