"""The planner's best layout beside published ones: how far a published layout is from the planner's best by the same law.

Rows: truth/training_speed.jsonl, full training in bf16 under Megatron or torchtitan, the fastest published layout of each (model,
card, cards, length, batch). "Within 5 %" says that the law's time of the published layout is at most 5 % above the law's time of
the planner's best. Both are asked as the planner asks: with the framework's own defaults but for gradients summed in 16 bits,
for what the row launches (CUDA graphs, how tokens reach experts, exchanges in chunks beside products) and for its generation of
attention: every layout is asked with these. What a row has beside that (another program's sharding, prediction heads) is left out
on both sides; "row / asked" says what that makes in the law's time. The reason names the terms that differ most, in shares of the
published layout's time.
"needed" is the memory forecast of the published layout, in GiB a card. Writes benchmarks/published_layouts.md.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, get_args

from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Term
from vramcast.models.inventory import Model
from vramcast.planning.plans.offers import offer_of
from vramcast.planning.plans.training import plan_training
from vramcast.planning.plans.training_layouts import Task
from vramcast.planning.verdict import training_fit
from vramcast.speed.training.job import Job, job_of, on_card
from vramcast.speed.training.step import StepTime, step_time
from vramcast.training.forecast import forecast_training
from vramcast.training.frameworks.common import attention_on
from vramcast.training.recipe.parts import Module
from vramcast.training.resolve import resolved
from vramcast.training.stage_layouts import balanced_layout
from vramcast.truth.judgement import Unexpressed
from vramcast.truth.rows.training_speed import card_of, job_of_row, measured_s, model_of, whole_row
from vramcast.workload import Parallel, Training

ROOT = Path(__file__).parents[1]
MOST_SECONDS = 3000.0
GIB = 2**30
MODULES = get_args(Module)


def published() -> dict[tuple, tuple]:
    """The fastest row of each question that a planner of bf16 layouts can be asked."""
    best: dict[tuple, tuple] = {}
    for line in (ROOT / "truth" / "training_speed.jsonl").read_text().splitlines():
        try:
            row = whole_row(json.loads(line))
            model, card = model_of(row), card_of(row)
            job = job_of_row(row, model)
            seconds = measured_s(row, job)
        except (VramcastError, Unexpressed, KeyError, TypeError, ValueError):
            continue
        if job.framework not in ("megatron", "torchtitan") or job.frozen or job.products != "bf16" or not model.id:
            continue
        key = (model.id, card.id, job.gpus, job.seq, job.rows * job.micro_batches * job.dp, job.framework)
        if key not in best or seconds < best[key][0]:
            best[key] = (seconds, job, model, card, row["id"])
    return best


def question_of(job: Job, model: Model, card: Accelerator) -> Training:
    """The published layout as the planner would ask it. Raises QuestionError for a layout that cannot be expressed."""
    layout = Parallel(
        tp=job.tp, pp=job.pp, vpp=job.vpp, cp=job.cp, ep=job.ep, dp=job.dp, sp=job.tp > 1 and job.framework == "megatron"
    )
    modules = tuple(name for name in job.repeated if name in MODULES)
    again = f"modules:{'+'.join(modules)}" if modules and job.framework == "megatron" else job.recomputed
    options = options_of(job)
    if job.ep > 1 and job.tp > 1 and job.framework == "megatron":
        options |= {"expert_tp": job.expert_tp}
    if job.pp > 1 and model.layers % (job.pp * job.vpp) and job.framework == "megatron":
        options = {**options, "stage_layout": balanced_layout(model.layers, job.pp, job.vpp)}
    return Training(
        model=model.id, framework=job.framework, seq=job.seq, micro_batch=job.rows, accumulate=job.micro_batches, gpus=job.gpus,
        gpu=card.id, checkpointing=again, parallel=layout, options=options,
        compile=True if job.framework == "torchtitan" else None,
    )  # fmt: skip


def options_of(job: Job) -> dict[str, Any]:
    """What a row asks of the recipe that every layout can have: how it reduces, launches, and reaches experts."""
    found: dict[str, Any] = {"reduce": "bfloat16"} if job.framework == "megatron" and job.reduce_bytes == 2 else {}
    found |= {"overlaps_tensor": True} if job.overlaps_tensor else {}
    if job.framework == "megatron":
        found |= {"graphed": job.graphed} if job.graphed else {}
        found |= {"dispatcher": job.dispatcher} if job.dispatcher != "alltoall" else {}
    return found | ({"attention": "unfused"} if job.attention == "unfused" else {})


def asked_time(question: Training, model: Model, card: Accelerator) -> tuple[StepTime, float, str]:
    """The law's step, the bytes that it needs and whether it fits, by the planner's own way."""
    recipe, _ = attention_on(card, resolved(question, model)[0])
    answer = forecast_training(question, model=model, card=card)
    job = on_card(job_of(question, recipe, model, trained_parameters=answer.trainable_parameters), recipe.precision.compute, card)
    needed = max(rank.needed_bytes for rank in answer.ranks)
    return step_time(job, model, card), needed, training_fit(answer, card).verdict


def words(layout: object) -> str:
    """The axes above one."""
    axes = [f"{name}{getattr(layout, name)}" for name in ("tp", "pp", "vpp", "cp", "ep") if getattr(layout, name) > 1]
    return " ".join(axes) or "dp"


def differing(own: Term, best: Term) -> str:
    """The two terms in which a published layout loses or wins most beside the planner's best."""
    found = {name: (of(own, name) - of(best, name)) / own.seconds for name in {t.name for t in (*own.terms, *best.terms)}}
    most = sorted(found.items(), key=lambda item: -abs(item[1]))[:3]
    return ", ".join(f"{name} {-share:+.0%}" for name, share in most if abs(share) >= _TOLD)


