"""``--emit``: only what starts the best choice of a plan, on standard output, ready for a file."""

import sys

from vramcast.errors import QuestionError
from vramcast.planning.plans.serving import ServingPlan
from vramcast.planning.plans.training import TrainingPlan
from vramcast.units import time_text


def emit_server(plan: ServingPlan, kind: str) -> int:
    """Write the best deployment's line, compose file or manifest. Raises QuestionError where nothing holds the job."""
    from vramcast.writing.serving.files import emitted

    if not plan.ranked:
        raise QuestionError(
            "nothing on these cards holds the job, so there is nothing to emit; without --emit it says what is short"
        )
    best = plan.ranked[0]
    level = "" if plan.meets else "; the service level is out of reach"
    told = (
        f"{best.gpus} x {best.setting.card.name}: TTFT {time_text(best.ttft_s)}, TPOT {time_text(best.tpot_s)}, "
        f"{best.tokens_per_s:,.0f} tokens/s by vramcast's forecast{level}"
    )
    sys.stdout.write(emitted(kind, best.question, replicas=best.replicas, told=told))
    return 0 if plan.meets else 1


def emit_training(plan: TrainingPlan, kind: str) -> int:
    """Write the best layout's configuration. Raises QuestionError where nothing holds the job."""
    from vramcast.models.reading import read_model
    from vramcast.writing.training.files import emitted

    if not plan.ranked:
        raise QuestionError(
            "nothing on these cards holds the job, so there is nothing to emit; without --emit it says what is short"
        )
    best = plan.ranked[0]
    told = f"{best.gpus} x {best.offer.card.name}: {time_text(best.step_s)} a step, MFU {best.mfu:.0%} by vramcast's forecast"
    told = "" if kind == "deepspeed" else told  # JSON has no comments
    sys.stdout.write(emitted(kind, best.question, read_model(best.question.model), told=told))
    return 0 if plan.meets else 1
