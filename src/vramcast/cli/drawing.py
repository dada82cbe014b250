"""The answer as people read it: verdict, moments, ledger, limits, what to change, what was assumed."""

from math import floor

from msgspec import structs

from vramcast.asking.wording import headline_in, term_in
from vramcast.cli.assumed_page import assumptions
from vramcast.cli.ledger_page import instants, ledger
from vramcast.cli.page import Page, Span, filled
from vramcast.cli.speed_page import speed_section, training_speed_section
from vramcast.language import spoken
from vramcast.ledger import Advice, Fit, Forecast
from vramcast.planning.verdict import WANTING
from vramcast.units import count, gib

_VERDICTS = {"fits": "good", "tight": "warn", "partly": "bad", "no": "bad"}
_WIDEST_CHANGE = 46
_NARROW = 100  # below so many columns what a change costs stands on a line of its own
_MARKS = {"fits": "good", "tight": "warn", "partly": "warn"}
_MARK_CELLS = 9


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
    say = spoken()
    few = m.active_parameters < 0.9 * m.parameters
    active = f" {say('t-active', active=count(m.active_parameters))}" if few else ""
    told = say("t-model", parameters=count(m.parameters), active=active, layers=m.layers)
    page.line((m.id, "title"), (typed, "faint"), "  ", (told, "faint"))
    where = f"{w.get('gpus', 1)} x {w['gpu']}" if w.get("gpu") else say("no-card")
    what = f"{w.get('engine') or w.get('framework')} {w.get('engine_version') or w.get('framework_version') or ''}".strip()
    page.line(f"{where}  ·  {what}  ·  {_load(w)}")
    _trained(page, forecast)
    _verdict(page, forecast.fit)
    _not_native(page, forecast)


def _verdict(page: Page, fit: Fit) -> None:
    if fit.verdict not in _VERDICTS:
        return
    say = spoken()
    said = headline_in(fit, say)
    page.blank()
    binding = f"  {say('t-largest', term=term_in(fit.binding, say))}" if fit.binding and not fit.refused else ""
    page.line((say("t-refused" if fit.refused else f"t-{fit.verdict}"), _VERDICTS[fit.verdict]), "  ", said, binding)
    if fit.error and fit.error not in said:
        page.line("  ", (fit.error, "warn"), hang=2)


def _not_native(page: Page, forecast: Forecast) -> None:
    """What the card does not do by itself, before anything else is read."""
    for a in forecast.assumed:
        if a.value in ("emulated", "refused") and a.because != forecast.fit.error:
            page.line("  ", (f"{a.name} {a.value} on this card: ", "bad" if a.value == "refused" else "warn"), a.because)


def _load(workload: dict[str, object]) -> str:
    if "micro_batch" not in workload:
        asked = {"context": f"{workload.get('context') or 0:,}", "users": workload.get("concurrency") or 1}
        tokens = workload.get("request_tokens")
        return spoken()("t-load-of", **asked, tokens=f"{tokens:,}") if tokens else spoken()("t-load", **asked)
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
    limits, training, say = forecast.limits, "micro_batch" in forecast.workload, spoken()
    rows = [
        (
            say("limit-sequence" if training else "limit-context"),
            limits.max_context,
            say("t-tokens", count="{:,}") if limits.max_context else say("none"),
        ),
        (say("limit-users"), _tenths(limits.max_concurrency), "{:,.1f}"),
        (say("limit-requests"), _tenths(limits.max_requests), "{:,.1f}"),
        (say("t-limit-batch"), limits.max_micro_batch, "{:,}" if limits.max_micro_batch else say("t-not-one")),
        (say("limit-cache"), limits.cache_tokens, "{:,}"),
    ]
    shown = [(name, form.format(value)) for name, value, form in rows if value is not None]
    if shown and forecast.fit.verdict != "unknown":
        page.heading(say("t-limits"))
        page.table(shown, styles=("", "number"))


def _tenths(number: float | None) -> float | None:
    """Cut to tenths, so that what is printed is never more than what fits."""
    return None if number is None else floor(10 * number) / 10


def _cards(page: Page, forecast: Forecast) -> None:
    if not forecast.cards:
        return
    page.heading(spoken()("t-cards"))
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
    say = spoken()
    page.heading(say("t-advice"))
    widest = min(_WIDEST_CHANGE, max(len(a.change) for a in forecast.advice))
    for a in forecast.advice:
        saved = say("saves", size=gib(a.saves_bytes)) if a.saves_bytes else ""
        word = say(f"t-mark-{a.then_verdict}" if a.then_verdict in _MARKS else "t-mark-none")
        mark: Span = (filled(word, _MARK_CELLS), _MARKS.get(a.then_verdict, "warn"))
        a = structs.replace(a, costs=say.phrase("cost", a.costs))  # noqa: PLW2901
        _piece(page, a, mark, saved, widest)


def _piece(page: Page, advice: Advice, mark: Span, saved: str, widest: int) -> None:
    """One change: on one line where there is room, else with its cost below."""
    if page.terminal and page.width < _NARROW:
        page.line("  ", mark, "  ", (advice.change, "title"), hang=13)
        page.line(" " * 13, ("; ".join(filter(None, (saved, advice.costs))), "faint"), hang=13)
    elif len(advice.change) > widest:
        page.line("  ", mark, "  ", (advice.change, "title"), hang=13)
        page.line(" " * (15 + widest), filled(saved, 18), (advice.costs, "faint"), hang=widest + 33)
    else:
        change = (advice.change.ljust(widest), "title")
        page.line("  ", mark, "  ", change, "  ", filled(saved, 18), (advice.costs, "faint"), hang=widest + 33)
