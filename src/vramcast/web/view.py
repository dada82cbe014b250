"""An answer as the template needs it: what to draw and what to write, in the visitor's language, nothing of HTML but pictures."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from vramcast.asking.wording import headline_in
from vramcast.charts.answer import card_bar, step_moments, terms_of
from vramcast.charts.palette import colour_of
from vramcast.language import Language, program_and_release, program_name
from vramcast.ledger import Forecast, Interval, Term
from vramcast.planning.verdict import WANTING
from vramcast.units import DAY_S, count, gib, tenths, time_text
from vramcast.web.drawing import pictured
from vramcast.web.problems import Problem

_DECIDING = 10  # assumptions shown before the fold: those that decide most come first in an answer
_SPEED = ("ttft_s", "tpot_s", "tokens_per_s_per_user", "tokens_per_s", "tokens_per_s_per_gpu", "prefill_tokens_per_s")
_STEP = ("step_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "hfu")


def view_of(forecast: Forecast, asked: Mapping[str, Any], kind: str, say: Language) -> dict[str, Any]:
    """Everything that ``answer.html`` shows of a forecast; ``asked`` are the visitor's words, for links and the command."""
    rank, fit, w = forecast.worst, forecast.fit, forecast.workload
    terms = list(terms_of(forecast))
    bar = rank.interval
    program = program_name(str(w.get("engine") or w.get("framework") or ""))
    card = f"{w['gpu']} {gib(fit.capacity_bytes, 1)}" if fit.capacity_bytes else ""
    return {
        "model": forecast.model,
        "parameters": count(forecast.model.parameters),
        "active": count(forecast.model.active_parameters)
        if forecast.model.active_parameters < 0.9 * forecast.model.parameters
        else "",
        "where": f"{w.get('gpus', 1)} x {w['gpu']}" if w.get("gpu") else say("no-card"),
        "engine": program_and_release(w),
        "error": _error(forecast, program, say),
        "fit": fit,
        "verdict": "refused" if fit.refused else fit.verdict,
        "headline": _headline(forecast, say),
        "bar": pictured(card_bar(forecast, say)),
        "edge": card,
        "terms": [_row(t, terms, say) for t in terms],
        "needed": gib(rank.needed_bytes),
        "interval": _interval(bar, say),
        "steps": pictured(step_moments(forecast, say)),
        "limits": _limits(forecast, kind, say),
        "speed": _speed(forecast, say),
        "advice": _advice(forecast, asked, kind, say),
        "cards": _cards(forecast, asked, kind, say),
        "assumed": forecast.assumed[:_DECIDING],
        "folded": forecast.assumed[_DECIDING:],
        "unmodelled": forecast.unmodelled,
        "command": command_of(asked, kind),
    }  # fmt: skip


def _interval(bar: Interval | None, say: Language) -> str:
    if bar is None:
        return ""
    return say("interval", low=gib(bar.low), high=gib(bar.high), cases=bar.cases, share=f"{bar.coverage:.0%}")


def link(asked: Mapping[str, Any], kind: str, **changed: Any) -> str:
    """The address of the question with some words changed; a word that is None is left out. ``kind``: the place, or its start."""
    words = {name: value for name, value in {**asked, **changed}.items() if value not in (None, "")}
    mark = "" if kind.endswith("&") else "?"
    return f"/{kind}{mark}{urlencode(words)}"


def command_of(asked: Mapping[str, Any], kind: str) -> str:
    """The command line that asks the same."""
    line = ["vramcast", *kind.split(), *([str(asked["model"])] if asked.get("model") else [])]
    for name, value in asked.items():
        if name not in ("model", "flags", "lang", "vs") and value not in (None, ""):
            line += [f"--{name.replace('_', '-')}", str(value)]
    try:
        more = shlex.split(str(asked.get("flags") or ""))
    except ValueError:
        more = []
    return shlex.join([*line, *more])


def _headline(forecast: Forecast, say: Language) -> str:
    """What stands behind the verdict's word, as the terminal has it; a refusal stands on its own line."""
    fit = forecast.fit
    return "" if fit.verdict == "unknown" or fit.refused else headline_in(fit, say).replace("  ", ", ")


def _error(forecast: Forecast, program: str, say: Language) -> str:
    """Why it does not start, or what the engine prints when it stops."""
    fit = forecast.fit
    if not fit.error or fit.verdict == "partly":
        return ""
    own = fit.refused or fit.error.startswith("the engine claims")
    return say.formula(fit.error) if own else say("t-stops", program=program, message=fit.error)


def _row(term: Term, terms: list[Term], say: Language) -> dict[str, Any]:
    whole = sum(t.bytes for t in terms) or 1
    parts = [{"name": p.name.replace("_", " "), "size": gib(p.bytes), "why": say.formula(p.why)} for p in term.terms if p.bytes]
    return {
        "id": term.name,
        "name": say.word("term", term.name),
        "colour": colour_of(term.name),
        "size": gib(term.bytes),
        "share": f"{term.bytes / whole:.1%}",
        "why": say.formula(term.why),
        "source": term.source,
        "parts": parts if len(parts) > 1 else [],
    }


