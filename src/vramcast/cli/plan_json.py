"""A plan as one JSON object."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from vramcast.cli.output import SCHEMA, as_rank
from vramcast.planning.plans.choices import Choice
from vramcast.planning.plans.offers import Offer
from vramcast.planning.plans.plan import Plan
from vramcast.planning.plans.reasons import why_lost
from vramcast.planning.plans.serving import ServingPlan
from vramcast.planning.plans.training import Trained, TrainingPlan


def print_plan(plan: ServingPlan | TrainingPlan) -> None:
    """Write the plan's object to standard output."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(plan.to_dict()), indent=1) + b"\n")


def training_object(plan: TrainingPlan) -> dict[str, Any]:
    """The plan's object: the task, the layouts (``ranked``, ``front``, ``fewest_cards``), what was assumed."""
    own = {
        "task": _asked(plan.task, plan.task.offers),
        "meets": plan.meets and bool(plan.ranked),
        "ranked": [_trained(one) for one in plan.ranked],
        "front": [_trained(one) for one in plan.front],
        "fewest_cards": [_trained(one) for one in plan.fewest],
    }
    return _whole(plan, own)


def _asked(asked: msgspec.Struct, offers: Sequence[Offer]) -> dict[str, Any]:
    """What was asked, field by field, and the cards that were offered."""
    fields = {name: msgspec.to_builtins(getattr(asked, name)) for name in asked.__struct_fields__ if name != "offers"}
    told = [{"gpu": o.card.name, "most": o.most, "usd_per_hour": o.usd_per_hour, "priced": o.priced} for o in offers]
    return {**fields, "offers": told}


def _whole(plan: Plan, own: dict[str, Any]) -> dict[str, Any]:
    """The object of a plan: its own fields, then what every plan tells."""
    nearest = {"what": plan.nearest[0], "short_bytes": plan.nearest[1]} if plan.nearest else None
    searched = {
        "cards_without_job": plan.without, "nearest": nearest, "tried": plan.tried, "structures": plan.structures,
        "refused": plan.refused,
    }  # fmt: skip
    return {
        "schema": SCHEMA,
        "plan": {**own, **searched},
        "assumed": [{"name": a.name, "value": a.value, "because": a.because} for a in plan.assumed],
        "memory": {"per_gpu": [as_rank(rank) for rank in plan.memory]},
    }


def _trained(one: Trained) -> dict[str, Any]:
    own = one.question
    layout = {k: getattr(own.parallel, k) for k in ("tp", "pp", "vpp", "cp", "ep", "dp", "sp")}
    return {
        "gpu": one.offer.card.name, "gpus": own.gpus, "framework": own.framework, "layout": one.words, "parallel": layout,
        "micro_batch": own.micro_batch, "accumulate": own.accumulate, "checkpointing": own.checkpointing, "zero": own.zero,
        "fsdp": own.fsdp, "offload": own.offload, "needed_bytes": one.needed_bytes,
        "capacity_bytes": one.offer.card.visible_bytes, "verdict": one.fit.verdict, "probability": one.fit.probability,
        "step_s": one.step_s, "mfu": one.mfu, "tokens_per_s": one.tokens_per_s, "bound": one.bound, "days": one.days,
        "usd": one.usd, "priced": one.offer.priced, "power_w": one.power_w,
    }  # fmt: skip


def serving_object(plan: ServingPlan) -> dict[str, Any]:
    """The plan's object: the service, the choices (``ranked``, ``front``, ``fewest_cards``, ``by_weights``), what was assumed."""
    best = plan.ranked[0] if plan.ranked else None
    lost = [
        {**_choice(c), "lost": why_lost(c, best, plan.wanted.order)} if best and c is not best else _choice(c)
        for c in plan.ranked
    ]
    own = {
        "wanted": _asked(plan.wanted, plan.wanted.offers),
        "meets": plan.meets and bool(plan.ranked),
        "ranked": lost,
        "front": [_choice(c) for c in plan.front],
        "fewest_cards": [_choice(c) for c in plan.fewest],
        "by_weights": [_choice(c) for c in plan.by_weights],
        "longest_prompt_ttft_s": plan.longest_ttft_s,
        "disaggregated": [
            {**_choice(c), "prefill_workers": c.pools.prefill_workers, "decode_workers": c.pools.decode_workers}
            for c in plan.apart
        ],
    }
    return _whole(plan, own)


def _choice(choice: Choice) -> dict[str, Any]:
    from vramcast.writing.serving.lines import command_of

    own = choice.setting
    return {
        "gpu": own.card.name, "gpus": choice.gpus, "engine": own.engine, "model": own.weights.model.id,
        "quant": own.weights.quant,
        "weights": own.weights.name, "bits": own.weights.bits, "kv_dtype": own.cache or None, "replicas": choice.replicas,
        "layout": own.layout.words, "parallel": {k: getattr(own.layout.parallel, k) for k in ("tp", "pp", "dp", "ep")},
        "attention_ranks": own.layout.attention_ranks, "options": choice.question.options,
        "needed_bytes": choice.needed_bytes, "capacity_bytes": own.card.visible_bytes, "verdict": choice.fit.verdict,
        "probability": choice.fit.probability, "ttft_s": choice.ttft_s, "tpot_s": choice.tpot_s, "request_s": choice.request_s,
        "tokens_per_s": choice.tokens_per_s, "usd_per_hour": choice.usd_per_hour, "priced": own.offer.priced,
        "usd_per_million_tokens": choice.usd_per_million, "power_w": choice.power_w,
        "command": " ".join(line.strip(" \\") for line in command_of(choice.question)),
    }  # fmt: skip