_TOLD = 0.01


def of(term: Term, name: str) -> float:
    """Seconds of a term of a step, 0 where it has none."""
    return next((inner.seconds for inner in term.terms if inner.name == name), 0.0)


def reason(job: Job, best: Training, ratio: float, verdict: str) -> str:
    """Why a published layout is not as the planner's best, by what differs."""
    if ratio < 0.995:
        told = {"no": "held not to fit", "tight": "held tight, and what surely fits comes before it"}
        return f"faster, and {told.get(verdict, 'not tried')}"
    if ratio <= 1.05:
        return ""
    own, other = best.parallel, job
    if best.micro_batch != job.rows and (own.tp, own.pp, own.ep) == (other.tp, other.pp, other.ep):
        return "the same cut with another micro-batch"
    same = (own.tp, own.pp, own.cp, own.ep) == (other.tp, other.pp, other.cp, other.ep)
    if same and best.checkpointing == "none" and job.recomputed != "none":
        return "the same cut with less computed again fits by the forecast"
    if same:
        return "the same cut with another micro-batch or other chunks"
    return "another cut is sooner by the law"


def main() -> int:
    """Ask and write."""
    begun, rows, within, asked, missed, only = time.monotonic(), [], 0, 0, 0, set(sys.argv[1:])
    for key, (measured, job, model, card, name) in sorted(published().items(), key=lambda item: (item[0][2], item[0][0])):
        if only and name not in only:
            continue
        if time.monotonic() - begun > MOST_SECONDS:
            break
        task = Task(model=model.id, offers=(offer_of(card, most=job.gpus),), frameworks=(job.framework,), seq=job.seq,
                    batch=key[4], exact=True, options=options_of(job))  # fmt: skip
        try:
            of_row = step_time(job, model, card).step_s
            own, needed, verdict = asked_time(question_of(job, model, card), model, card)
            plan = plan_training(task, model=model)
        except VramcastError as error:
            rows.append((name, model.id, f"{job.gpus} {card.id}", words(job), "", "", "", "", "", str(error)[:80]))
            continue
        if not plan.ranked:
            rows.append(
                (name, model.id, f"{job.gpus} {card.id}", words(job), "", "", "", "", f"{needed / GIB:.0f}", "nothing fits")
            )
            continue
        best, asked = plan.ranked[0], asked + 1
        ratio = own.step_s / best.step_s
        within += ratio <= 1.05
        missed += ratio < 0.995 and verdict == "fits"
        layout = f"{words(best.question.parallel)} mb{best.question.micro_batch} {best.question.checkpointing}"
        why = reason(job, best.question, ratio, verdict)
        why, room = (
            f"{why}: {differing(own.term, best.term)}" if ratio > 1.05 else why,
            f"{needed / GIB:.0f} of {card.visible_bytes / GIB:.0f}",
        )
        rows.append((name, model.id, f"{job.gpus} {card.id}", f"{words(job)} mb{job.rows} {job.recomputed}", layout,
                     f"{ratio:.2f}", f"{measured / of_row:.2f}", f"{of_row / own.step_s:.2f}", room, why))  # fmt: skip
    text = page(rows, f"{within} of {asked}", missed)
    if only:
        sys.stdout.write(text)
        return 0
    (ROOT / "benchmarks" / "published_layouts.md").write_text("# Published layouts beside the planner's\n\n" + text)
    sys.stdout.write(f"{within} of {asked} within 5 %\n")
    return 0


def page(rows: list[tuple[str, ...]], within: str, missed: int) -> str:
    """The table below what it shows: how many are within 5 %, and how many that surely fit are faster than the planner's."""
    head = (
        "| row | model | cards | published | planner's best | published / best | measured / law | row / asked | needed "
        "| reason |\n" + "|---" * 10 + "|\n"
    )
    told = (
        f"\n{within} published layouts are within 5 % of the planner's best. {missed} of those that surely fit "
        "by the forecast are faster than it.\n\n"
    )
    table = "".join("| " + " | ".join(row) + " |\n" for row in rows)
    return (__doc__ or "").split("\n\n", 1)[1] + told + head + table


if __name__ == "__main__":
    sys.exit(main())
