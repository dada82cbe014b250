"""Speed as people read it: what one user and all users see, what binds, and a step opened to its formulas."""

from typing import Any

from vramcast.cli.pages.page import Page
from vramcast.language import spoken
from vramcast.ledger import Term
from vramcast.units import DAY_S, gib, time_text


def speed_section(page: Page, speed: dict[str, Any], *, held: bool = True) -> None:
    """The speed block of an answer; ``held``: whether what is asked fits, so that anybody will see it."""
    page.heading(spoken()("speed" if held else "t-speed-if"))
    bars, say = speed.get("intervals", {}), spoken()
    page.table(
        [
            (say("ttft-s" if "tpot_s" in speed else "vector-s"), time_text(speed["ttft_s"]), _bar(bars.get("ttft_s"), time_text)),
            *_in_waves(speed),
            *_of_tokens(speed),
            (say("prefill-tokens-per-s"), f"{speed['prefill_tokens_per_s']:,.0f}", ""),
            (say("t-rate"), f"{speed['largest_rate_per_s']:,.3g}/s", _state(speed)),
        ],
        styles=("", "number", "faint"),
        right=frozenset({1}),
    )  # fmt: skip
    _pools(page, speed.get("pools"))
    binds = say.word("bound", speed["bound"])
    page.line(
        f"  {say('bound')} ",
        (binds, "title"),
        (f"; {say('t-explain-speed' if 'tpot_s' in speed else 't-explain-vector')}", "faint"),
    )
    if "warning" in speed:
        page.line("  ", (speed["warning"], "bad"))
    _percentiles(page, speed)


