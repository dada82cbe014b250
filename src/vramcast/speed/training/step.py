"""The time of a training step as a ledger of seconds (what runs, what stays exposed, bubble, update), and its speed block.

The block says step time, tokens per second, utilisation, and what a whole run takes.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator, with_link
from vramcast.ledger import Interval, Term
from vramcast.models.inventory import Model
from vramcast.models.operations.counts import forward_flops, full_attention_flops
from vramcast.quantity import SECONDS, Quantity, named, seconds
from vramcast.speed.kernels.law import larger
from vramcast.speed.kernels.machine import card_class, machine
from vramcast.speed.training.job import OUTSIDE_LAYERS, Job, Network, job_of, network_of, on_card
from vramcast.speed.training.sustained import Sustained, kind_of, sustained
from vramcast.speed.training.work import Parts, parts_of
from vramcast.training.forecast import TrainingForecast
from vramcast.units import DAY_S

_KERNELS = "speed/kernels: laws fitted on measured kernels (docs/kernels.md)"
_SUSTAINED = "speed/training/sustained.json: fitted on published runs"
_PIPELINE = "arXiv 2104.04473, section 2.2: the other stages' passes over the chunks of a stage"
KINDS = ("products", "narrow", "experts", "scores", "streams", "scans", "unpacking")
# Launches of a layer whose projections each carry an adapter, against the same layer without: two small products, dropout, casts
# and a sum for each (PEFT, tuners/lora/layer.py Linear.forward).
ADAPTED = 2.0
# Seconds of Python for a layer under DeepSpeed's ZeRO-3: its modules fetch and release their parameters by hooks, forward and
# backward (deepspeed/runtime/zero/partitioned_param_coordinator.py): Qwen-7B's full runs against its LoRA runs (QwenLM/Qwen).
HOOKED_S = 0.011
# Launches of layers that run a forward beside another micro-batch's backward, part by part, against one after the other
# (Megatron-LM, megatron/core/models/common/model_chunk_schedule_plan.py): the middle of the five runs that the host decides, 1.7
# for Qwen3-30B-A3B, 1.05, 1.15, 1.3 and 1.5 for Qwen3-235B (Megatron-Bridge, docs/performance-summary-archive.md, containers
# 25.09 to 26.02; Megatron-MoE-ModelZoo, best_practice/Qwen3).
INTERLEAVED = 1.3
PADDED = 0.5  # of the routing's launches where capacities are fixed: Qwen3-30B-A3B on 8 B200, container 25.09 against 25.11
RELEASED = 0.95  # of a launch's host time that replaying it from a CUDA graph saves


class Loads(msgspec.Struct, frozen=True, kw_only=True):
    """A job and its parts as plain numbers (or arrays, one entry a run). Flags are 0 or 1.

    ``forward``, ``backward``, ``again``: seconds by kind of kernel, KINDS all named; ``adapted``: share of the products that
    carry an adapter; the rest as ``Parts`` and ``Job`` have it.
    """

    forward: dict[str, Any]
    backward: dict[str, Any]
    again: dict[str, Any]
    layers: Any
    routed: Any
    gather: Any
    scatter: Any
    tensor: Any
    context: Any
    expert: Any
    stages: Any
    sync: Any
    update: Any
    host_update: Any
    micro_batches: Any
    idle: Any
    full: Any
    gathers: Any
    regathers: Any
    adapted: Any
    hooked: Any
    graphed: Any
    waits: Any
    padded: Any
    overlaps_experts: Any
    overlaps_tensor: Any
    waits_for_stages: Any


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
    launch_share: float = 0.0

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
    own = factors or sustained(kind_of(job.framework, compiled=job.compiled), job.attention, card_class(card))
    parts = slowest(job, model, card, own, network=network)
    term = ledger(job, parts, own)
    forward = forward_flops(model, seq=job.seq) * job.rows * job.micro_batches * job.dp
    again = 0.5 if "half_of_products" in job.repeated else _scores_share(model, job.seq)
    extra = {"none": 0.0, "selective": again, "full": job.repeated_share}[job.recomputed]
    back = 1.0 if job.frozen else 2.0
    return StepTime(
        job=job,
        term=term,
        model_flops=forward * (1 + back),
        hardware_flops=forward * (1 + back + extra),
        peak=machine(card, "fp32" if job.products in ("fp32", "tf32") else "bf16").flops_per_s,
        factors=own,
        bound=max(term.terms, key=lambda t: t.seconds).name,
        launch_share=launch_s(job, loads_of(job, parts), own) / term.seconds,
    )


def slowest(job: Job, model: Model, card: Accelerator, own: Sustained, *, network: Network | None = None) -> Parts:
    """The parts of the stage that the others wait for under these factors."""
    net = network or network_of(card)
    return parts_of(job, model, card, net, length=lambda parts: sum(micro_batch(loads_of(job, parts), own).values()))


def _scores_share(model: Model, seq: int) -> float:
    return 0.5 * full_attention_flops(model, seq=seq) / max(1.0, forward_flops(model, seq=seq))


def ledger(job: Job, parts: Parts, own: Sustained) -> Term:
    """The parts put together: what a micro-batch runs and exposes, times micro-batches and bubble, then the step's end."""
    on = loads_of(job, parts)
    running = micro_batch(on, own)
    passes = named(job.micro_batches, "micro-batches")
    works = {"forward": parts.forward, "backward": parts.backward, "recomputation": parts.again}
    terms = [_times(_kernels(name, work, own), passes) for name, work in works.items() if work]
    for name, why in _reasons(job, on, own).items():
        if running[name] > 0:
            terms.append(_times(Term(name=name, seconds=running[name], why=why, source=_KERNELS), passes))
    if job.pp > 1:
        idle = named(on.idle, "passes of the other stages, cut into chunks")
        all_of_it = seconds(sum(running.values()), "of a micro-batch")
        terms.append(Term(name="bubble", amount=idle * all_of_it, source=_PIPELINE))
    ends = once(on, own, backward=running["backward"] + running["recomputation"])
    terms += [Term(name=name, seconds=ends[name], why=why, source=_KERNELS) for name, why in _ENDS.items() if ends[name] > 0]
    return Term.total("step", terms, unit=SECONDS)


