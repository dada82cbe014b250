"""The answer as people read it: the card as a bar, the ledger, the verdict, the limits, what was assumed, what to change."""

from vramcast.cli.page import Page
from vramcast.cli.speed_page import opened_time, speed_section
from vramcast.errors import unknown_name
from vramcast.ledger import Fit, Forecast, Instant, RankMemory, Term
from vramcast.planning.verdict import WANTING, headline
from vramcast.quantity import SECONDS
from vramcast.units import count, gib

_VERDICTS = {
    "fits": ("FITS", "good"),
    "tight": ("TIGHT", "warn"),
    "partly": ("PARTLY", "bad"),
    "no": ("DOES NOT FIT", "bad"),
    "unknown": ("", "faint"),
}
_REFUSED = "DOES NOT START"
_MOST_ASSUMPTIONS = 12
_NOT_NATIVE = ("emulated", "refused")
_WIDEST_CHANGE = 46


def serving_page(forecast: Forecast, *, terminal: bool | None = None) -> Page:
    """The answer to a serving question."""
    page = Page(terminal=terminal)
    _title(page, forecast)
    _ledger(page, forecast)
    if forecast.speed:
        speed_section(page, forecast.speed)
    _limits(page, forecast)
    _cards(page, forecast)
    _advice(page, forecast)
    _notes(page, forecast)
    return page


def training_page(forecast: Forecast, *, terminal: bool | None = None) -> Page:
    """The answer to a training question: as for serving, with the instants of the step."""
    page = Page(terminal=terminal)
    _title(page, forecast)
    _instants(page, forecast.worst)
    _ledger(page, forecast)
    _limits(page, forecast)
    _advice(page, forecast)
    _cards(page, forecast)
    _notes(page, forecast)
    return page


def term_page(forecast: Forecast, name: str) -> Page:
    """One term of the worst rank or of the host, opened down to its formulas.

    Raises QuestionError for a term that is in neither ledger.
    """
    terms = [
        *forecast.speed.get("terms", ()),
        *forecast.worst.terms,
        *(t for instant in forecast.worst.instants for t in instant.terms),
        *forecast.host,
    ]
    found = next((hit for t in terms if (hit := t.find(name))), None)
    if found is None:
        raise unknown_name("term", name, [t.name for term in terms for _, t in term.walk()])
    page = Page()
    _opened(page, found)
    return page


def _opened(page: Page, term: Term, depth: int = 0) -> None:
    """A term with its formula and source; parts that have no parts of their own are lines of one table."""
    margin = "  " * depth
    if term.unit == SECONDS:
        opened_time(page, term, depth)
        return
    page.line(margin, (term.name, "title"), "  ", (gib(term.bytes, 3), "number"), f"  {term.bytes:,} B")
    page.line(margin, "  = ", term.why)
    if term.source:
        page.line(margin, "  ", (f"source: {term.source}", "faint"))
    if len(term.terms) > 1 and not any(part.terms or part.source for part in term.terms):
        rows = [(margin + part.name, gib(part.bytes, 3), f"{part.bytes / term.bytes:.1%}", part.why) for part in term.terms]
        page.table(rows, styles=("title", "number", "", "faint"))
        return
    for part in term.terms:
        _opened(page, part, depth + 1)


def _title(page: Page, forecast: Forecast) -> None:
    w, m = forecast.workload, forecast.model
    page.line((m.id, "title"), "  ", (f"{count(m.parameters)} parameters{_active(forecast)}, {m.layers} layers", "faint"))
    where = f"{w.get('gpus', 1)} x {w['gpu']}" if w.get("gpu") else "no card named"
    what = f"{w.get('engine') or w.get('framework')} {w.get('engine_version') or w.get('framework_version') or ''}".strip()
    page.line(f"{where}  ·  {what}  ·  {_load(w)}")
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
        page.line("  ", (fit.error, "warn"))


