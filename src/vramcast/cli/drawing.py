"""The answer as people read it: verdict, moments, ledger, limits, what to change, what was assumed."""

from math import floor

from vramcast.cli.assumed_page import assumptions
from vramcast.cli.ledger_page import instants, ledger
from vramcast.cli.page import Page, Span
from vramcast.cli.speed_page import speed_section, training_speed_section
from vramcast.ledger import Advice, Fit, Forecast
from vramcast.planning.verdict import WANTING, headline
from vramcast.units import count, gib

_VERDICTS = {
    "fits": ("FITS", "good"),
    "tight": ("TIGHT", "warn"),
    "partly": ("PARTLY", "bad"),
    "no": ("DOES NOT FIT", "bad"),
    "unknown": ("", "faint"),
}
_REFUSED = "DOES NOT START"
_WIDEST_CHANGE = 46
_NARROW = 100  # below so many columns what a change costs stands on a line of its own
_MARKS = {"fits": ("fits     ", "good"), "tight": ("tight    ", "warn"), "partly": ("partly   ", "warn")}


def serving_page(forecast: Forecast, *, terminal: bool | None = None) -> Page:
    """The answer to a serving question."""
    page = Page(terminal=terminal)
    _title(page, forecast)
    ledger(page, forecast)
    if forecast.speed:
        speed_section(page, forecast.speed)
    _limits(page, forecast)
    _cards(page, forecast)
    _advice(page, forecast)
    assumptions(page, forecast)
    return page


def training_page(forecast: Forecast, *, terminal: bool | None = None) -> Page:
    """The answer to a training question: as for serving, with the instants of the step."""
    page = Page(terminal=terminal)
    _title(page, forecast)
    instants(page, forecast.worst)
    ledger(page, forecast)
    if forecast.speed:
        training_speed_section(page, forecast.speed)
    _limits(page, forecast)
    _advice(page, forecast)
    _cards(page, forecast)
    assumptions(page, forecast)
    return page


def answer_page(forecast: Forecast, *, terminal: bool | None = None) -> Page:
    """The page of either kind of answer."""
    draw = training_page if "micro_batch" in forecast.workload else serving_page
    return draw(forecast, terminal=terminal)


def _title(page: Page, forecast: Forecast) -> None:
    w, m = forecast.workload, forecast.model
    typed = f" (asked: {w['model']})" if w["model"] != m.id and "/" not in str(w["model"]) else ""
    active = f" ({count(m.active_parameters)} active)" if m.active_parameters < 0.9 * m.parameters else ""
    page.line((m.id, "title"), (typed, "faint"), "  ", (f"{count(m.parameters)} parameters{active}, {m.layers} layers", "faint"))
    where = f"{w.get('gpus', 1)} x {w['gpu']}" if w.get("gpu") else "no card named"
    what = f"{w.get('engine') or w.get('framework')} {w.get('engine_version') or w.get('framework_version') or ''}".strip()
    page.line(f"{where}  ·  {what}  ·  {_load(w)}")
    _trained(page, forecast)
    _verdict(page, forecast.fit)
    _not_native(page, forecast)


def _verdict(page: Page, fit: Fit) -> None:
    word, style = _VERDICTS[fit.verdict]
    if not word:
        return
    page.blank()
    binding = f"  largest: {fit.binding}" if fit.binding and not fit.refused else ""
    page.line((_REFUSED if fit.refused else word, style), "  ", headline(fit), binding)
    if fit.error and fit.error not in headline(fit):
        page.line("  ", (fit.error, "warn"), hang=2)


def _not_native(page: Page, forecast: Forecast) -> None:
    """What the card does not do by itself, before anything else is read."""
    for a in forecast.assumed:
        if a.value in ("emulated", "refused") and a.because != forecast.fit.error:
            page.line("  ", (f"{a.name} {a.value} on this card: ", "bad" if a.value == "refused" else "warn"), a.because)


