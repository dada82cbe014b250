"""The time of a training step as a ledger of seconds (what runs, what stays exposed, bubble, update), and its speed block.

The block says step time, tokens per second, utilisation, and what a whole run takes.
"""

from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Interval, Term
from vramcast.models.inventory import Model
from vramcast.models.operations.counts import forward_flops, full_attention_flops
from vramcast.quantity import SECONDS, Quantity, named, seconds
from vramcast.speed.kernels.machine import card_class, machine
from vramcast.speed.training.job import Job, Network, job_of, network_of
from vramcast.speed.training.sustained import Sustained, kind_of, sustained
from vramcast.speed.training.work import Parts, parts_of
from vramcast.training.forecast import TrainingForecast

_ADAPTED = 2.0  # launches of a layer whose projections each carry an adapter: two small products, dropout, casts, a sum (PEFT)
_KERNELS = "speed/kernels: laws fitted on measured kernels (docs/kernels.md)"
_SUSTAINED = "speed/training/sustained.json: fitted on published runs"
_PIPELINE = "arXiv 2104.04473, section 2.2: (p - 1) / v passes of idle stages"


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """A step's time. ``term``: the ledger in seconds. ``bound``: what takes most. ``job``, ``factors``: what it comes from.

    ``model_flops``: of the step over all ranks, attention's causal half counted once, recomputation not; ``hardware_flops``: with
    recomputation. ``peak``: dense FLOP/s of a card in the products' format.
    """

    job: Job
    term: Term
    model_flops: float
    hardware_flops: float
    peak: float
    factors: Sustained
    bound: str

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.term.seconds

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Tokens of the step over its time and its cards."""
        return self.job.tokens / self.step_s / self.job.gpus

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation: causal attention, no recomputation, dense peak of bf16 (or of the format of fp32 runs)."""
        return self.model_flops / self.step_s / self.job.gpus / self.peak

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilisation: with what is computed again."""
        return self.hardware_flops / self.step_s / self.job.gpus / self.peak


def step_time(
    job: Job, model: Model, card: Accelerator, *, network: Network | None = None, factors: Sustained | None = None
) -> StepTime:
    """The step's ledger. Raises UnmodelledError for a card without known rates."""
    own = factors or sustained(kind_of(job.framework, compiled=job.compiled), card_class(card))
    parts = parts_of(job, model, card, network or network_of(card))
    term = ledger(job, parts, own)
    forward = forward_flops(model, seq=job.seq) * job.rows * job.micro_batches * job.dp
    extra = {"none": 0.0, "selective": _scores_share(model, job.seq), "full": 1.0}[job.recomputed]
    back = 1.0 if job.frozen else 2.0
    return StepTime(
        job=job,
        term=term,
        model_flops=forward * (1 + back),
        hardware_flops=forward * (1 + back + extra),
        peak=machine(card, "fp32" if job.products in ("fp32", "tf32") else "bf16").flops_per_s,
        factors=own,
        bound=max(term.terms, key=lambda t: t.seconds).name,
    )


def _scores_share(model: Model, seq: int) -> float:
    return 0.5 * full_attention_flops(model, seq=seq) / max(1.0, forward_flops(model, seq=seq))


def ledger(job: Job, parts: Parts, own: Sustained) -> Term:
    """The parts put together: what a micro-batch runs and exposes, times micro-batches and bubble, then the step's end."""
    passes = named(job.micro_batches, "micro-batches")
    idle = named(job.pp - 1, "stages wait") / named(job.vpp, "chunks")
    running = _running(job, parts, own)
    once = sum(t.seconds for t in running)
    terms = [_times(t, passes) for t in running]
    if job.pp > 1:
        terms.append(Term(name="bubble", amount=idle * seconds(once, "of a micro-batch"), source=_PIPELINE))
    terms += _at_the_end(parts, own, backward=sum(t.seconds for t in running if t.name in ("backward", "recomputation")))
    return Term.total("step", terms, unit=SECONDS)


