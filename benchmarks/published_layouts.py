"""The planner's best layout beside published ones: how far a published layout is from the planner's best by the same law.

Rows: truth/training_speed.jsonl, full training in bf16 under Megatron or torchtitan, the fastest published layout of each (model,
card, cards, length, batch). "Within 5 %" says that the law's time of the published layout is at most 5 % above the law's time of
the planner's best. Writes benchmarks/published_layouts.md.
"""

import json
import sys
import time
from pathlib import Path

from vramcast.errors import VramcastError
from vramcast.planning.plans.offers import offer_of
from vramcast.planning.plans.training import plan_training
from vramcast.planning.plans.training_layouts import Task
from vramcast.speed.training.step import step_time
from vramcast.truth.judgement import Unexpressed
from vramcast.truth.rows.training_speed import card_of, job_of_row, measured_s, model_of, whole_row

ROOT = Path(__file__).parents[1]
MOST_SECONDS = 1500.0


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


def words(layout: object) -> str:
    """The axes above one."""
    axes = [f"{name}{getattr(layout, name)}" for name in ("tp", "pp", "vpp", "cp", "ep") if getattr(layout, name) > 1]
    return " ".join(axes) or "dp"


def main() -> int:
    """Ask and write."""
    begun, rows, within, asked, missed = time.monotonic(), [], 0, 0, 0
    for key, (measured, job, model, card, name) in sorted(published().items(), key=lambda item: (item[0][2], item[0][0])):
        if time.monotonic() - begun > MOST_SECONDS:
            break
        task = Task(model=model.id, offers=(offer_of(card, most=job.gpus),), frameworks=(job.framework,), seq=job.seq,
                    batch=key[4], exact=True)  # fmt: skip
        try:
            own = step_time(job, model, card).step_s
            plan = plan_training(task, model=model)
        except VramcastError as error:
            rows.append((name, model.id, f"{job.gpus} {card.id}", words(job), "", "", "", str(error)[:80]))
            continue
        if not plan.ranked:
            rows.append((name, model.id, f"{job.gpus} {card.id}", words(job), "", "", "", "nothing fits by the forecast"))
            continue
        best, asked = plan.ranked[0], asked + 1
        ratio = own / best.step_s
        within += ratio <= 1.05
        missed += ratio < 0.95
        layout = f"{words(best.question.parallel)} mb{best.question.micro_batch} {best.question.checkpointing}"
        rows.append((name, model.id, f"{job.gpus} {card.id}", f"{words(job)} mb{job.rows} {job.recomputed}", layout,
                     f"{ratio:.2f}", f"{measured / own:.2f}", ""))  # fmt: skip
    head = (
        "| row | model | cards | published | planner's best | published / best | measured / law | note |\n" + "|---" * 8 + "|\n"
    )
    text = (
        (__doc__ or "").split("\n\n", 1)[1]
        + f"\n{within} of {asked} published layouts are within 5 % of the planner's best. {missed} of them "
        "are more than 5 % faster than it by the law itself: the planner does not try them, or holds that they do not fit.\n\n"
        + head
    )
    text += "".join("| " + " | ".join(row) + " |\n" for row in rows)
    (ROOT / "benchmarks" / "published_layouts.md").write_text("# Published layouts beside the planner's\n\n" + text)
    sys.stdout.write(f"{within} of {asked} within 5 %\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
