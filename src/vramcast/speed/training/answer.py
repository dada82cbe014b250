"""The speed block of a training answer: step time, tokens per second, utilisation, and what a whole run takes."""

from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Interval
from vramcast.models.inventory import Model
from vramcast.speed.training.job import Job, job_of
from vramcast.speed.training.step import StepTime, step_time
from vramcast.training.forecast import TrainingForecast

BOARD_LOAD = 0.9  # training draws 85 to 100 % of a board's limit (SPEED, section 6)
CONVENTION = "model FLOPs: every product a token meets, causal half of attention once, no recomputation; dense peak of the format"
_DAY_S = 86_400


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole run takes: steps, time, energy, and money where a price is known."""

    tokens: int
    steps: int
    days: float
    gpu_hours: float
    energy_kwh: float
    usd: float | None = None
    usd_per_gpu_hour: float | None = None


def training_speed(answer: TrainingForecast, model: Model, card: Accelerator) -> StepTime:
    """The time of the answer's step. Raises UnmodelledError for a card without known rates, QuestionError for a world uneven."""
    job = job_of(answer.question, answer.recipe, model, trained_parameters=answer.trainable_parameters)
    return step_time(job, model, card)


def run_of(speed: StepTime, card: Accelerator, *, tokens: int, usd_per_gpu_hour: float | None = None) -> Run:
    """The run over so many tokens; prices are the user's, else the catalogue's dated public one."""
    steps = -(-tokens // speed.job.tokens)
    seconds = steps * speed.step_s
    hours = seconds * speed.job.gpus / 3600
    price = usd_per_gpu_hour if usd_per_gpu_hour is not None else card.cloud_usd_per_hour or None
    return Run(
        tokens=tokens,
        steps=steps,
        days=seconds / _DAY_S,
        gpu_hours=hours,
        energy_kwh=hours * card.tdp_w * BOARD_LOAD / 1000,
        usd=hours * price if price is not None else None,
        usd_per_gpu_hour=price,
    )


def as_block(speed: StepTime, bar: Interval | None, run: Run | None) -> dict[str, Any]:
    """The contract's object; ``terms`` stays a ledger for whoever draws it."""
    job: Job = speed.job
    intervals = {"step_s": bar.as_dict("s")} if bar else {}
    block: dict[str, Any] = {
        "step_s": speed.step_s,
        "tokens_per_step": job.tokens,
        "tokens_per_s": speed.tokens_per_s_per_gpu * job.gpus,
        "tokens_per_s_per_gpu": speed.tokens_per_s_per_gpu,
        "mfu": speed.mfu,
        "hfu": speed.hfu,
        "convention": CONVENTION,
        "bound": speed.bound,
        "intervals": intervals,
        "terms": (speed.term,),
    }
    return block | ({"run": msgspec.to_builtins(run)} if run else {})
