"""An answer as a card of HTML for notebooks: verdict, a stacked bar of the worst card, the terms with their formulas."""

from html import escape

from vramcast.charts.palette import VERDICTS, colour_of
from vramcast.ledger import Forecast, Term
from vramcast.planning.verdict import headline
from vramcast.units import count, gib


def answer_html(forecast: Forecast) -> str:
    """The card; every text of it is escaped."""
    rank, fit = forecast.worst, forecast.fit
    terms = [t for t in rank.terms if t.bytes]
    whole = max(sum(t.bytes for t in terms), fit.capacity_bytes or 0)
    w, m = forecast.workload, forecast.model
    if not terms:
        return f"<div>{escape(m.id)}: {escape(headline(fit))}</div>"
    where = f"{w.get('gpus', 1)} x {w['gpu']}" if w.get("gpu") else "no card named"
    what = str(w.get("engine") or w.get("framework"))
    return (
        '<div style="font-family:system-ui,sans-serif;max-width:52em">'
        f"<div><b>{escape(m.id)}</b> {escape(count(m.parameters))} parameters, {escape(where)}, {escape(what)}</div>"
        f"{_verdict(forecast)}{_bar(terms, whole)}"
        f'<table style="font-size:90%">{"".join(_row(t) for t in terms)}</table>'
        f"<div>needed <b>{escape(gib(rank.needed_bytes))}</b>, {escape(rank.peak.name)}</div></div>"
    )


def _verdict(forecast: Forecast) -> str:
    fit = forecast.fit
    if fit.verdict == "unknown":
        return ""
    word = escape("does not start" if fit.refused else fit.verdict).upper()
    badge = f'<span style="color:#fff;background:{VERDICTS[fit.verdict]};padding:0 .5em;border-radius:.3em">{word}</span>'
    return f'<div style="margin:.4em 0">{badge} {escape(headline(fit))}</div>'


def _bar(terms: list[Term], whole: int) -> str:
    parts = "".join(
        f'<div title="{escape(t.name)} {escape(gib(t.bytes))}" '
        f'style="width:{100 * t.bytes / whole:.3f}%;background:{colour_of(t.name)}"></div>'
        for t in terms
    )
    return f'<div style="display:flex;height:1.4em;background:#e6e6e6;border-radius:.3em;overflow:hidden">{parts}</div>'


def _row(term: Term) -> str:
    dot = f'<span style="color:{colour_of(term.name)}">&#9632;</span>'
    size = f'<td style="text-align:right;white-space:nowrap">{escape(gib(term.bytes))}</td>'
    left = '<td style="text-align:left">'
    return f"<tr>{left}{dot} {escape(term.name)}</td>{size}{left}{escape(term.why)}</td></tr>"
