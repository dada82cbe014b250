"""A plan as people read it: the best and its command, what lost and why, cost against speed, the fewest cards."""

from vramcast.cli.pages.page import Page, Span
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
from vramcast.planning.plans.choices import Choice
from vramcast.planning.plans.reasons import why_lost
from vramcast.planning.plans.serving import ServingPlan
from vramcast.units import time_text


def serving_plan_page(plan: ServingPlan, *, terminal: bool | None = None) -> Page:
    """The page of a serving plan."""
    page = Page(terminal=terminal)
    _title(page, plan)
    if plan.ranked:
        _best(page, plan)
        _ranked(page, plan)
        _front(page, plan)
        _apart(page, plan)
        _fewest(page, plan)
        _weights(page, plan)
    ending(page, plan.assumed, plan.refused)
    return page


def _title(page: Page, plan: ServingPlan) -> None:
    wanted = plan.wanted
    load = f"{wanted.users:,} at once" if wanted.users is not None else f"{wanted.rate:g} requests/s"
    page.line(
        (wanted.model, "title"), f"  {load}, context {wanted.context:,}, prompt {wanted.prompt:,}, output {wanted.output:,}"
    )
    told = f"{plan.tried:,} deployments of {plan.structures:,} structures"
    level = ", ".join(f"{name} {time_text(value)}" for name, value in (("TTFT", wanted.ttft_s), ("TPOT", wanted.tpot_s)) if value)
    page.line(("  " + told + (f"; to meet: {level}" if level else ""), "faint"))
    page.blank()
    if plan.nearest and not plan.ranked:
        helps = "more cards (--most-gpus), fewer bits (--bits 4), fewer users or a shorter --context would help"
        nothing_holds(page, plan.nearest, helps)
    elif not plan.ranked[0].keeps_up:
        most = plan.ranked[0].tokens_per_s / wanted.output
        page.line(
            ("THE RATE IS OUT OF REACH", "bad"),
            f"  at most about {most:,.3g} requests/s on the cards offered; what does that is listed",
        )
    elif not plan.meets:
        page.line(("THE SERVICE LEVEL IS OUT OF REACH", "bad"), "  what comes nearest is listed; its times are what one can get")


def _best(page: Page, plan: ServingPlan) -> None:
    best = plan.ranked[0]
    users, own = plan.wanted.users, best.setting
    verdict_line(page, best.fit, _named(best))
    fact(page, "memory", needed_of(best.needed_bytes, own.card.visible_bytes))
    fact(page, "first token", time_text(best.ttft_s), _longest(plan))
    each = f"{1 / best.tpot_s:,.1f} tokens/s for each user, " if best.tpot_s else ""
    told = f"{time_text(best.tpot_s)}: {each}{best.tokens_per_s:,.0f} for all"
    if plan.wanted.output > 1:
        fact(page, "each token", told + (f" {users:,}" if users else ""))
    else:
        fact(page, "requests", f"{best.tokens_per_s:,.3g} a second, of one token each")
    fact(page, "cost", _cost_text(best))
    fact(page, "power", power_text(best.power_w))
    from vramcast.writing.serving.lines import command_of

    page.heading("Type")
    for line in command_of(best.question, replicas=best.replicas, width=page.width - 4):
        page.line("  ", (line, "title"), hang=6)


def _longest(plan: ServingPlan) -> Span:
    if plan.longest_ttft_s is None or plan.wanted.context < 2 * (plan.wanted.prompt + plan.wanted.output):
        return "", ""
    return f"; {time_text(plan.longest_ttft_s)} for a prompt that fills the context, alone", "faint"


def _named(choice: Choice) -> str:
    own = choice.setting
    cache = f", cache {own.cache}" if own.cache else ""
    return f"{choice.gpus} x {own.card.name}  {own.engine} {own.weights.name}{cache}  {choice.layout}"


def _cost_text(choice: Choice) -> str:
    if choice.usd_per_hour is None:
        return f"no price known for {choice.setting.card.name}: --gpu '{choice.setting.card.name}@2.50' says yours"
    million = f", ${choice.usd_per_million:,.2f} for a million output tokens at this load" if choice.usd_per_million else ""
    return f"${choice.usd_per_hour:,.2f} an hour ({choice.setting.offer.priced}){million}"


def _ranked(page: Page, plan: ServingPlan) -> None:
    if len(plan.ranked) < 2:
        return
    page.heading(f"Ranked by {plan.wanted.order}, one of each kind")
    page.table([_HEAD, *(_row(choice) for choice in plan.ranked)], styles=("title", "", "number"), right=_RIGHT)
    lost_lines(page, (why_lost(choice, plan.ranked[0], plan.wanted.order) for choice in plan.ranked[1:3]))


_HEAD = ("cards", "what runs", "GiB", "TTFT", "TPOT", "tok/s", "$/Mtok")
_RIGHT = frozenset({2, 3, 4, 5, 6})


