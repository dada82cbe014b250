"""The ledger of the worst card: a bar, its terms, what is needed and claimed; the moments of a step; one term opened."""

from vramcast.asking.wording import term_in
from vramcast.cli.pages.page import Page, cells, filled
from vramcast.cli.pages.speed import opened_time
from vramcast.errors import unknown_name
from vramcast.language import spoken
from vramcast.ledger import Forecast, Instant, RankMemory, Term
from vramcast.planning.verdict import missing_bytes
from vramcast.quantity import SECONDS
from vramcast.units import gib

_MOST_CELLS = 40
# Names of the contract: a ledger without one has none of it.
CONTRACT = frozenset(
    {"weights", "kv_cache", "state", "activations", "logits", "graphs", "workspace", "communication", "context", "gradients"}
    | {"optimizer", "master_weights", "loss", "gathered", "temporaries"}
)
_BESIDE_CELLS = 54  # name, size and the mark of the peak


def ledger(page: Page, forecast: Forecast) -> None:
    """The card as a bar and a table; where the need goes beyond the card, the bar does, with a line where the card ends."""
    rank = forecast.worst
    terms = [t for t in rank.terms if t.bytes]
    held = sum(t.bytes for t in terms)
    missing = missing_bytes(forecast)
    capacity = forecast.fit.capacity_bytes or held
    page.heading(_title(forecast, rank))
    whole = max(capacity, held + missing)
    label = gib(capacity, 1) if whole == capacity else f"{gib(whole, 1)} on {gib(capacity, 1)}"
    page.bar([*((t.name, t.bytes) for t in terms), ("missing", missing)], total=whole, label=label, end=capacity)
    say = spoken()
    width = max(15, *(cells(term_in(t.name, say)) + 1 for t in terms)) if terms else 15
    for term in terms:
        share = f"{term.bytes / capacity:>{'7.1%' if term.bytes < 10 * capacity else '7.0%'}}  "
        legend = f"{page.mark(term.name)} " if page.terminal else ""
        why = page.fitted(say.formula(term.why), used=27 + width)
        page.line("  ", (legend, term.name), (filled(term_in(term.name, say), width), term.name),
                  (gib(term.bytes).rjust(12), "number"), share, (why, "faint"))  # fmt: skip
    _sums(page, forecast, rank, missing)


def _sums(page: Page, forecast: Forecast, rank: RankMemory, missing: int) -> None:
    """Needed with its error bar, counters, what is claimed and missing, and the other ranks."""
    _sum_line(page, spoken()("needed"), rank.needed_bytes, _interval(rank))
    if rank.first_step_bytes is not None:
        counters = {"allocated": rank.allocated_bytes, "reserved": rank.reserved_bytes, "device": rank.device_bytes}
        said = "  ·  ".join(f"{spoken()(f't-{name}')} {gib(size)}" for name, size in counters.items())
        page.line("  ", _indent(page), (said, "faint"))
    if rank.claimed_bytes > rank.needed_bytes:
        _sum_line(page, spoken()("t-claimed"), rank.claimed_bytes, spoken()("t-claimed-why"))
    pool = forecast.limits.cache_bytes
    if missing and pool is not None:
        wanted = spoken()("t-wanted", wanted=gib(pool + missing), room=gib(pool))
        page.line("  ", _indent(page), (wanted, "warn"))
    if len(forecast.ranks) > 1:
        others = ", ".join(f"{r.rank} {gib(r.needed_bytes)}" for r in forecast.ranks if r is not rank)
        page.line("  ", (spoken()("t-other-ranks", others=others), "faint"))


def _sum_line(page: Page, name: str, size_bytes: int, note: str) -> None:
    start = (_indent(page) + filled(name, 15), "title")
    page.line("  ", start, (gib(size_bytes).rjust(12), "number"), "  ", (note, "faint"), hang=len(_indent(page)) + 31)


def _indent(page: Page) -> str:
    return "  " if page.terminal else ""


def _title(forecast: Forecast, rank: RankMemory) -> str:
    say = spoken()
    which = f"{say('t-rank', rank=rank.rank)}, " if len(forecast.ranks) > 1 else ""
    if len(rank.instants) == 1 and not which:
        return say("memory")
    return say("t-memory", moment=f"{which}{say.moment(rank.peak.name)}")