def _not_native(page: Page, forecast: Forecast) -> None:
    """What the card does not do by itself, before anything else is read."""
    for a in forecast.assumed:
        if a.value in _NOT_NATIVE and a.because != forecast.fit.error:
            page.line("  ", (f"{a.name} {a.value} on this card: ", "bad" if a.value == "refused" else "warn"), a.because)


def _active(forecast: Forecast) -> str:
    m = forecast.model
    return f" ({count(m.active_parameters)} active)" if m.active_parameters < 0.9 * m.parameters else ""


def _load(workload: dict[str, object]) -> str:
    if "micro_batch" in workload:
        return f"{workload.get('method')}, micro-batch {workload['micro_batch']} x {workload['seq']:,} tokens"
    return f"context {workload.get('context') or 0:,} tokens, {workload.get('concurrency') or 1} at once"


def _ledger(page: Page, forecast: Forecast) -> None:
    rank = forecast.worst
    terms = [t for t in rank.terms if t.bytes]
    held = sum(t.bytes for t in terms)
    capacity = forecast.fit.capacity_bytes or held
    page.heading(_ledger_title(forecast, rank))
    label = gib(capacity, 1) if held <= capacity else f"{gib(held, 1)} on {gib(capacity, 1)}"
    page.bar([(t.name, t.bytes) for t in terms], total=max(capacity, held), label=label)
    for term in terms:
        share = f"{term.bytes / capacity:>{'7.1%' if term.bytes < 10 * capacity else '7.0%'}}  "
        page.line("  ", ("■ " if page.terminal else "", term.name), (term.name.ljust(15), term.name),
                  (gib(term.bytes).rjust(12), "number"), share, (page.fitted(term.why, used=40), "faint"))  # fmt: skip
    _sum_line(page, "needed", rank.needed_bytes, _interval(rank))
    if rank.first_step_bytes is not None:
        counters = {"allocated": rank.allocated_bytes, "reserved": rank.reserved_bytes, "device": rank.device_bytes}
        said = "  ·  ".join(f"{name} {gib(size)}" for name, size in counters.items())
        page.line("  ", _indent(page), (said, "faint"))
    if rank.claimed_bytes > rank.needed_bytes:
        _sum_line(page, "claimed", rank.claimed_bytes, "what the engine sets aside, whatever it needs")
    if asked := _what_is_asked(forecast, held):
        page.line("  ", _indent(page), (asked, "warn"))
    if len(forecast.ranks) > 1:
        others = ", ".join(f"{r.rank} {gib(r.needed_bytes)}" for r in forecast.ranks if r is not rank)
        page.line("  ", (f"other ranks: {others}", "faint"))


def _sum_line(page: Page, name: str, size_bytes: int, note: str) -> None:
    page.line("  ", (_indent(page) + name.ljust(15), "title"), (gib(size_bytes).rjust(12), "number"), "  ", (note, "faint"))


def _indent(page: Page) -> str:
    return "  " if page.terminal else ""


def _ledger_title(forecast: Forecast, rank: RankMemory) -> str:
    which = f"rank {rank.rank}, " if len(forecast.ranks) > 1 else ""
    return f"Memory of one card ({which}{rank.peak.name})"


def _what_is_asked(forecast: Forecast, held: int) -> str:
    """Where the need exceeds the ledger: the engine cut the cache to what was left, and the request wants more."""
    more = forecast.worst.needed_bytes - held
    pool = forecast.limits.cache_bytes
    if more <= 0 or pool is None or forecast.fit.verdict not in ("no", "partly"):
        return ""
    return f"the request wants {gib(pool + more)} of cache, there is room for {gib(pool)}"


def _interval(rank: RankMemory) -> str:
    if rank.interval is None:
        return ""
    i = rank.interval
    return f"{gib(i.low_bytes)} to {gib(i.high_bytes)} in {i.coverage:.0%} of {i.cases} measured runs"