def _load(workload: dict[str, object]) -> str:
    if "micro_batch" not in workload:
        return f"context {workload.get('context') or 0:,} tokens, {workload.get('concurrency') or 1} at once"
    recipe = workload.get("recipe")
    task = recipe.get("task") if isinstance(recipe, dict) else None
    method = f"{task} ({workload.get('method')})" if task and task not in ("sft", "pretrain") else workload.get("method")
    return f"{method}, micro-batch {workload['micro_batch']} x {workload['seq']:,} tokens"


def _trained(page: Page, forecast: Forecast) -> None:
    """How much of the model is trained, where it is not all of it."""
    trained = forecast.workload.get("trainable_parameters")
    if isinstance(trained, int | float) and 0 < trained < 0.99 * forecast.model.parameters:
        share = trained / (forecast.model.parameters + trained)
        page.line("  ", (f"{trained:,.0f} parameters are trained, {share:.4%} of all with them", "faint"))


def _limits(page: Page, forecast: Forecast) -> None:
    limits, training = forecast.limits, "micro_batch" in forecast.workload
    rows = [
        (
            "longest sequence, this batch" if training else "largest context, one request",
            limits.max_context,
            "{:,} tokens" if limits.max_context else "none fits",
        ),
        ("sequences at once", None if limits.max_concurrency is None else floor(10 * limits.max_concurrency) / 10, "{:,.1f}"),
        ("largest micro-batch, this length", limits.max_micro_batch, "{:,}" if limits.max_micro_batch else "not even 1"),
        ("tokens of cache", limits.cache_tokens, "{:,}"),
    ]
    shown = [(name, form.format(value)) for name, value, form in rows if value is not None]
    if shown and forecast.fit.verdict != "unknown":
        page.heading("Limits by the forecast (its error is in the verdict)")
        page.table(shown, styles=("", "number"))


def _cards(page: Page, forecast: Forecast) -> None:
    if not forecast.cards:
        return
    page.heading("What would hold it (fewest cards first, then the smallest)")
    rows = [
        (
            f"{c.gpus} x {c.gpu}",
            c.layout,
            c.verdict,
            f"{gib(c.needed_bytes, 1)} of {gib(c.capacity_bytes, 1)}",
            f"{c.bandwidth_bytes_per_s / 1e9:,.0f} GB/s each" if c.bandwidth_bytes_per_s else "",
            f"from ${c.cloud_usd_per_hour * c.gpus:.2f}/h" if c.cloud_usd_per_hour else "",
        )
        for c in forecast.cards
    ]
    page.table(rows, styles=("title", "faint", "good", "number", "faint", "faint"))


def _advice(page: Page, forecast: Forecast) -> None:
    if not forecast.advice or forecast.fit.verdict not in WANTING:
        return
    page.heading("What to change (each as it is typed behind this command)")
    widest = min(_WIDEST_CHANGE, max(len(a.change) for a in forecast.advice))
    for a in forecast.advice:
        saved = f"saves {gib(a.saves_bytes)}" if a.saves_bytes else ""
        mark: Span = _MARKS.get(a.then_verdict, ("not alone", "warn"))
        _piece(page, a, mark, saved, widest)


def _piece(page: Page, advice: Advice, mark: Span, saved: str, widest: int) -> None:
    """One change: on one line where there is room, else with its cost below."""
    if page.terminal and page.width < _NARROW:
        page.line("  ", mark, "  ", (advice.change, "title"), hang=13)
        page.line(" " * 13, ("; ".join(filter(None, (saved, advice.costs))), "faint"), hang=13)
    elif len(advice.change) > widest:
        page.line("  ", mark, "  ", (advice.change, "title"), hang=13)
        page.line(" " * (15 + widest), saved.ljust(18), (advice.costs, "faint"), hang=widest + 33)
    else:
        change = (advice.change.ljust(widest), "title")
        page.line("  ", mark, "  ", change, "  ", saved.ljust(18), (advice.costs, "faint"), hang=widest + 33)