def _interval(rank: RankMemory) -> str:
    if rank.interval is None:
        return ""
    i = rank.interval
    low, high = gib(i.low_bytes), gib(i.high_bytes)
    return spoken()("t-interval", low=low, high=high, share=f"{i.coverage:.0%}", cases=i.cases)


def instants(page: Page, rank: RankMemory) -> None:
    """The moments of a step, each with its own bar, the peak marked."""
    page.heading(spoken()("t-steps"))
    peak, say = rank.peak.bytes, spoken()
    names = {id(instant): say.moment(instant.name) for instant in rank.instants}
    widest = max(28, *(cells(name) + 1 for name in names.values()))
    room = max(4, min(_MOST_CELLS, page.width - _BESIDE_CELLS - (widest - 28)))
    for instant in rank.instants:
        mark = (f"  ← {say('t-peak')}", "bad") if instant is rank.peak else ("", "")
        drawn = "▇" * max(1, round(instant.bytes / peak * room)) if page.terminal and peak else ""
        page.line(
            "  ", filled(names[id(instant)], widest), (gib(instant.bytes).rjust(12), "number"), "  ", (drawn, "faint"), mark
        )
    if rank.runner_up:
        page.line("  ", (_lead_text(peak, rank.runner_up), "faint"), hang=2)
    if rank.first_step_bytes is not None and rank.first_step_bytes < peak:
        page.line("  ", (say("t-first-step", size=gib(rank.first_step_bytes)), "faint"), hang=2)


def _lead_text(peak_bytes: int, second: Instant) -> str:
    """How far the peak stands above the moment that comes next."""
    say, lead = spoken(), peak_bytes - second.bytes
    name = say.moment(second.name)
    return say("t-lead", size=gib(lead), moment=name) if lead else say("t-no-lead", moment=name)


def term_page(forecast: Forecast, name: str) -> Page:
    """One term of the worst rank or of the host, opened down to its formulas; a word of the glossary, explained.

    Raises QuestionError for a name that is neither.
    """
    from vramcast.cli.help.glossary import GLOSSARY

    terms = [
        *forecast.speed.get("terms", ()),
        *forecast.worst.terms,
        *(t for instant in forecast.worst.instants for t in instant.terms),
        *forecast.host,
    ]
    found = next((hit for t in terms if (hit := t.find(name))), None)
    page = Page()
    if found is not None:
        _opened(page, found)
    elif name in CONTRACT and name not in ("activations", "state", "context"):
        page.line((name, "title"), "  ", ("0 B", "number"), "  nothing of it in this question")
        page.line("  ", GLOSSARY.get(name, ""))
    elif name.lower() == "tpot" and "ttft_s" in forecast.speed:  # an encoder's: a model that generates has the term
        page.line(("tpot", "title"), "  ", spoken()("t-no-tpot"))
        page.line("  ", GLOSSARY["tpot"])
    elif name.lower() in GLOSSARY:
        page.line((name.lower(), "title"), "  ", GLOSSARY[name.lower()])
    else:
        raise unknown_name("term", name, [*(t.name for term in terms for _, t in term.walk()), *GLOSSARY])
    return page


def _opened(page: Page, term: Term, depth: int = 0) -> None:
    """A term with its formula and source; parts that have no parts of their own are lines of one table."""
    margin, say = "  " * depth, spoken()
    if term.unit == SECONDS:
        opened_time(page, term, depth)
        return
    page.line(margin, (term.name, "title"), "  ", (gib(term.bytes, 3), "number"), f"  {term.bytes:,} B")
    page.line(margin, "  = ", say.formula(term.why))
    if term.source:
        page.line(margin, "  ", (f"{say('source')}: {term.source}", "faint"))
    if len(term.terms) > 1 and not any(part.terms or part.source for part in term.terms):
        rows = [
            (margin + part.name, gib(part.bytes, 3), f"{part.bytes / (term.bytes or 1):.1%}", say.formula(part.why))
            for part in term.terms
        ]
        page.table(rows, styles=("title", "number", "", "faint"))
        return
    for part in term.terms:
        _opened(page, part, depth + 1)
