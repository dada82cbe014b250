"""What the pages of both plans share: the verdict's line, rows of facts, why others lost, bars, what was left out."""

from collections.abc import Iterable, Mapping

from vramcast.cli.pages.page import Page, Span
from vramcast.ledger import Assumption, Fit
from vramcast.planning.plans.plan import UNKNOWN_PRICE, Plan
from vramcast.planning.verdict import likely_text
from vramcast.units import gib

_BAR = 24
_STYLES = {"fits": "good", "tight": "warn"}
_LABEL = 13
_MOST_LEFT_OUT = 4
_MOST_PRICES = 6
_FEW_CARDS = 6  # offered by a person, not all that clouds rent


def nothing_holds(page: Page, nearest: tuple[str, int] | None, would_help: str) -> None:
    """The line where no choice holds the job: what is least short, and what would help."""
    words, short = nearest or ("no layout", 0)
    page.line(("NOTHING HOLDS IT", "bad"), f"  the least short: {words}" + (f", by {gib(short)} a card" if short else ""))
    page.line(f"  {would_help}")


def verdict_line(page: Page, fit: Fit, named: str) -> None:
    """The best choice in a line: verdict, what it is, how likely."""
    chance = f", {likely_text(fit.probability)}" if fit.probability is not None else ""
    page.line((fit.verdict.upper(), _STYLES.get(fit.verdict, "warn")), "  ", (named, "title"), chance)


def fact(page: Page, label: str, *said: Span | str) -> None:
    """One row of the best choice: ``  memory       55.7 GiB needed of 79.2 GiB on each card``."""
    page.line(f"  {label:<{_LABEL}}", *said, hang=_LABEL + 2)


def needed_of(needed_bytes: int, capacity_bytes: int) -> str:
    """``55.7 GiB needed of 79.2 GiB on each card``."""
    return f"{gib(needed_bytes, 1)} needed of {gib(capacity_bytes, 1)} on each card"


def power_text(watts: float) -> str:
    """The boards' limits together."""
    return f"at most {watts / 1000:,.1f} kW (the boards' limits)"


def lost_lines(page: Page, reasons: Iterable[str]) -> None:
    """Why the second and the third lost."""
    for number, why in enumerate(reasons, 2):
        page.line("  ", (f"{number} lost: ", "faint"), why, hang=10)


def bar(page: Page, share: float) -> Span:
    """A bar of that share of the longest, padded."""
    return (page.mark("kv_cache") * max(1, round(_BAR * share))).ljust(_BAR), "kv_cache"


def ending(page: Page, assumed: Iterable[Assumption], refused: Mapping[str, int]) -> None:
    """What was assumed, and why structures were left out, the commonest reasons first."""
    if assumed:
        page.heading("Assumed")
        for a in _prices_folded(tuple(assumed)):
            page.line("  ", f"{a.name} = {a.value}", (f"  {a.because}", "faint"))
    if refused:
        page.heading("Left out")
        for reason, times in sorted(refused.items(), key=lambda item: -item[1])[:_MOST_LEFT_OUT]:
            page.line("  ", f"{times} structure{'s' * (times > 1)}: " if times else "", (reason, "faint"))


def _prices_folded(assumed: tuple[Assumption, ...]) -> tuple[Assumption, ...]:
    """More list prices than a reader looks at become one line: how many, and how to see or to change them."""
    prices = [a for a in assumed if a.name == "price" and a.value != UNKNOWN_PRICE]
    if len(prices) <= _MOST_PRICES:
        return assumed
    folded = Assumption("price", f"the list prices of {len(prices)} cards", "--json lists each; --gpu 'CARD@2.50' says yours")
    return (*(a for a in assumed if a not in prices), folded)


def without_job(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The cards offered on which nothing does the job, with words that say so; none where a person did not choose them."""
    return tuple((cards, "nothing does the job") for cards in plan.without) if len(plan.without) <= _FEW_CARDS else ()
