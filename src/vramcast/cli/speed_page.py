"""Speed as people read it: what one user and all users see, what binds, and a step opened to its formulas."""

from typing import Any

from vramcast.cli.page import Page
from vramcast.language import spoken
from vramcast.ledger import Term
from vramcast.units import gib, time_text

_BINDS = {
    "bandwidth": "memory bandwidth", "compute": "arithmetic of the matrix units", "launch": "launches of small kernels",
    "unit": "many short sequences", "link": "the link between cards", "host": "the engine's host code",
    "link to the host": "the card's link to host memory",
}  # fmt: skip


def speed_section(page: Page, speed: dict[str, Any]) -> None:
    """The speed block of an answer."""
    page.heading(spoken()("speed"))
    bars, say = speed.get("intervals", {}), spoken()
    page.table(
        [
            (say("ttft-s"), time_text(speed["ttft_s"]), _bar(bars.get("ttft_s"), time_text)),
            *_in_waves(speed),
            (say("tpot-s"), time_text(speed["tpot_s"]), _bar(bars.get("tpot_s"), time_text)),
            (say("tokens-per-s-per-user"), f"{speed['tokens_per_s_per_user']:,.1f}", ""),
            (say("t-all-users"), f"{speed['tokens_per_s']:,.0f}", _bar(bars.get("tokens_per_s"), lambda x: f"{x:,.0f}")),
            (say("tokens-per-s-per-gpu"), f"{speed['tokens_per_s_per_gpu']:,.0f}", ""),
            (say("prefill-tokens-per-s"), f"{speed['prefill_tokens_per_s']:,.0f}", ""),
            (say("t-rate"), f"{speed['largest_rate_per_s']:,.3g}/s", _state(speed)),
        ],
        styles=("", "number", "faint"),
        right=frozenset({1}),
    )  # fmt: skip
    _pools(page, speed.get("pools"))
    page.line("  bound by ", (_BINDS.get(speed["bound"], speed["bound"]), "title"), "; --explain tpot and --explain ttft open it")
    if "warning" in speed:
        page.line("  ", (speed["warning"], "bad"))
    _percentiles(page, speed)


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


def training_speed_section(page: Page, speed: dict[str, Any]) -> None:
    """The speed of a training step: its time by part, throughput, utilisation, and the whole run where its tokens are told."""
    page.heading(spoken()("speed"))
    step: Term = speed["terms"][0]
    page.table(
        [
            ("step", time_text(speed["step_s"]), _bar(speed["intervals"].get("step_s"), time_text)),
            ("tokens/s per card", f"{speed['tokens_per_s_per_gpu']:,.0f}", f"{speed['tokens_per_s']:,.0f} in all"),
            ("MFU", f"{speed['mfu']:.1%}", f"HFU {speed['hfu']:.1%}"),
        ],
        styles=("", "number", "faint"),
        right=frozenset({1}),
    )
    shares = ", ".join(f"{t.name.replace('_', ' ')} {t.seconds / step.seconds:.0%}" for t in step.terms if t.seconds > 0)
    page.line("  of the step: ", (shares, "faint"))
    page.line("  --explain step opens it to its laws")
    if "run" in speed:
        run = speed["run"]
        cost = f", {run['usd']:,.0f} USD at {run['usd_per_gpu_hour']:.2f} a card-hour" if run.get("usd") is not None else ""
        took = f"{run['gpu_hours']:,.0f} card-hours, {run['energy_kwh']:,.0f} kWh{cost}"
        page.line("  whole run: ", (time_text(run["days"] * 86_400), "title"), f"  {run['steps']:,} steps, {took}")


def _state(speed: dict[str, Any]) -> str:
    return f"{speed['batch']:,.1f} at once here" + (f", {speed['state']}" if speed["state"] != "steady" else "")


def _percentiles(page: Page, speed: dict[str, Any]) -> None:
    if "percentiles" not in speed:
        return
    names = {"ttft_s": "time to first token", "tpot_s": "time per output token", "e2e_s": "whole request"}
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
                  f"largest rate with 90 % within it: {speed['largest_rate_within_slo_per_s']:,.3g}/s")  # fmt: skip


def _bar(interval: dict[str, Any] | None, text: Any) -> str:
    if not interval:
        return ""
    low, high = (value for name, value in interval.items() if name.startswith(("low", "high")))
    if high is None:
        return f"at least {text(low)}: the queue grows, or may grow ({interval['cases']} measured)"
    return f"{text(low)} to {text(high)} ({interval['coverage']:.0%} of {interval['cases']} measured)"


def opened_time(page: Page, term: Term, depth: int = 0) -> None:
    """A term of time with its formula and source, its parts below it."""
    margin = "  " * depth
    page.line(margin, (term.name, "title"), "  ", (time_text(term.seconds), "number"))
    page.line(margin, "  = ", term.why)
    if term.source:
        page.line(margin, "  ", (f"source: {term.source}", "faint"))
    for part in term.terms:
        opened_time(page, part, depth + 1)
