"""An answer as a card of HTML for notebooks: verdict, the pictures that the page draws, the terms with their formulas."""

from html import escape

from vramcast.asking.wording import headline_in
from vramcast.charts.answer import terms_of, title_of
from vramcast.charts.palette import VERDICTS, colour_of
from vramcast.charts.sheet import pictures_of
from vramcast.charts.svg import drawn
from vramcast.language import Language, spoken
from vramcast.ledger import Forecast, Term
from vramcast.units import count, gib


def answer_html(forecast: Forecast) -> str:
    """The card; every text of it is escaped."""
    say, rank = spoken(), forecast.worst
    terms = terms_of(forecast)
    if not terms:
        return f"<div>{escape(forecast.model.id)}: {escape(headline_in(forecast.fit, say))}</div>"
    pictures = "".join(f'<div style="margin:.5em 0">{drawn(one)}</div>' for one in pictures_of(forecast, say))
    told = say("t-model", parameters=count(forecast.model.parameters), active="", layers=forecast.model.layers)
    peak = escape(say.moment(rank.peak.name))
    return (
        '<div style="font-family:system-ui,sans-serif;max-width:56em">'
        f"<div><b>{escape(title_of(forecast, say))}</b> {escape(told)}</div>"
        f"{_verdict(forecast, say)}{pictures}"
        f'<table style="font-size:90%">{"".join(_row(t, say) for t in terms)}</table>'
        f"<div>{escape(say('needed'))} <b>{escape(gib(rank.needed_bytes))}</b>, {peak}</div></div>"
    )


def _verdict(forecast: Forecast, say: Language) -> str:
    fit = forecast.fit
    if fit.verdict == "unknown":
        return ""
    word = escape(say("t-refused" if fit.refused else f"t-{fit.verdict}"))
    badge = f'<span style="color:#fff;background:{VERDICTS[fit.verdict]};padding:0 .5em;border-radius:.3em">{word}</span>'
    return f'<div style="margin:.4em 0">{badge} {escape(headline_in(fit, say))}</div>'


def _row(term: Term, say: Language) -> str:
    dot = f'<span style="color:{colour_of(term.name)}">&#9632;</span>'
    size = f'<td style="text-align:right;white-space:nowrap">{escape(gib(term.bytes))}</td>'
    left = '<td style="text-align:left">'
    return f"<tr>{left}{dot} {escape(say.word('term', term.name))}</td>{size}{left}{escape(say.formula(term.why))}</td></tr>"
