"""The answer as people read it: verdict, moments, ledger, limits, what to change, what was assumed."""

from msgspec import structs

from vramcast.asking.wording import headline_in, term_in
from vramcast.cli.pages.assumed import assumptions
from vramcast.cli.pages.ledger import instants, ledger
from vramcast.cli.pages.page import Page, Span, cells, filled
from vramcast.cli.pages.speed import speed_section, training_speed_section
from vramcast.language import program_and_release, program_name, spoken
from vramcast.ledger import Advice, Fit, Forecast
from vramcast.planning.verdict import WANTING
from vramcast.units import count, gib, tenths

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
    _advice(page, forecast)
    _cards(page, forecast)
    _limits(page, forecast)
    if forecast.speed:
        speed_section(page, forecast.speed, held=_held(forecast))
    assumptions(page, forecast)
    return page


def training_page(forecast: Forecast, *, terminal: bool | None = None) -> Page:
    """The answer to a training question: as for serving, with the instants of the step."""
    page = Page(terminal=terminal)
    _title(page, forecast)
    ledger(page, forecast)
    _advice(page, forecast)
    _cards(page, forecast)
    instants(page, forecast.worst)
    _limits(page, forecast)
    if forecast.speed:
        training_speed_section(page, forecast.speed, held=_held(forecast))
    assumptions(page, forecast)
    return page


def _held(forecast: Forecast) -> bool:
    """Whether what is asked runs, so that its speed is one that will be seen."""
    return forecast.fit.verdict != "no"


def answer_page(forecast: Forecast, *, terminal: bool | None = None) -> Page:
    """The page of either kind of answer."""
    draw = training_page if "micro_batch" in forecast.workload else serving_page
    return draw(forecast, terminal=terminal)


def _title(page: Page, forecast: Forecast) -> None:
    w, m = forecast.workload, forecast.model
    say = spoken()
    typed = f" ({say('t-asked', what=w['model'])})" if w["model"] != m.id and "/" not in str(w["model"]) else ""
    few = m.active_parameters < 0.9 * m.parameters
    active = f" {say('t-active', active=count(m.active_parameters))}" if few else ""
    told = say("t-model", parameters=count(m.parameters), active=active, layers=m.layers)
    page.line((m.id, "title"), (typed, "faint"), "  ", (told, "faint"))
    where = f"{w.get('gpus', 1)} x {w['gpu']}" if w.get("gpu") else say("no-card")
    program = program_name(str(w.get("engine") or w.get("framework")))
    page.line(f"{where}  ·  {program_and_release(w)}  ·  {_load(w)}")
    for one in forecast.assumed:
        if one.because.startswith("of cards of several kinds"):
            page.line((say("t-mixed", cards=str(one.value), least=str(w["gpu"])), "warn"))
    _trained(page, forecast)
    _verdict(page, forecast.fit, program)
    _not_native(page, forecast)


def _verdict(page: Page, fit: Fit, program: str) -> None:
    if fit.verdict not in _VERDICTS:
        return
    say = spoken()
    said = headline_in(fit, say)
    page.blank()
    binding = f"  {say('t-largest', term=term_in(fit.binding, say))}" if fit.binding and not fit.refused else ""
    page.line((say("t-refused" if fit.refused else f"t-{fit.verdict}"), _VERDICTS[fit.verdict]), "  ", said, binding)
    if fit.error and not fit.refused and fit.verdict != "partly":
        own = fit.error.startswith("the engine claims")
        page.line("  ", (say.formula(fit.error) if own else say("t-stops", program=program, message=fit.error), "warn"), hang=2)


def _not_native(page: Page, forecast: Forecast) -> None:
    """What the card does not do by itself, before anything else is read."""
    for a in forecast.assumed:
        if a.value in ("emulated", "refused") and a.because != forecast.fit.error:
            word = spoken()(f"t-card-{a.value}", name=a.name)
            page.line("  ", (f"{word}: ", "bad" if a.value == "refused" else "warn"), spoken().formula(a.because), hang=4)


