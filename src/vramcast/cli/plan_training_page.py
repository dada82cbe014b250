"""A training plan as people read it: the best layout and what binds it, what lost, money against time, the fewest cards."""

from vramcast.cli.page import Page
from vramcast.planning.plans.training import Trained, TrainingPlan
from vramcast.planning.verdict import likely_text
from vramcast.units import count, gib, time_text

_BAR, _MOST_TERMS = 24, 5
_STYLES = {"fits": "good", "tight": "warn"}
_DAY_S = 86_400


def training_plan_page(plan: TrainingPlan, *, terminal: bool | None = None) -> Page:
    """The page of a training plan."""
    page = Page(terminal=terminal)
    _title(page, plan)
    if plan.ranked:
        _best(page, plan)
        _ranked(page, plan)
        _front(page, plan)
        _fewest(page, plan)
    _assumed(page, plan)
    return page


def _title(page: Page, plan: TrainingPlan) -> None:
    task = plan.task
    run = f", {count(task.tokens)} tokens" if task.tokens else ""
    page.line((task.model, "title"), f"  {task.method}, {task.batch:,} sequences of {task.seq:,} tokens a step{run}")
    page.line((f"  {plan.tried:,} layouts of {plan.structures:,} structures", "faint"))
    page.blank()
    if not plan.ranked:
        words, short = plan.nearest or ("no layout", 0)
        page.line(("NOTHING HOLDS IT", "bad"), f"  the least short: {words}" + (f", by {gib(short)} a card" if short else ""))
        page.line("  more cards, --offload, --method lora, --optimizer adamw_8bit or a shorter --seq would help")
    elif not plan.meets:
        page.line(("DEADLINE OR BUDGET OUT OF REACH", "bad"), "  what comes nearest is listed")


def _best(page: Page, plan: TrainingPlan) -> None:
    best, own = plan.ranked[0], plan.ranked[0].question
    chance = f", {likely_text(best.fit.probability)}" if best.fit.probability is not None else ""
    named = f"{best.gpus} x {best.offer.card.name}  {best.words}, dp {own.parallel.dp}"
    page.line((best.fit.verdict.upper(), _STYLES.get(best.fit.verdict, "warn")), "  ", (named, "title"), chance)
    page.line(f"  batch        micro-batch {own.micro_batch} x {own.accumulate} accumulated x {own.parallel.dp} ranks", hang=15)
    page.line(
        f"  memory       {gib(best.needed_bytes, 1)} needed of {gib(best.offer.card.visible_bytes, 1)} on each card", hang=15
    )
    page.line(f"  step         {time_text(best.step_s)}, {best.tokens_per_s:,.0f} tokens/s, MFU {best.mfu:.1%}", hang=15)
    terms = sorted(best.term.terms, key=lambda t: -t.seconds)[:_MOST_TERMS]
    page.line("  what binds   ", ", ".join(f"{t.name} {t.seconds / best.step_s:.0%}" for t in terms), hang=15)
    if best.days is not None:
        page.line(f"  run          {time_text(best.days * _DAY_S)}{_money(best)}", hang=15)
    page.line(f"  power        at most {best.power_w / 1000:,.1f} kW (the boards' limits)", hang=15)


def _money(one: Trained) -> str:
    return f", ${one.usd:,.0f} ({one.offer.priced})" if one.usd is not None else ", no price known for the card"


def _ranked(page: Page, plan: TrainingPlan) -> None:
    if len(plan.ranked) < 2:
        return
    page.heading(f"Ranked by {plan.task.order}, one of each kind")
    head = ("cards", "layout", "mb", "GiB", "step", "MFU", "days", "$")
    rows = [
        (f"{t.gpus} {'-'.join(t.offer.card.id.split('-')[:1])}", t.words + ("" if t.fit.verdict == "fits" else " (tight)"),
         str(t.question.micro_batch), f"{t.needed_bytes / 2**30:.0f}", time_text(t.step_s), f"{t.mfu:.0%}",
         f"{t.days:,.1f}" if t.days is not None else "-", f"{t.usd:,.0f}" if t.usd is not None else "-")
        for t in plan.ranked
    ]  # fmt: skip
    page.table([head, *rows], styles=("title", "", "", "number"), right=frozenset({2, 3, 4, 5, 6, 7}))
    best = plan.ranked[0]
    for number, lost in enumerate(plan.ranked[1:3], 2):
        page.line("  ", (f"{number} lost: ", "faint"), why_lost(lost, best), hang=10)


def why_lost(lost: Trained, best: Trained) -> str:
    """How much longer a step takes, and the part of it that grew most."""
    if lost.fit.verdict != best.fit.verdict:
        return f"it is {lost.fit.verdict} where the best {best.fit.verdict}"
    slower = best.tokens_per_s / lost.tokens_per_s - 1
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
        bar = page.mark("kv_cache") * max(1, round(_BAR * one.tokens_per_s / most))
        days = f"{one.days:,.1f} days" if one.days is not None else time_text(one.step_s)
        usd = f"${one.usd:,.0f}" if one.usd is not None else f"{one.gpus} cards"
        tail = (f"{one.gpus} x {one.words}", "faint")
        page.line("  ", (usd.rjust(12), "number"), "  ", (bar.ljust(_BAR), "kv_cache"), f"  {days:>11}  ", tail, hang=16)


def _fewest(page: Page, plan: TrainingPlan) -> None:
    page.heading("The fewest cards of each kind")
    for one in plan.fewest:
        days = f", {time_text(one.days * _DAY_S)}" if one.days is not None else ""
        page.line("  ", (f"{one.gpus} x {one.offer.card.name}", "title"), f"  {one.words}  {one.fit.verdict}{days}", hang=4)


def _assumed(page: Page, plan: TrainingPlan) -> None:
    if plan.assumed:
        page.heading("Assumed")
        for a in plan.assumed:
            page.line("  ", f"{a.name} = {a.value}", (f"  {a.because}", "faint"))
    if plan.refused:
        page.heading("Left out")
        for reason, times in sorted(plan.refused.items(), key=lambda item: -item[1])[:4]:
            page.line("  ", f"{times} structures: ", (reason, "faint"))
