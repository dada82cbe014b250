"""Prefill and decode on workers of their own, from words: ``2P1D``, the layout of a prefill worker, the link between them."""

import re
from collections.abc import Mapping
from typing import Any

from vramcast.asking.asked import count_of
from vramcast.errors import QuestionError
from vramcast.workload import Disaggregated

WORDS = ("disagg", "prefill_tp", "transfer_link")
_NAME = re.compile(r"(\d{1,6})\s*p\s*(\d{1,6})\s*d", re.IGNORECASE)


def pools_of(asked: Mapping[str, Any], link_bytes_per_s: float | None) -> Disaggregated | None:
    """The pools that the words name, or None. Raises QuestionError for words that cannot be."""
    if not asked.get("disagg"):
        lost = [f"--{name.replace('_', '-')}" for name in WORDS[1:] if asked.get(name)]
        if lost:
            raise QuestionError(f"{lost[0]} is about prefill and decode apart: say how many of each, for example --disagg 2P1D")
        return None
    found = _NAME.fullmatch(str(asked["disagg"]).strip())
    if not found:
        raise QuestionError(
            f"--disagg is {str(asked['disagg'])[:40]!r}: expected prefill and decode workers, for example 2P1D for two and one"
        )
    tp = count_of(asked["prefill_tp"], "prefill_tp") if asked.get("prefill_tp") else 0
    clients = count_of(asked["concurrency"], "concurrency") if asked.get("concurrency") else 0
    return Disaggregated(
        prefill_workers=int(found[1]), decode_workers=int(found[2]), clients=clients, prefill_tp=tp,
        link_bytes_per_s=link_bytes_per_s,
    )  # fmt: skip


def of_one_worker(pools: Disaggregated, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Words whose figure is of all decode workers, as one of them sees it: so many sequences at once."""
    return {"concurrency": -(-pools.clients // pools.decode_workers)} if asked.get("concurrency") else {}


def cards_of_a_worker(pools: Disaggregated, asked: Mapping[str, Any], cards: int) -> int:
    """Cards of one decode worker out of all that are named (1 or 0: as many as the layout takes).

    Raises QuestionError where the layout takes more cards than are named, or they do not divide among the workers.
    """
    if asked.get("pp") not in (None, 1, "1"):
        raise QuestionError("pipeline stages inside a worker are not modelled with --disagg: leave --pp out, use --tp")
    workers = pools.prefill_workers + pools.decode_workers
    if asked.get("tp") is None:
        if cards > 1 and (cards % workers or pools.prefill_tp):
            raise QuestionError(f"{cards} cards among {workers} workers: say the cards of a decode worker with --tp")
        return max(1, cards // workers)
    dp = count_of(asked["dp"], "dp") if "dp" in asked else 1
    tp = count_of(asked["tp"], "tp")
    taken = dp * (pools.prefill_workers * (pools.prefill_tp or tp) + pools.decode_workers * tp)
    if 1 < cards != taken:
        raise QuestionError(
            f"{pools.prefill_workers} prefill workers of {dp * (pools.prefill_tp or tp)} and "
            f"{pools.decode_workers} decode workers of {dp * tp} take {taken} cards, --gpu names {cards}: name {taken}, or none"
        )
    return dp * tp
