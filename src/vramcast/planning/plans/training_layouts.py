"""Layouts of a training step: model, pipeline, context and expert parallel ranks, sharding, recomputation, micro-batches."""

from collections.abc import Iterator
from typing import Any

import msgspec

from vramcast.models.inventory import Model
from vramcast.models.layers import Experts
from vramcast.planning.plans.offers import Offer
from vramcast.training.stage_layouts import balanced_layout
from vramcast.workload import Adapter, Parallel, Training

MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
_TP, _PP, _CP, _EP = (1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4, 8), (1, 4, 8, 16, 32, 64, 128)
_VPP, _VPP_TRIED = (2, 4, 3, 6, 8, 12), 3  # of those that divide, two small ones and the largest
_DEEPEST, _MANY = 64, 256  # stages that are tried where they divide both cards and layers; cards from which 32 stages are
_LONG = 16_384  # tokens from which context parallelism is worth trying
_LEAST_SEQ_OF_A_RANK = 2048
_SHARDED: tuple[dict[str, Any], ...] = ({}, {"fsdp": 2}, {"zero": 1}, {"zero": 2}, {"zero": 3})
PIPELINED = frozenset({"torchtitan", "megatron"})


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The training to plan. ``batch``: sequences of an optimizer step over all cards; ``tokens``: of the run.

    ``deadline_s``, ``budget_usd``: what the run may take, None for no limit. ``exact``: on all cards of an offer, not on fewer.
    ``options``: of the recipe, for all layouts alike.
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
    options: dict[str, Any] = {}


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
                    for checkpointing in _policies(framework, model):
                        for offload in ((), ("optimizer",)) if task.offload else ((),):
                            question = _question(task, framework, layout, {**sharding, "offload": offload}, checkpointing)
                            options = _options(task, framework, layout, model)
                            question = msgspec.structs.replace(question, gpu=offer.card.id, options=options)
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
            for pp in _stages(model, framework, most) if framework in PIPELINED and task.method == "full" else (1,):
                if tp * cp * pp > most or pp > model.layers or (model.layers % pp and 2 * pp > model.layers + 2):
                    continue
                for ep in (n for n in _EP if n == 1 or (n <= experts and framework in PIPELINED and n <= most // pp)):
                    plain = Parallel(tp=tp, pp=pp, cp=cp, ep=ep, sp=tp > 1 and framework == "megatron")
                    yield plain
                    for vpp in _chunks(model.layers, pp) if pp > 1 and framework == "megatron" else ():
                        yield msgspec.structs.replace(plain, vpp=vpp)


def _stages(model: Model, framework: str, most: int) -> tuple[int, ...]:
    """Stages to try: powers of two, and under Megatron numbers that divide both the cards and the layers."""
    if framework != "megatron":
        return _PP
    more = {n for n in range(3, _DEEPEST + 1) if most % n == 0 and (model.layers % n == 0 or (n == 32 and most >= _MANY))}
    return tuple(sorted({*_PP, *more}))


def _chunks(layers: int, pp: int) -> tuple[int, ...]:
    """Virtual stages to try: chunks alike by layers, or with embedding and loss as a layer each where stages are not."""
    counted = layers if layers % pp == 0 else layers + 2
    found = [vpp for vpp in _VPP if counted % (pp * vpp) == 0 or (counted > layers and vpp in (2, 4) and 2 * pp * vpp <= layers)]
    return tuple(dict.fromkeys([*found[: _VPP_TRIED - 1], *([max(found)] if found else [])]))


def _options(task: Task, framework: str, layout: Parallel, model: Model) -> dict[str, Any]:
    """The task's own; the layout of stages where they do not divide the layers; experts that no tensor ranks cut.

    Source of the last: Megatron-LM, megatron/core/transformer/moe/README.md: expert ranks rather than tensor ranks for experts.
    """
    found = dict(task.options)
    if layout.pp > 1 and model.layers % (layout.pp * layout.vpp):
        found["stage_layout"] = balanced_layout(model.layers, layout.pp, layout.vpp)
    if framework == "megatron" and layout.ep > 1 and layout.tp > 1:
        found.setdefault("expert_tp", 1)
    return found


def _shardings(framework: str) -> tuple[dict[str, Any], ...]:
    return ({},) if framework in PIPELINED else _SHARDED  # torchtitan shards by FSDP2, Megatron by its distributed optimizer


def _policies(framework: str, model: Model) -> tuple[str, ...]:
    """What is computed again, the least first. Megatron's modules are those of its published recipes for mixtures."""
    if framework == "megatron" and any(isinstance(block.feedforward, Experts) for block in model.blocks):
        return ("none", "selective", "modules:layernorm+moe_act", "full")
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
