"""A plan as one JSON object."""

import sys
from typing import Any

import msgspec

from vramcast.cli.output import SCHEMA, as_rank
from vramcast.planning.plans.choices import Choice
from vramcast.planning.plans.reasons import why_lost
from vramcast.planning.plans.serving import ServingPlan


def print_plan(plan: ServingPlan) -> None:
    """Write the plan's object to standard output."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(as_object(plan)), indent=1) + b"\n")


def as_object(plan: ServingPlan) -> dict[str, Any]:
    """The plan's object: the question, the choices (``ranked``, ``front``, ``fewest``, ``by_weights``), what was assumed."""
    wanted = plan.wanted
    asked = {name: getattr(wanted, name) for name in wanted.__struct_fields__ if name != "offers"}
    offers = [{"gpu": o.card.name, "most": o.most, "usd_per_hour": o.usd_per_hour, "priced": o.priced} for o in wanted.offers]
    best = plan.ranked[0] if plan.ranked else None
    lost = [
        {**_choice(c), "lost": why_lost(c, best, wanted.order)} if best and c is not best else _choice(c) for c in plan.ranked
    ]
    return {
        "schema": SCHEMA,
        "plan": {
            "wanted": {**asked, "offers": offers},
            "meets": plan.meets and bool(plan.ranked),
            "ranked": lost,
            "front": [_choice(c) for c in plan.front],
            "fewest_cards": [_choice(c) for c in plan.fewest],
            "by_weights": [_choice(c) for c in plan.by_weights],
            "nearest": {"what": plan.nearest[0], "short_bytes": plan.nearest[1]} if plan.nearest else None,
            "longest_prompt_ttft_s": plan.longest_ttft_s,
            "tried": plan.tried,
            "structures": plan.structures,
            "refused": plan.refused,
        },
        "assumed": [{"name": a.name, "value": a.value, "because": a.because} for a in plan.assumed],
        "memory": {"per_gpu": [as_rank(rank) for rank in plan.memory]},
    }


def _choice(choice: Choice) -> dict[str, Any]:
    from vramcast.writing.serving.lines import command_of

    own = choice.setting
    return {
        "gpu": own.card.name, "gpus": choice.gpus, "engine": own.engine, "model": own.weights.model.id,
        "quant": own.weights.quant,
        "weights": own.weights.name, "bits": own.weights.bits, "kv_dtype": own.kv_dtype, "replicas": choice.replicas,
        "layout": own.layout.words, "parallel": {k: getattr(own.layout.parallel, k) for k in ("tp", "pp", "dp", "ep")},
        "attention_ranks": own.layout.attention_ranks, "options": choice.question.options,
        "needed_bytes": choice.needed_bytes, "capacity_bytes": own.card.visible_bytes, "verdict": choice.fit.verdict,
        "probability": choice.fit.probability, "ttft_s": choice.ttft_s, "tpot_s": choice.tpot_s, "request_s": choice.request_s,
        "tokens_per_s": choice.tokens_per_s, "usd_per_hour": choice.usd_per_hour, "priced": own.offer.priced,
        "usd_per_million_tokens": choice.usd_per_million, "power_w": choice.power_w,
        "command": " ".join(command_of(choice.question)),
    }  # fmt: skip