def _load(workload: dict[str, object]) -> str:
    if "micro_batch" not in workload:
        asked = {"context": f"{workload.get('context') or 0:,}", "users": workload.get("concurrency") or 1}
        tokens, traffic = workload.get("request_tokens"), workload.get("traffic")
        if isinstance(traffic, dict) and traffic.get("rate"):
            return spoken()("t-load-rate", context=asked["context"], rate=f"{traffic['rate']:g}")
        return spoken()("t-load-of", **asked, tokens=f"{tokens:,}") if tokens else spoken()("t-load", **asked)
    recipe = workload.get("recipe")
    task = recipe.get("task") if isinstance(recipe, dict) else None
    method = f"{task} ({workload.get('method')})" if task and task not in ("sft", "pretrain") else workload.get("method")
    return spoken()("t-step", method=method, batch=workload["micro_batch"], seq=f"{workload['seq']:,}")


def _trained(page: Page, forecast: Forecast) -> None:
    """How much of the model is trained, where it is not all of it."""
    trained = forecast.workload.get("trainable_parameters")
    if isinstance(trained, int | float) and 0 < trained < 0.99 * forecast.model.parameters:
        from vramcast.training.methods import PARTIALS

        own = forecast.workload.get("method") in ("full", "pretrain", *PARTIALS)
        beside = 0 if own else trained  # what adapters add to the model
        share = trained / (forecast.model.parameters + beside)
        page.line("  ", (spoken()("t-trained", count=f"{trained:,.0f}", share=f"{share:.4%}"), "faint"))


def _limits(page: Page, forecast: Forecast) -> None:
    limits, training, say = forecast.limits, "micro_batch" in forecast.workload, spoken()
    rows = [
        (
            say("limit-sequence" if training else "limit-context"),
            limits.max_context,
            say("t-tokens", count="{:,}") if limits.max_context else say("none"),
        ),
        (say("limit-users"), limits.max_concurrency and tenths(limits.max_concurrency), "{:,.1f}"),
        (say("limit-requests"), limits.max_requests and tenths(limits.max_requests), "{:,.1f}"),
        (say("t-limit-batch"), limits.max_micro_batch, "{:,}" if limits.max_micro_batch else say("t-not-one")),
        (say("limit-cache"), limits.cache_tokens, "{:,}"),
    ]
    shown = [(name, form.format(value)) for name, value, form in rows if value is not None]
    if shown and forecast.fit.verdict != "unknown":
        page.heading(say("t-limits"))
        page.table(shown, styles=("", "number"))


def _cards(page: Page, forecast: Forecast) -> None:
    if not forecast.cards:
        return
    say = spoken()
    page.heading(say("t-cards"))
    rows: list[tuple[str, ...]] = [
        (
            f"{c.gpus} x {c.gpu}",
            say.formula(c.layout),
            say(f"t-mark-{c.verdict}"),
            say("t-of", part=gib(c.needed_bytes, 1), whole=gib(c.capacity_bytes, 1)),
            f"{c.bandwidth_bytes_per_s / 1e9:,.0f} GB/s" if c.bandwidth_bytes_per_s else "",
            f"${c.cloud_usd_per_hour * c.gpus:.2f}/h" if c.cloud_usd_per_hour else "",
        )
        for c in forecast.cards
    ]
    styles = ["title", "faint", "good", "number", "faint", "faint"]
    if page.terminal and sum(2 + max(cells(row[i]) for row in rows) for i in range(len(styles))) > page.width:
        rows = [(*row[:4], row[5]) for row in rows]  # the price says more than the bandwidth
    page.table(rows, styles=tuple(styles))


def _advice(page: Page, forecast: Forecast) -> None:
    if not forecast.advice or forecast.fit.verdict not in WANTING:
        return
    say = spoken()
    page.heading(say("t-advice"))
    widest = min(_WIDEST_CHANGE, max(len(a.change) for a in forecast.advice))
    costs = _told_once([a.costs for a in forecast.advice])
    for a, cost in zip(forecast.advice, costs, strict=True):
        saved = say("saves", size=gib(a.saves_bytes)) if a.saves_bytes else ""
        word = say(f"t-mark-{a.then_verdict}" if a.then_verdict in _MARKS else "t-mark-none")
        mark: Span = (filled(word, _MARK_CELLS), _MARKS.get(a.then_verdict, "warn"))
        _piece(page, structs.replace(a, costs=say.phrase("cost", cost)), mark, saved, widest)


def _told_once(costs: list[str]) -> list[str]:
    """The costs of each change; what a scheme keeps of the quality is said beside the first change that has it."""
    told: set[str] = set()
    kept = []
    for cost in costs:
        parts = list(dict.fromkeys(cost.split("; ")))
        kept.append("; ".join(part for part in parts if part not in told))
        told |= {part for part in parts if " of benchmark scores on " in part or part.startswith("perplexity ")}
    return kept


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