def _of_tokens(speed: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What a model that generates adds; an encoder makes one vector of a text."""
    if "tpot_s" not in speed:
        return []
    bars, say = speed.get("intervals", {}), spoken()
    return [
        (say("tpot-s"), time_text(speed["tpot_s"]), _bar(bars.get("tpot_s"), time_text)),
        (say("tokens-per-s-per-user"), f"{speed['tokens_per_s_per_user']:,.1f}", ""),
        (say("t-all-users"), f"{speed['tokens_per_s']:,.0f}", _bar(bars.get("tokens_per_s"), lambda x: f"{x:,.0f}")),
        (say("tokens-per-s-per-gpu"), f"{speed['tokens_per_s_per_gpu']:,.0f}", ""),
    ]


def _in_waves(speed: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The time to a first token where all clients send one length."""
    say = spoken()
    return [(f"  {say('ttft-waves')}", time_text(speed["waves"]["ttft_s"]), say("waves-why"))] if "waves" in speed else []


def _pools(page: Page, pools: dict[str, Any] | None) -> None:
    """Prefill and decode apart: how many workers of each, and what a prefill worker needs."""
    if not pools:
        return
    sides = [f"{pools[f'{side}_workers']} {side} of {pools[f'{side}_cards']} cards" for side in ("prefill", "decode")]
    page.line(f"  workers: {', '.join(sides)}; caches move at {pools['link_bytes_per_s'] / 1e9:g} GB/s a card")
    page.line(f"  memory above is a decode worker's; a prefill worker needs {gib(pools['prefill_needed_bytes'])} a card: ",
              (pools["prefill_fit"], "good" if pools["prefill_fit"] == "fits" else "bad"))  # fmt: skip


def training_speed_section(page: Page, speed: dict[str, Any], *, held: bool = True) -> None:
    """The speed of a training step: its time by part, throughput, utilisation, and the whole run where its tokens are told."""
    say = spoken()
    page.heading(say("speed" if held else "t-speed-if"))
    step: Term = speed["terms"][0]
    page.table(
        [
            (say("step-s"), time_text(speed["step_s"]), _bar(speed["intervals"].get("step_s"), time_text)),
            (say("tokens-per-s-per-gpu"), f"{speed['tokens_per_s_per_gpu']:,.0f}", _in_all(speed)),
            ("MFU", f"{speed['mfu']:.1%}", f"HFU {speed['hfu']:.1%}"),
        ],
        styles=("", "number", "faint"),
        right=frozenset({1}),
    )
    shares = [(say.formula(t.name.replace("_", " ")), t.seconds / step.seconds) for t in step.terms]
    page.line(
        f"  {say('t-of-the-step')}: ", (", ".join(f"{name} {share:.0%}" for name, share in shares if share >= 0.005), "faint")
    )
    if speed["unknowns"]:
        told = (say(f"t-unknown-{one['what'].replace('_', '-')}", share=f"{one['of_step']:.0%}") for one in speed["unknowns"])
        page.line(f"  {say('t-wider-for')}: ", (", ".join(told), "faint"), hang=2)
    page.line("  ", (say("t-explain-step"), "faint"))
    if "run" in speed:
        run = speed["run"]
        took = say("t-run", steps=f"{run['steps']:,}", hours=f"{run['gpu_hours']:,.0f}", energy=f"{run['energy_kwh']:,.0f}")
        if run.get("usd") is not None:
            took += say("t-run-usd", usd=f"{run['usd']:,.0f}", price=f"{run['usd_per_gpu_hour']:.2f}")
        page.line(f"  {say('run')}: ", (time_text(run["days"] * DAY_S), "title"), f"  {took}")


def _in_all(speed: dict[str, Any]) -> str:
    """The rate of all cards, where there are several."""
    several = speed["tokens_per_s"] > 1.001 * speed["tokens_per_s_per_gpu"]
    return spoken()("t-in-all", rate=f"{speed['tokens_per_s']:,.0f}") if several else ""


def _state(speed: dict[str, Any]) -> str:
    at_once = spoken()("t-at-once", count=f"{speed['batch']:,.1f}" if speed["batch"] >= 1 else f"{speed['batch']:.2g}")
    return at_once + (f", {speed['state']}" if speed["state"] != "steady" else "")


def _percentiles(page: Page, speed: dict[str, Any]) -> None:
    if "percentiles" not in speed:
        return
    say = spoken()
    first = say("ttft-s" if "tpot_s" in speed else "vector-s")
    names = {"ttft_s": first, "tpot_s": say("tpot-s"), "e2e_s": say("t-whole-request")}
    head = ("", "mean", "p50", "p90", "p99")
    rows = [(names[key], *(time_text(row[p]) for p in head[1:])) for key, row in speed["percentiles"].items()]
    for key, row in speed["percentiles"].items():
        bars = row.get("intervals", {})
        if bars:
            texts = [f"{time_text(bar['low_s'])} to {time_text(bar['high_s'])}" if bar else "" for bar in map(bars.get, head[2:])]
            rows.insert(1 + next(i for i, one in enumerate(rows) if one[0] == names[key]), ("  90% between", "", *texts))
    page.table([head, *rows], styles=("", "number", "number", "number", "number"), right=frozenset({1, 2, 3, 4}))
    if "goodput_per_s" in speed:
        page.line(f"  within the service level: {speed['within_slo']:.1%} of requests, {speed['goodput_per_s']:,.3g}/s; ",
                  f"largest rate with 90% within it: {speed['largest_rate_within_slo_per_s']:,.3g}/s")  # fmt: skip


def _bar(interval: dict[str, Any] | None, text: Any) -> str:
    if not interval:
        return ""
    say = spoken()
    low, high = (value for name, value in interval.items() if name.startswith(("low", "high")))
    if high is None:
        return say("t-bar-open", low=text(low), cases=interval["cases"])
    return say("t-bar", low=text(low), high=text(high), share=f"{interval['coverage']:.0%}", cases=interval["cases"])


def opened_time(page: Page, term: Term, depth: int = 0) -> None:
    """A term of time with its formula and source, its parts below it."""
    margin = "  " * depth
    page.line(margin, (term.name, "title"), "  ", (time_text(term.seconds), "number"))
    page.line(margin, "  = ", spoken().formula(term.why))
    if term.source:
        page.line(margin, "  ", (f"{spoken()('source')}: {term.source}", "faint"))
    for part in term.terms:
        opened_time(page, part, depth + 1)
