"""Layouts of a training step: model, pipeline, context and expert parallel ranks, sharding, recomputation, micro-batches."""

from collections.abc import Iterator
from typing import Any

import msgspec

from vramcast.models.inventory import Model
from vramcast.models.layers import Experts
from vramcast.planning.plans.offers import Offer
from vramcast.workload import Adapter, Parallel, Training

MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
_TP, _PP, _CP, _VPP, _EP = (1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4, 8), (2, 4), (1, 4, 8, 16, 32, 64)
_LONG = 16_384  # tokens from which context parallelism is worth trying
_LEAST_SEQ_OF_A_RANK = 2048
_SHARDED: tuple[dict[str, Any], ...] = ({}, {"fsdp": 2}, {"zero": 1}, {"zero": 2}, {"zero": 3})
PIPELINED = frozenset({"torchtitan", "megatron"})


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The training to plan. ``batch``: sequences of an optimizer step over all cards; ``tokens``: of the run.

    ``deadline_s``, ``budget_usd``: what the run may take, None for no limit. ``exact``: on all cards of an offer, not on fewer.
    """

    model: str
    offers: tuple[Offer, ...]
    frameworks: tuple[str, ...]
    seq: int
    batch: int
    tokens: int | None = None
    method: str = "full"
    adapter: Adapter | None = None
    optimizer: str | None = None
    deadline_s: float | None = None
    budget_usd: float | None = None
    offload: bool = False
    order: str = "time"
    exact: bool = False


class Structure(msgspec.Struct, frozen=True, kw_only=True):
    """All of a layout but its numbers: ``question`` has one sequence, no accumulation and one data-parallel rank."""

    question: Training
    offer: Offer
    words: str


def structures(task: Task, model: Model) -> Iterator[Structure]:
    """Every structure that may be worth asking; what a framework refuses is refused when it is asked."""
    for offer in task.offers:
        for framework in task.frameworks:
            for layout in parallel_layouts(task, model, framework, offer.most):
                for sharding in _shardings(framework):
                    for checkpointing in _policies(framework):
                        for offload in ((), ("optimizer",)) if task.offload else ((),):
                            question = _question(task, framework, layout, {**sharding, "offload": offload}, checkpointing)
                            question = msgspec.structs.replace(question, gpu=offer.card.id)
                            yield Structure(question=question, offer=offer, words=_words(question))


def counts_of(offer: Offer, structure: Structure, task: Task) -> list[tuple[int, int]]:
    """(cards, data-parallel ranks) to try: all that the offer allows, and every halving of it."""
    found, gpus, own = [], offer.most, structure.question.parallel
    least = 2 if structure.question.fsdp or structure.question.zero else 1  # one rank has nobody to share with
    while gpus >= 1:
        dp, rest = divmod(gpus, own.model_ranks)
        if dp >= least and not rest and task.batch % dp == 0 and dp % max(1, own.ep // own.tp) == 0:
            found.append((gpus, dp))
        gpus = 0 if task.exact else gpus // 2
    return found


def parallel_layouts(task: Task, model: Model, framework: str, most: int) -> Iterator[Parallel]:
    """The ways to cut the model over at most ``most`` cards under a framework, one data-parallel rank each."""
    experts = max((b.feedforward.routed for b in model.blocks if isinstance(b.feedforward, Experts)), default=0)
    for tp in _TP if framework in PIPELINED and task.method == "full" else (1,):
        for cp in (n for n in _CP if n == 1 or (task.seq >= _LONG and task.seq // n >= _LEAST_SEQ_OF_A_RANK)):
            for pp in _PP if framework in PIPELINED and task.method == "full" else (1,):
                if tp * cp * pp > most or pp > model.layers:
                    continue
                for ep in (n for n in _EP if n == 1 or (n <= experts and framework in PIPELINED and n <= most // pp)):
                    plain = Parallel(tp=tp, pp=pp, cp=cp, ep=ep, sp=tp > 1 and framework == "megatron")
                    yield plain
                    for vpp in _VPP if pp > 1 and framework == "megatron" else ():
                        if model.layers % (pp * vpp) == 0:
                            yield msgspec.structs.replace(plain, vpp=vpp)


def _shardings(framework: str) -> tuple[dict[str, Any], ...]:
    return ({},) if framework in PIPELINED else _SHARDED  # torchtitan shards by FSDP2, Megatron by its distributed optimizer


def _policies(framework: str) -> tuple[str, ...]:
    return ("none", "selective", "full") if framework in PIPELINED else ("none", "full")


def _question(task: Task, framework: str, layout: Parallel, sharding: dict[str, Any], checkpointing: str) -> Training:
    return Training(
        model=task.model, framework=framework, method=task.method, adapter=task.adapter, optimizer=task.optimizer, seq=task.seq,
        checkpointing=checkpointing, parallel=layout, compile=True if framework == "torchtitan" else None,
        tokens=task.tokens, **sharding,
    )  # fmt: skip


def _words(question: Training) -> str:
    """``torchtitan tp 8 pp 2, recompute full``."""
    own = question.parallel
    axes = " ".join(f"{name} {getattr(own, name)}" for name in ("tp", "pp", "vpp", "cp", "ep") if getattr(own, name) > 1)
    sharded = "fsdp" if question.fsdp else f"zero {question.zero}" if question.zero else ""
    uncut = "data parallel" if question.framework in PIPELINED else ""
    parts = [f"{question.framework} {axes or sharded or uncut}".strip()]
    parts += [f"recompute {question.checkpointing}"] if question.checkpointing != "none" else []
    parts += [f"{', '.join(question.offload)} on the host"] if question.offload else []
    return ", ".join(parts)
