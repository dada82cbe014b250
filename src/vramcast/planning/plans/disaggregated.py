"""Prefill and decode on workers of their own, for the best structures of a plan: how many of each, and whether that is better.

Each number of workers is asked by itself with the rules of ``speed/disaggregation``; both kinds of workers must hold their part.
"""

from collections.abc import Iterator, Sequence

import msgspec

from vramcast.errors import VramcastError
from vramcast.ledger import Fit
from vramcast.planning.plans.choices import Choice
from vramcast.planning.plans.serving_table import question_of
from vramcast.planning.plans.wanted import Setting, Wanted
from vramcast.planning.verdict import serving_fit
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import checked_load, with_drafting
from vramcast.speed.closed_form import FULL
from vramcast.speed.disaggregation import steady_pools
from vramcast.speed.pools import pools_of, prefill_answer
from vramcast.workload import Disaggregated, Serving

ENGINES = ("vllm", "sglang", "tensorrt_llm")
_WORKERS = (2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
_SHARES = (0.2, 0.34, 0.5, 0.67)  # of the workers that prefill
_MOST = 4  # structures that are taken apart


class DisaggregatedChoice(Choice, frozen=True, kw_only=True):
    """A deployment in two pools: ``question`` is about a decode worker, ``prefill`` about a prefill worker, ``pools`` how many.

    ``replicas`` are the decode workers. ``fit`` and ``needed_bytes`` are of the worse kind.
    """

    prefill: Serving
    pools: Disaggregated

    @property
    def layout(self) -> str:
        """``2P1D of tp 4``: prefill workers, decode workers, and what a worker is."""
        return f"{self.pools.prefill_workers}P{self.pools.decode_workers}D of {self.setting.layout.words}"


def disaggregated(wanted: Wanted, found: Sequence[Choice]) -> Iterator[DisaggregatedChoice]:
    """Deployments in two pools of the structures that ``found`` has, those that fit and that the closed form knows."""
    for choice in _distinct(found):
        for prefills, decodes in _numbers(choice.setting, wanted.users):
            try:
                one = _one(wanted, choice, prefills, decodes)
            except VramcastError:
                continue  # an engine that has no such server for this model, or a law that is missing
            if one.fit.verdict in ("fits", "tight"):
                yield one


def _distinct(found: Sequence[Choice]) -> list[Choice]:
    """One choice a structure that a worker can be: whole models on tensor-parallel ranks."""
    kept: dict[tuple[object, ...], Choice] = {}
    for choice in found:
        own = choice.setting
        plain = own.layout.parallel.pp == 1 and own.layout.parallel.dp == 1 and not own.layout.options
        if plain and own.engine in ENGINES:
            kept.setdefault((own.engine, own.weights.name, own.card.id, own.layout.parallel, own.kv_dtype), choice)
    return list(kept.values())[:_MOST]


def _numbers(setting: Setting, users: int | None) -> Iterator[tuple[int, int]]:
    """Prefill and decode workers that the cards allow, no more decode workers than users."""
    most = setting.offer.most // setting.layout.ranks
    met: set[tuple[int, int]] = set()
    for workers in (one for one in _WORKERS if one <= most):
        for share in _SHARES:
            prefills = min(workers - 1, max(1, round(share * workers)))
            pair = prefills, workers - prefills
            if pair not in met and (users is None or pair[1] <= users):
                met.add(pair)
                yield pair


def _one(wanted: Wanted, choice: Choice, prefills: int, decodes: int) -> DisaggregatedChoice:
    setting, model = choice.setting, choice.setting.weights.model
    asked = question_of(wanted, setting, replicas=decodes, chunk=choice.chunk, seats=choice.seats)
    pools = Disaggregated(prefill_workers=prefills, decode_workers=decodes, clients=wanted.users or 0)
    question = msgspec.structs.replace(asked, traffic=msgspec.structs.replace(asked.traffic, pools=pools))
    answer = answer_of(question, model=model, card=setting.card, limits=False)
    other = prefill_answer(answer)
    load, _ = checked_load(answer, pools.clients or question.concurrency or 1)
    workers, _ = pools_of(answer)
    load, _ = with_drafting(workers.decode, load, question.options)
    state = steady_pools(workers, load)
    fits = [serving_fit(one, setting.card) for one in (answer, other)]
    needed = max(rank.needed_bytes for one in (answer, other) for rank in one.ranks)
    cards, price = workers.cards, setting.offer.usd_per_hour
    rate = state.requests_per_s * wanted.output
    hour = None if price is None else price * cards
    return DisaggregatedChoice(
        setting=setting, question=question, prefill=other.resolved.question, pools=pools, replicas=decodes, gpus=cards,
        chunk=choice.chunk, seats=choice.seats, needed_bytes=int(needed), fit=min(fits, key=_likely), ttft_s=state.ttft_s,
        tpot_s=state.tpot_s, tokens_per_s=rate,
        keeps_up=wanted.rate is None or state.most_per_s * FULL >= wanted.rate, usd_per_hour=hour,
        usd_per_million=hour / rate / 3600 * 1e6 if hour is not None and rate else None, power_w=setting.card.tdp_w * cards,
    )  # fmt: skip


def _likely(fit: Fit) -> tuple[bool, float]:
    return fit.verdict == "fits", fit.probability if fit.probability is not None else 0.0
