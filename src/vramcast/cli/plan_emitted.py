"""``--emit``: only what starts the best choice of a plan, on standard output, ready for a file."""

import sys

from vramcast.errors import QuestionError
from vramcast.planning.plans.serving import ServingPlan
from vramcast.planning.plans.training import TrainingPlan
from vramcast.units import time_text


def emit(plan: ServingPlan | TrainingPlan, kind: str) -> int:
    """Write what starts the best choice. Raises QuestionError where nothing holds the job."""
    if not plan.ranked:
        raise QuestionError(
            "nothing on these cards holds the job, so there is nothing to emit; without --emit it says what is short"
        )
    sys.stdout.write(_server(plan, kind) if isinstance(plan, ServingPlan) else _training(plan, kind))
    return 0 if plan.meets else 1


def _server(plan: ServingPlan, kind: str) -> str:
    """The best deployment's line, compose file or manifest."""
    from vramcast.writing.serving.files import emitted

    if kind == "workers":
        return _workers(plan)
    best = plan.ranked[0]
    level = "" if plan.meets else "; the service level is out of reach"
    told = (
        f"{best.gpus} x {best.setting.card.name}: TTFT {time_text(best.ttft_s)}, TPOT {time_text(best.tpot_s)}, "
        f"{best.tokens_per_s:,.0f} tokens/s by vramcast's forecast{level}"
    )
    return emitted(kind, best.question, replicas=best.replicas, told=told)


def _workers(plan: ServingPlan) -> str:
    """The lines of the best server with prefill and decode apart. Raises QuestionError where none was asked or holds the job."""
    from vramcast.writing.serving.workers import workers_of

    if not plan.apart:
        raise QuestionError("no prefill and decode workers stand in this plan: ask for them with --disagg, or name more cards")
    best = plan.apart[0]
    pools = best.pools
    times = f"TTFT {time_text(best.ttft_s)}, TPOT {time_text(best.tpot_s)}"
    told = f"# {best.gpus} x {best.setting.card.name}: {times} by vramcast's forecast"
    lines = workers_of(best.prefill, best.question, prefills=pools.prefill_workers, decodes=pools.decode_workers)
    return "\n".join([told, *lines, ""])


def _training(plan: TrainingPlan, kind: str) -> str:
    """The best layout's configuration."""
    from vramcast.models.reading import read_model
    from vramcast.writing.training.files import emitted

    best = plan.ranked[0]
    told = f"{best.gpus} x {best.offer.card.name}: {time_text(best.step_s)} a step, MFU {best.mfu:.0%} by vramcast's forecast"
    told = "" if kind == "deepspeed" else told  # JSON has no comments
    return emitted(kind, best.question, read_model(best.question.model), told=told)