def _row(choice: Choice) -> tuple[str, ...]:
    own = choice.setting
    mark = "" if choice.fit.verdict == "fits" else " (tight)"
    cache = " kv8" if own.kv_dtype else ""
    return (
        f"{choice.gpus} {_card(choice)}", f"{_brief(choice)}{cache} {choice.layout}{mark}",
        f"{choice.needed_bytes / 2**30:.0f}", _short(choice.ttft_s), _short(choice.tpot_s), f"{choice.tokens_per_s:,.0f}",
        f"{choice.usd_per_million:,.2f}" if choice.usd_per_million is not None else "-",
    )  # fmt: skip


# Names that a narrow table shortens.
_BRIEF = {"tensorrt_llm": "trtllm", "bfloat16": "bf16", "float16": "fp16"}


def _brief(choice: Choice) -> str:
    """``trtllm fp8``: engine and weights in a few letters."""
    own, name = choice.setting, choice.setting.weights.name
    plain = _BRIEF.get(name, name.removeprefix("modelopt-").removeprefix("compressed-tensors-"))
    return f"{_BRIEF.get(own.engine, own.engine)} {plain.split('-')[0]}"


def _card(choice: Choice) -> str:
    """``h100-sxm5``: the card in a few letters."""
    return "-".join(choice.setting.card.id.split("-")[:2])


def _short(seconds: float) -> str:
    """``45ms`` or ``1.3s``, three digits at most."""
    if seconds < 1:
        return f"{seconds * 1e3:.3g}ms"
    return f"{seconds:.1f}s" if seconds < 100 else f"{seconds:,.0f}s"


def _front(page: Page, plan: ServingPlan) -> None:
    if len(plan.front) < 2:
        return
    page.heading("Cheaper or faster: none of these is beaten in both")
    least = min(choice.request_s for choice in plan.front)
    for choice in plan.front:
        cost = f"${choice.usd_per_million:,.2f}" if choice.usd_per_million is not None else f"{choice.gpus} cards"
        page.line(
            "  ", (cost.rjust(9), "number"), "  ", bar(page, least / choice.request_s), f"  {_short(choice.request_s):>7}  ",
            (f"{choice.gpus} {_card(choice)} {_brief(choice)} {choice.layout}", "faint"), hang=13,
        )  # fmt: skip
    page.line(("  dollars for a million tokens; the longer the bar, the sooner a request is done", "faint"))


def _apart(page: Page, plan: ServingPlan) -> None:
    if not plan.wanted.apart:
        return
    page.heading("Prefill and decode on workers of their own (xPyD)")
    if not plan.apart:
        page.line("  none of the best structures can be taken apart on these cards")
        return
    page.table([_HEAD, *(_row(choice) for choice in plan.apart)], styles=("title", "", "number"), right=_RIGHT)
    page.line(("  the first against the best together: " + _against(plan.apart[0], plan.ranked[0]), "faint"), hang=4)
    page.line(("  --emit workers prints the lines of both kinds of workers", "faint"))


def _against(one: Choice, other: Choice) -> str:
    """``1% more dollars for a token, a request takes 39% less time``."""
    cost = one.gpus / one.tokens_per_s / (other.gpus / other.tokens_per_s) - 1
    if one.usd_per_million is not None and other.usd_per_million:
        cost = one.usd_per_million / other.usd_per_million - 1
    time = one.request_s / other.request_s - 1
    return f"a token costs {abs(cost):.0%} {_side(cost)}, a request takes {abs(time):.0%} {_side(time)} time"


def _side(share: float) -> str:
    return "more" if share > 0 else "less"


def _fewest(page: Page, plan: ServingPlan) -> None:
    page.heading("The fewest cards of each kind")
    rows = [
        (f"{c.gpus} x {c.setting.card.name}", f"{_brief(c)} {c.layout}", _short(c.request_s),
         f"${c.usd_per_hour:,.2f}/h" if c.usd_per_hour is not None else "")
        for c in plan.fewest
    ]  # fmt: skip
    rows += [(*told, "", "") for told in without_job(plan)]
    page.table(rows, styles=("title", "faint", "number", "number"), right=frozenset({2, 3}))


def _weights(page: Page, plan: ServingPlan) -> None:
    if len(plan.by_weights) < 2:
        return
    page.heading("By weights (fewer bits may lose quality: measure yours)")
    rows = [
        (c.setting.weights.name, f"{c.setting.weights.bits:.1f} bits, {c.setting.weights.how}", f"{c.gpus} {_card(c)}",
         f"${c.usd_per_million:,.2f}" if c.usd_per_million is not None else "", _short(c.request_s))
        for c in plan.by_weights
    ]  # fmt: skip
    page.table(rows, styles=("title", "faint", "", "number", "number"), right=frozenset({3, 4}))
    for c in plan.by_weights:
        if c.setting.weights.how == "a published upload":
            page.line(("  " + c.setting.weights.model.id, "faint"))
