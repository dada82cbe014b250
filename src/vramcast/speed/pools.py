"""Speed of a server with prefill and decode apart: its pools from a question, and the answer with the ledgers of both."""

import msgspec

from vramcast.errors import QuestionError
from vramcast.ledger import Assumption, Term
from vramcast.models.operations import Batch
from vramcast.serving.engines.base import Answer, answer_of
from vramcast.serving.layers import encodes_only
from vramcast.speed.answer import Speed, bound, checked_load, step_of, textbook, with_drafting, with_images
from vramcast.speed.closed_form import Steady
from vramcast.speed.disaggregation import Pools, SteadyPools, steady_pools
from vramcast.speed.load import Load
from vramcast.speed.placing import replicas_of
from vramcast.speed.transfer import REACHED, usual_rate
from vramcast.units import gib, time_text
from vramcast.workload import Disaggregated


def prefill_answer(answer: Answer) -> Answer:
    """The answer about memory of one prefill worker, which holds a prompt at a time; ``answer`` is about a decode worker."""
    resolved, layout = answer.resolved, answer.resolved.question.parallel
    tp = _asked(answer).prefill_tp or layout.tp
    other = msgspec.structs.replace(
        resolved.question, parallel=msgspec.structs.replace(layout, tp=tp), gpus=tp * layout.dp, concurrency=1
    )
    return answer_of(other, model=resolved.model, card=resolved.card, limits=False)


def _asked(answer: Answer) -> Disaggregated:
    pools = answer.resolved.question.traffic.pools
    assert pools is not None
    return pools


def pools_of(answer: Answer) -> tuple[Pools, tuple[Assumption, ...]]:
    """Both pools of the question, and what was assumed of the link between them.

    Raises QuestionError for an engine without a server of several workers, or replicas that share nothing inside a worker.
    """
    asked, question = _asked(answer), answer.resolved.question
    if encodes_only(answer.resolved.model):
        raise QuestionError("--disagg parts prompts from tokens, and this model makes vectors: leave it out")
    if question.engine not in ("vllm", "sglang", "tensorrt_llm"):
        raise QuestionError(f"{question.engine} has no prefill and decode workers: --disagg is for vllm, sglang and tensorrt_llm")
    if replicas_of(answer.resolved) > 1:
        raise QuestionError("--dp makes independent copies here: name them as workers instead, for example --disagg 2P4D")
    prefill, decode = step_of(prefill_answer(answer)), step_of(answer)
    cards = asked.prefill_workers * prefill.on.ranks + asked.decode_workers * decode.on.ranks
    rate, because = usual_rate(prefill.on, decode.on, cards)
    assumed: tuple[Assumption, ...] = ()
    if asked.link_bytes_per_s is None:
        assumed = (Assumption("transfer_link", f"{rate / 1e9:g} GB/s", f"{because}; --transfer-link says another"),)
    pools = Pools(
        prefill=prefill, decode=decode, prefill_workers=asked.prefill_workers, decode_workers=asked.decode_workers,
        rate_bytes_per_s=asked.link_bytes_per_s or rate,
    )  # fmt: skip
    return pools, assumed


def pools_speed(answer: Answer) -> Speed:
    """The speed of both pools under the question's load, by the closed form. Raises as pools_of and serving_speed."""
    pools, more = pools_of(answer)
    load, assumed = checked_load(answer, _asked(answer).clients or answer.resolved.question.concurrency or 1)
    load, untimed = with_drafting(pools.decode, load, answer.resolved.question.options)
    load, encoded = with_images(pools.prefill, load, answer.resolved.question.traffic)
    found = steady_pools(pools, load)
    decode = Batch(decodes=max(1.0, found.batch), decode_past=load.prompt + load.output / 2, decode_tokens=load.verified)
    return Speed(
        ttft=_ttft_term(pools, load, found, encoded),
        tpot=_tpot_term(pools, load, decode, found),
        tokens_per_s=found.requests_per_s * load.output,
        prefill_tokens_per_s=load.prompt * (1 - load.cached) / found.prefill_s,
        requests_per_s=found.requests_per_s,
        most_per_s=found.most_per_s,
        batch=found.batch * pools.decode_workers,
        cards=pools.cards,
        bound=bound(pools.decode, decode, _alone(found)),
        load=load,
        assumed=(*assumed, *more, *untimed),
    )


def _alone(found: SteadyPools) -> Steady:
    """The decode pool as a server that no prompt disturbs."""
    return Steady(
        ttft_s=found.ttft_s, tpot_s=found.tpot_s, requests_per_s=found.requests_per_s, batch=found.batch, decode_s=found.decode_s,
        prompt_s=0.0, prefill_s=found.prefill_s, busy=0.0, most_per_s=found.most_per_s,
    )  # fmt: skip


def _ttft_term(pools: Pools, load: Load, found: SteadyPools, encoded: tuple[Term, ...]) -> Term:
    """Way in, waiting, the prompt's own steps on a prefill worker, and its cache's way to the decode worker."""
    rule, handover = pools.decode.on.engine, pools.handover
    new = max(1.0, load.prompt * (1 - load.cached))
    batch = Batch(prefills=1, prefill_tokens=new, prefill_past=load.prompt * load.cached)
    prefill = pools.prefill.ledger(batch).renamed("prefill")
    twice = " twice, on the prefill and then on the decode worker" if handover.relayed else ""
    why = f"{time_text(rule.ingest_s)}{twice} + {new:,.0f} tokens x {time_text(rule.ingest_token_s)} ({rule.engine})"
    entry = Term(name="ingestion", seconds=found.entry_s, why=why, source=rule.source)
    moved = pools.transfer_s(load.prompt) * pools.rate_bytes_per_s * REACHED
    part = "the last chunk of " if handover.by_chunk else ""
    why = f"{part}{gib(moved)} of the busiest card / ({pools.rate_bytes_per_s / 1e9:g} GB/s x {REACHED:g})"
    transfer = Term(name="transfer", seconds=found.transfer_s, why=why, source=handover.source)
    parts = [entry, *encoded, prefill, transfer]
    waiting = found.ttft_s - sum(part.seconds for part in parts)
    if waiting > 1e-9:
        why = f"for {pools.prefill_workers} prefill workers, {found.busy:.0%} busy, and for the decode worker's running step"
        parts.insert(1, Term(name="waiting", seconds=waiting, why=why, source="speed/disaggregation.py"))
    return Term.total("ttft", parts, why=lambda: textbook(pools.prefill, batch, found.ttft_s))


def _tpot_term(pools: Pools, load: Load, decode: Batch, found: SteadyPools) -> Term:
    """A step of the decode worker; no prompt lengthens it."""
    ledger = pools.decode.ledger(decode).renamed("decode_step")
    parts = [ledger]
    if load.per_step > 1:
        why = f"a step yields {load.per_step:.2f} tokens of each sequence"
        parts.append(Term(name="drafting", seconds=found.decode_s - ledger.seconds, why=why, source="arXiv 2211.17192"))
    return Term.total("tpot", parts, why=lambda: textbook(pools.decode, decode, found.tpot_s))