def _instants(page: Page, rank: RankMemory) -> None:
    page.heading("The step, moment by moment")
    peak = rank.peak.bytes
    for instant in rank.instants:
        mark = ("  ← peak", "bad") if instant is rank.peak else ("", "")
        cells = "▇" * max(1, round(instant.bytes / peak * 40)) if page.terminal and peak else ""
        page.line("  ", instant.name.ljust(28), (gib(instant.bytes).rjust(12), "number"), "  ", (cells, "faint"), mark)
    notes = [_lead_text(peak, rank.runner_up)] if rank.runner_up else []
    if rank.first_step_bytes is not None and rank.first_step_bytes < peak:
        notes.append(f"the first step peaks at {gib(rank.first_step_bytes)}, before the optimizer has states")
    if notes:
        page.line("  ", ("; ".join(notes), "faint"))


def _lead_text(peak_bytes: int, second: Instant) -> str:
    lead = peak_bytes - second.bytes
    return f"{gib(lead)} above {second.name}" if lead else f"as high as {second.name}"


def _limits(page: Page, forecast: Forecast) -> None:
    limits = forecast.limits
    rows = [
        (_longest_label(forecast), limits.max_context, "{:,} tokens" if limits.max_context else "none fits"),
        ("sequences at once", limits.max_concurrency, "{:,.1f}"),
        ("largest micro-batch, this length", limits.max_micro_batch, "{:,}"),
        ("tokens of cache", limits.cache_tokens, "{:,}"),
    ]
    shown = [(name, form.format(value)) for name, value, form in rows if value is not None]
    if shown and forecast.fit.verdict != "unknown":
        page.heading("Limits")
        page.table(shown, styles=("", "number"))


def _longest_label(forecast: Forecast) -> str:
    return "longest sequence, this batch" if "micro_batch" in forecast.workload else "largest context, one request"


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
            _price(c.cloud_usd_per_hour, c.gpus),
        )
        for c in forecast.cards
    ]
    page.table(rows, styles=("title", "faint", "good", "number", "faint"))


def _price(usd_per_hour: float, gpus: int) -> str:
    return f"from ${usd_per_hour * gpus:.2f}/h" if usd_per_hour else ""


_MARKS = {"fits": ("fits     ", "good"), "tight": ("tight    ", "warn")}


def _advice(page: Page, forecast: Forecast) -> None:
    if not forecast.advice or forecast.fit.verdict not in WANTING:
        return
    page.heading("What to change")
    widest = min(_WIDEST_CHANGE, max(len(a.change) for a in forecast.advice))
    for a in forecast.advice:
        mark = _MARKS.get(a.then_verdict, ("not alone", "warn"))
        saved = f"  saves {gib(a.saves_bytes)}".ljust(20)
        if len(a.change) > widest:
            page.line("  ", mark, "  ", (a.change, "title"))
            page.line(" " * (13 + widest), saved, (page.fitted(a.costs, used=widest + 34), "faint"))
        else:
            page.line(
                "  ", mark, "  ", (a.change.ljust(widest), "title"), saved, (page.fitted(a.costs, used=widest + 34), "faint")
            )


def _notes(page: Page, forecast: Forecast) -> None:
    assumed = [a for a in forecast.assumed if a.value not in _NOT_NATIVE]
    if assumed:
        page.heading("Assumed")
        for a in assumed[:_MOST_ASSUMPTIONS]:
            page.line("  ", f"{a.name} = {a.value}", (f"  {a.because}", "faint"))
        if len(assumed) > _MOST_ASSUMPTIONS:
            page.line("  ", (f"and {len(assumed) - _MOST_ASSUMPTIONS} more (--json lists them)", "faint"))
    for u in forecast.unmodelled:
        bound = f" (at most {gib(u.bound_bytes)})" if u.bound_bytes is not None else ""
        page.line(("not modelled: ", "warn"), f"{u.what}{bound}")