_ENDS = {
    "gradient_sync": "gradients over data-parallel ranks, beyond the last micro-batch's backward",
    "optimizer": "bytes of the update over 0.7 of the bandwidth",
    "offloaded_update": "gradients down, weights up, Adam at the host's memory rate",
}


def _reasons(job: Job, on: Loads, own: Sustained) -> dict[str, str]:
    """Why each exchange of a micro-batch takes its time, and why the card waits for the host."""
    passes = f"{2 + on.full:g}"
    part = f", {own.exposed:.0%} of it beside no product" if job.overlaps_tensor else ""
    also = f", {own.exposed:.0%} of it beside no other micro-batch" if job.overlaps_experts else ""
    waits = f"{on.layers:,.0f} layers' launches take {host(on, own) * 1e3:,.1f} ms, the card less"
    return {
        "tensor_parallel": f"{passes} x a pass's all-reduces{part}",
        "context_parallel": "the ring's keys and values beyond the time of attention",
        "expert_parallel": f"{passes} x two all-to-alls a layer{also}",
        "pipeline_sends": "activations and their gradients to the next stage",
        "data_parallel": "gathers and scatters beyond what hides them, the first and last layer, and the slowdown of overlap",
        "host": waits,
    }


def _kernels(name: str, work: dict[str, float], own: Sustained) -> Term:
    """A pass by kind of kernel, each with its sustained factor."""
    inner = [
        Term(
            name=kind,
            amount=seconds(size, "by its laws") * named(factor(kind, own), "sustained"),
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
    job = on_card(job, answer.recipe.precision.compute, card)
    return step_time(job, model, with_link(card, answer.question.link_bytes_per_s))


def run_of(speed: StepTime, card: Accelerator, *, tokens: int, usd_per_gpu_hour: float | None = None) -> Run:
    """The run over so many tokens; prices are the user's, else the catalogue's dated public one."""
    steps = -(-tokens // speed.job.tokens)
    seconds = steps * speed.step_s
    hours = seconds * speed.job.gpus / 3600
    price = usd_per_gpu_hour if usd_per_gpu_hour is not None else card.cloud_usd_per_hour or None
    return Run(
        tokens=tokens,
        steps=steps,
        days=seconds / DAY_S,
        gpu_hours=hours,
        energy_kwh=hours * card.tdp_w * BOARD_LOAD / 1000,
        usd=hours * price if price is not None else None,
        usd_per_gpu_hour=price,
    )


def as_block(speed: StepTime, bar: Interval, run: Run | None, unknowns: Iterable[msgspec.Struct] = ()) -> dict[str, Any]:
    """The contract's object; ``terms`` stays a ledger for whoever draws it, ``unknowns`` is what its bar is wider for."""
    job: Job = speed.job
    block: dict[str, Any] = {
        "step_s": speed.step_s,
        "tokens_per_step": job.tokens,
        "tokens_per_s": speed.tokens_per_s_per_gpu * job.gpus,
        "tokens_per_s_per_gpu": speed.tokens_per_s_per_gpu,
        "mfu": speed.mfu,
        "hfu": speed.hfu,
        "convention": CONVENTION,
        "bound": speed.bound,
        "intervals": {"step_s": bar.as_dict("s")},
        "unknowns": [msgspec.to_builtins(one) for one in unknowns],
        "terms": (speed.term,),
    }
    return block | ({"run": msgspec.to_builtins(run)} if run else {})


def loads_of(job: Job, parts: Parts) -> Loads:
    """The numbers of one job."""

    def every(work: dict[str, float]) -> dict[str, float]:
        return {kind: work.get(kind, 0.0) for kind in KINDS}

    own = ("layers", "routed", "gather", "scatter", "tensor", "context", "expert", "stages", "sync", "update", "host_update")
    return Loads(
        forward=every(parts.forward),
        backward=every(parts.backward),
        again=every(parts.again),
        **{name: getattr(parts, name) for name in own},
        micro_batches=job.micro_batches,
        idle=parts.idle,
        full=job.repeated_share * (job.recomputed == "full"),
        gathers=float(job.gathers),
        regathers=float(job.gathers and job.regathers),
        adapted=job.frozen * (len({*job.adapted} - OUTSIDE_LAYERS) / 4 if job.adapted else 1.0),
        hooked=float(job.sharding == "zero3"),
        graphed=job.graphed,
        padded=float(job.dispatcher == "padded"),
        waits=float(job.dispatcher == "alltoall" and job.ep > 1),
        overlaps_experts=float(job.overlaps_experts),
        overlaps_tensor=float(job.overlaps_tensor),
        waits_for_stages=float(job.vpp == 1),
    )


def kernels(work: dict[str, Any], own: Sustained) -> Any:
    """Seconds of a pass's kernels under sustained factors."""
    return sum(size * factor(kind, own) for kind, size in work.items())


def factor(kind: str, own: Sustained) -> Any:
    """The sustained factor of a kind of kernel; unpacking takes its bytes' time."""
    return 1.0 if kind == "unpacking" else getattr(own, kind)


def micro_batch(on: Loads, own: Sustained) -> dict[str, Any]:
    """Seconds of one micro-batch on the slowest stage, by term: kernels, exchanges that stay exposed, waiting for the host."""
    forward, backward, again = (kernels(work, own) for work in (on.forward, on.backward, on.again))
    passes = 2.0 + on.full
    scores = (on.forward["scores"] + on.backward["scores"]) * own.scores
    terms = {
        "forward": forward,
        "backward": backward,
        "recomputation": again,
        "tensor_parallel": on.tensor * passes * (1 - on.overlaps_tensor * (1 - own.exposed)),
        "context_parallel": larger(0.0, on.context * 3 - scores),
        "expert_parallel": on.expert * passes * (1 - on.overlaps_experts * (1 - own.exposed)),
        "pipeline_sends": on.stages * 2 * (own.exposed + on.waits_for_stages * (1 - own.exposed)),
        "data_parallel": on.gathers * _sharding(on, own, forward=forward, backward=backward + again),
    }
    # An alltoall's host reads back how many tokens go where; no kernel hides what it launches after that. Backward
    # knows already.
    behind = on.waits * on.routed * own.routed_s * 0.5 * (1 + on.full) * (1 - RELEASED * on.graphed)
    return terms | {"host": larger(behind, host(on, own) - sum(terms.values()))}


def host(on: Loads, own: Sustained) -> Any:
    """Seconds of Python that launch one micro-batch: layers, their adapters, their experts' sorting, ZeRO-3's hooks."""
    launches = on.layers * own.host_s * (1 + on.adapted * (ADAPTED - 1)) + on.routed * own.routed_s * (
        1 - on.padded * (1 - PADDED)
    )
    launches *= 1 + on.overlaps_experts * (INTERLEAVED - 1)
    return launches * (1 + 0.5 * on.full) * (1 - RELEASED * on.graphed) + on.layers * on.hooked * HOOKED_S


def launch_s(job: Job, on: Loads, own: Sustained) -> float:
    """Seconds of a step in which the host launches kernels, were they launched one after the other."""
    return float(host(on, own) * (job.micro_batches + on.idle))


def _sharding(on: Loads, own: Sustained, *, forward: Any, backward: Any) -> Any:
    """Gathers hide behind the layer before, scatters behind the layer after; the first and the last of them cannot."""
    again = on.regathers * on.gather
    first = (on.gather + on.scatter) / larger(1.0, on.layers)
    beyond = larger(0.0, on.gather - forward) + larger(0.0, again + on.scatter - backward)
    moved = on.gather + again + on.scatter
    covered = forward + backward
    return beyond + first + own.exposed * (covered + moved - larger(covered, moved))


def once(on: Loads, own: Sustained, *, backward: Any) -> dict[str, Any]:
    """Seconds once a step: gradients that the last backward does not hide, the update on card or host."""
    hidden = backward + on.sync - larger(backward, on.sync)
    return {
        "gradient_sync": larger(0.0, on.sync - backward) + own.exposed * hidden,
        "optimizer": on.update,
        "offloaded_update": on.host_update,
    }


def step_seconds(on: Loads, own: Sustained) -> Any:
    """The whole step: micro-batches and the pipeline's idle passes, then what comes once."""
    running = micro_batch(on, own)
    ends = once(on, own, backward=running["backward"] + running["recomputation"])
    return sum(running.values()) * (on.micro_batches + on.idle) + sum(ends.values())