def _running(job: Job, parts: Parts, own: Sustained) -> list[Term]:
    """One micro-batch on the slowest stage: forward, backward, recomputation, exposed communication, waiting for the host."""
    forward, backward, again = (_sustained(work, own) for work in (parts.forward, parts.backward, parts.again))
    twice = 3.0 if job.recomputed == "full" else 2.0
    terms = [
        _kernels("forward", parts.forward, own),
        _kernels("backward", parts.backward, own),
        *([_kernels("recomputation", parts.again, own)] if again else []),
    ]
    ring = max(0.0, parts.context * 3 - (parts.forward.get("scores", 0.0) + parts.backward.get("scores", 0.0)) * own.scores)
    experts = parts.expert * twice * (own.exposed if job.overlaps_experts else 1.0)
    sharded = _sharding(job, parts, own, forward=forward, backward=backward + again)
    exposed = {
        "tensor_parallel": (parts.tensor * twice, f"{twice:g} x a pass's all-reduces"),
        "context_parallel": (ring, "the ring's keys and values beyond the time of attention"),
        "expert_parallel": (experts, f"{twice:g} x two all-to-alls a layer"),
        "pipeline_sends": (parts.stages * 2 * own.exposed, "activations and their gradients to the next stage"),
        "data_parallel": sharded,
    }
    terms += [Term(name=name, seconds=size, why=why, source=_KERNELS) for name, (size, why) in exposed.items() if size > 0]
    host = parts.layers * own.host_s * (1 + 0.5 * (job.recomputed == "full")) * (_ADAPTED if job.frozen else 1)
    busy = sum(t.seconds for t in terms)
    if host > busy:
        why = f"{parts.layers:,.0f} layers x {own.host_s * 1e6:,.0f} us of launches, less {busy * 1e3:,.1f} ms that run meanwhile"
        terms.append(Term(name="host", seconds=host - busy, why=why, source=_SUSTAINED))
    return terms


def _sharding(job: Job, parts: Parts, own: Sustained, *, forward: float, backward: float) -> tuple[float, str]:
    """Gathers hide behind the layer before, scatters behind the layer after; the first and the last of them cannot."""
    if not job.gathers:
        return 0.0, ""
    again = parts.gather if job.regathers else 0.0
    first = (parts.gather + parts.scatter) / max(1.0, parts.layers)
    beyond = max(0.0, parts.gather - forward) + max(0.0, again + parts.scatter - backward)
    slowed = own.exposed * min(forward + backward, parts.gather + again + parts.scatter)
    return (
        beyond + first + slowed,
        "gathers and scatters beyond what hides them, the first and last layer, and the slowdown of overlap",
    )


def _at_the_end(parts: Parts, own: Sustained, *, backward: float) -> list[Term]:
    """Once a step: gradients that the last backward does not hide, the update on card or host."""
    late = max(0.0, parts.sync - backward) + own.exposed * min(parts.sync, backward)
    ends = {
        "gradient_sync": (late, "gradients over data-parallel ranks, beyond the last micro-batch's backward"),
        "optimizer": (parts.update, "bytes of the update over 0.7 of the bandwidth"),
        "offloaded_update": (parts.host_update, "gradients down, weights up, Adam at the host's memory rate"),
    }
    return [Term(name=name, seconds=size, why=why, source=_KERNELS) for name, (size, why) in ends.items() if size > 0]


def _sustained(work: dict[str, float], own: Sustained) -> float:
    return sum(size * _factor(kind, own) for kind, size in work.items())


def _factor(kind: str, own: Sustained) -> float:
    factor: float = getattr(own, kind)
    return factor


def _kernels(name: str, work: dict[str, float], own: Sustained) -> Term:
    """A pass by kind of kernel, each with its sustained factor."""
    inner = [
        Term(
            name=kind,
            amount=seconds(size, "by its laws") * named(_factor(kind, own), "sustained"),
            source=f"{_KERNELS}; {_SUSTAINED}",
        )
        for kind, size in work.items()
        if size > 0
    ]
    return Term.total(name, inner, unit=SECONDS)


def _times(term: Term, passes: Quantity) -> Term:
    """The same for every micro-batch."""
    inner = tuple(_times(t, passes) for t in term.terms)
    return Term(name=term.name, amount=term.amount * passes, source=term.source, terms=inner)


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
