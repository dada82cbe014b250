"""A training plan as people read it: the best layout and what binds it, what lost, money against time, the fewest cards."""

from vramcast.cli.pages.page import Page
from vramcast.cli.pages.plan_parts import (
    bar,
    ending,
    fact,
    lost_lines,
    needed_of,
    nothing_holds,
    power_text,
    verdict_line,
    without_job,
)
from vramcast.planning.plans.training import Trained, TrainingPlan
from vramcast.units import DAY_S, count, time_text

_MOST_TERMS = 5


def training_plan_page(plan: TrainingPlan, *, terminal: bool | None = None) -> Page:
    """The page of a training plan."""
    page = Page(terminal=terminal)
    _title(page, plan)
    if plan.ranked:
        _best(page, plan)
        _ranked(page, plan)
        _front(page, plan)
        _fewest(page, plan)
    ending(page, plan.assumed, plan.refused)
    return page


def _title(page: Page, plan: TrainingPlan) -> None:
    task = plan.task
    run = f", {count(task.tokens)} tokens" if task.tokens else ""
    page.line((task.model, "title"), f"  {task.method}, {task.batch:,} sequences of {task.seq:,} tokens a step{run}")
    page.line((f"  {plan.tried:,} layouts of {plan.structures:,} structures", "faint"))
    page.blank()
    if not plan.ranked:
        helps = "more cards, --offload, --method lora, --optimizer adamw_8bit or a shorter --seq would help"
        nothing_holds(page, plan.nearest, helps)
    elif not plan.meets:
        page.line(("DEADLINE OR BUDGET OUT OF REACH", "bad"), "  what comes nearest is listed")


def _best(page: Page, plan: TrainingPlan) -> None:
    best, own = plan.ranked[0], plan.ranked[0].question
    verdict_line(page, best.fit, f"{best.gpus} x {best.offer.card.name}  {best.words}, dp {own.parallel.dp}")
    fact(
        page,
        "batch",
        f"micro-batch {own.micro_batch} x {own.accumulate} accumulated x {own.parallel.dp} rank{'s' * (own.parallel.dp > 1)}",
    )
    fact(page, "memory", needed_of(best.needed_bytes, best.offer.card.visible_bytes))
    fact(page, "step", f"{time_text(best.step_s)}, {best.tokens_per_s:,.0f} tokens/s, MFU {best.mfu:.1%}")
    terms = sorted(best.term.terms, key=lambda t: -t.seconds)[:_MOST_TERMS]
    fact(page, "what binds", ", ".join(f"{t.name} {t.seconds / best.step_s:.0%}" for t in terms))
    if best.days is not None:
        fact(page, "run", f"{time_text(best.days * DAY_S)}{_money(best)}")
    fact(page, "power", power_text(best.power_w))


def _money(one: Trained) -> str:
    return f", ${_dollars(one.usd)} ({one.offer.priced})" if one.usd is not None else ", no price known for the card"


def _dollars(usd: float) -> str:
    """``161,767`` or ``3.94``."""
    return f"{usd:,.0f}" if usd >= 100 else f"{usd:.2f}"


def _ranked(page: Page, plan: TrainingPlan) -> None:
    if len(plan.ranked) < 2:
        return
    page.heading(f"Ranked by {plan.task.order}, one of each kind")
    head = ("cards", "layout", "mb", "GiB", "step", "MFU", "run", "$")
    rows = [
        (f"{t.gpus} {'-'.join(t.offer.card.id.split('-')[:2])}", t.words + ("" if t.fit.verdict == "fits" else " (tight)"),
         str(t.question.micro_batch), f"{t.needed_bytes / 2**30:.0f}", time_text(t.step_s), f"{t.mfu:.0%}",
         time_text(t.days * DAY_S) if t.days is not None else "-", _dollars(t.usd) if t.usd is not None else "-")
        for t in plan.ranked
    ]  # fmt: skip
    page.table([head, *rows], styles=("title", "", "", "number"), right=frozenset({2, 3, 4, 5, 6, 7}))
    best = plan.ranked[0]
    lost_lines(page, (why_lost(lost, best) for lost in plan.ranked[1:3]))


def why_lost(lost: Trained, best: Trained) -> str:
    """How much longer a token takes, and the part of a step that grew most; how much dearer it is where it is quicker."""
    if lost.fit.verdict != best.fit.verdict:
        return f"it is {lost.fit.verdict} where the best {best.fit.verdict}"
    slower = best.tokens_per_s / lost.tokens_per_s - 1
    if slower < 0:  # by cost or cards a quicker one may lose
        dearer = lost.usd_per_token / best.usd_per_token - 1
        return f"{dearer:.1%} dearer for a token on {lost.gpus} cards, {-slower:.0%} less time; {lost.words}"
    own = {t.name: t.seconds / (lost.tokens_per_s * lost.step_s) for t in lost.term.terms}
    other = {t.name: t.seconds / (best.tokens_per_s * best.step_s) for t in best.term.terms}
    grown = max(own, key=lambda name: own[name] - other.get(name, 0.0))
    return f"{slower:.0%} more time for a token, most of it in {grown}; {lost.words}"


def _front(page: Page, plan: TrainingPlan) -> None:
    if len(plan.front) < 2:
        return
    page.heading("Cheaper or sooner: none of these is beaten in both")
    most = max(one.tokens_per_s for one in plan.front)
    for one in plan.front:
        days = time_text(one.days * DAY_S) if one.days is not None else time_text(one.step_s)
        usd = f"${_dollars(one.usd)}" if one.usd is not None else f"{one.gpus} cards"
        tail = (f"{one.gpus} x {one.words}", "faint")
        page.line("  ", (usd.rjust(12), "number"), "  ", bar(page, one.tokens_per_s / most), f"  {days:>11}  ", tail, hang=16)


def _fewest(page: Page, plan: TrainingPlan) -> None:
    page.heading("The fewest cards of each kind")
    for one in plan.fewest:
        days = f", {time_text(one.days * DAY_S)}" if one.days is not None else ""
        page.line("  ", (f"{one.gpus} x {one.offer.card.name}", "title"), f"  {one.words}  {one.fit.verdict}{days}", hang=4)
    for cards, told in without_job(plan):
        page.line("  ", (cards, "title"), f"  {told}", hang=4)