def _limits(forecast: Forecast, kind: str, say: Language) -> list[tuple[str, str]]:
    found, training = forecast.limits, kind == "train"
    rows = (
        ("limit-sequence" if training else "limit-context", found.max_context, "{:,}"),
        ("limit-users", found.max_concurrency and tenths(found.max_concurrency), "{:,.1f}"),
        ("limit-requests", found.max_requests and tenths(found.max_requests), "{:,.1f}"),
        ("limit-batch", found.max_micro_batch, "{:,}"),
        ("limit-cache", found.cache_tokens, "{:,}"),
    )
    return [(say(key), form.format(value) if value else say("none")) for key, value, form in rows if value is not None]


def _speed(forecast: Forecast, say: Language) -> list[tuple[str, str, str]]:
    speed, bars = forecast.speed, forecast.speed.get("intervals", {})
    rows = []
    for name in _STEP if "step_s" in speed else _SPEED:
        if (value := speed.get(name)) is None:
            continue
        text = _text_of(name)
        bar = bars.get(name)
        ends = [v for key, v in bar.items() if key.startswith(("low", "high"))] if bar else []
        label = "vector-s" if name == "ttft_s" and "tpot_s" not in speed else name.replace("_", "-")
        rows.append((say(label), text(value), f"{text(ends[0])} ... {text(ends[1])}" if len(ends) == 2 else ""))
        if name == "ttft_s" and "waves" in speed:
            rows.append((say("ttft-waves"), time_text(speed["waves"]["ttft_s"]), say("waves-why")))
    if "run" in speed:
        run = speed["run"]
        rows.append((say("run"), time_text(run["days"] * DAY_S), say("run-more", hours=f"{run['gpu_hours']:,.0f}")))
    if speed.get("bound"):
        rows.append((say("bound"), say.word("bound", speed["bound"]), str(speed.get("warning", ""))))
    return rows


def _text_of(name: str) -> Any:
    if name in ("mfu", "hfu"):
        return lambda x: f"{x:.1%}"
    return (
        time_text
        if name.endswith("_s") and not name.startswith(("tokens", "prefill"))
        else lambda x: f"{x:,.1f}" if x < 100 else f"{x:,.0f}"
    )


def _advice(forecast: Forecast, asked: Mapping[str, Any], kind: str, say: Language) -> list[dict[str, Any]]:
    if forecast.fit.verdict not in WANTING:
        return []
    return [
        {
            "change": a.change,
            "saves": gib(a.saves_bytes) if a.saves_bytes else "",
            "costs": say.phrase("cost", a.costs),
            "verdict": a.then_verdict if a.then_verdict not in ("", "no") else "unknown",
            "word": say("not-alone") if a.then_verdict in ("", "no") else say(f"verdict-{a.then_verdict}"),
            "link": _applied(a.change, asked, kind),
        }
        for a in forecast.advice
    ]


def _applied(change: str, asked: Mapping[str, Any], kind: str) -> str:
    """The question with the change in it: our own words in their fields, an engine's flags behind the others."""
    from vramcast.asking.visitor import SERVING_WORDS, TRAINING_WORDS

    known = SERVING_WORDS if kind == "serve" else TRAINING_WORDS
    changed: dict[str, Any] = {}
    flags = [str(asked.get("flags") or "")]
    for name, value in _pairs(change):
        field = name.removeprefix("--").replace("-", "_")
        if name.startswith("--") and field in known:
            changed[field] = value or "1"
        else:
            flags.append(f"{name} {value}".strip())
    more = " ".join(filter(None, flags)) if kind == "serve" else None
    return link(asked, kind, **{"flags": more, **changed})


def _pairs(change: str) -> Iterable[tuple[str, str]]:
    """Flags with their values; a flag without one stands with an empty text."""
    words = change.split()
    i = 0
    while i < len(words):
        name, equals, value = words[i].partition("=")
        i += 1
        if not equals and i < len(words) and not words[i].startswith("--"):
            value = words[i]
            i += 1
        yield name, value


def _cards(forecast: Forecast, asked: Mapping[str, Any], kind: str, say: Language) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{c.gpus} x {c.gpu}",
            "verdict": c.verdict,
            "needed": f"{gib(c.needed_bytes, 1)} / {gib(c.capacity_bytes, 1)}",
            "price": f"${c.cloud_usd_per_hour * c.gpus:.2f}/h" if c.cloud_usd_per_hour else "",
            "layout": say.formula(c.layout),
            "word": say(f"t-mark-{c.verdict}"),
            "link": link(asked, kind, gpu=f"{c.gpu}x{c.gpus}" if c.gpus > 1 else c.gpu),
        }
        for c in forecast.cards
    ]


def shown_of(forecast: Forecast, words: Mapping[str, Any], kind: str, say: Language) -> dict[str, Any]:
    """What a template needs to draw an answer: the view, the words as asked, the addresses of its pictures and its JSON."""
    here = {**words, "lang": say.code}
    more = f"/pictures?{urlencode(here)}" if kind == "serve" and words.get("gpu") and words.get("model") else ""
    return {
        "say": say, "asked": dict(words), "answer": view_of(forecast, here, kind, say), "more_link": more,
        "json_link": link(words, f"api/{kind}"),
    }  # fmt: skip


def with_links(problem: Problem, words: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A problem with the words it offers as addresses of the mended question."""
    field = problem.field or "model"
    return {
        "detail": problem.detail,
        "field": problem.field,
        "offers": [(word, link(words, kind, **{field: word})) for word in problem.suggestions],
    }
