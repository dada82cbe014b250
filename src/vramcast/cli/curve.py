"""``vramcast serve --curve``: throughput against latency as more and more users share a server."""

import sys
from typing import Any

import msgspec

from vramcast.asking.asked import Asked
from vramcast.cli.page import Page
from vramcast.errors import QuestionError
from vramcast.units import time_text
from vramcast.workload import Serving

_WIDEST = 40


def show_curve(asked: Asked[Serving], *, as_json: bool) -> int:
    """Print the curve. Raises QuestionError without a card."""
    points = curve(asked)
    if as_json:
        sys.stdout.buffer.write(
            msgspec.json.format(msgspec.json.encode({"schema": "vramcast/1", "curve": points}), indent=1) + b"\n"
        )
        return 0
    page = Page()
    page.heading("Throughput against latency")
    most = max(point["tokens_per_s"] for point in points)
    head = ("users", "first token", "per token", "tokens/s each", "tokens/s in all", "")
    rows = [
        (f"{p['concurrency']:,}", time_text(p["ttft_s"]), time_text(p["tpot_s"]), f"{1 / p['tpot_s']:,.1f}",
         f"{p['tokens_per_s']:,.0f}", "#" * round(_WIDEST * p["tokens_per_s"] / most))
        for p in points
    ]  # fmt: skip
    page.table([head, *rows], styles=("", "number", "number", "number", "number", "faint"), right=frozenset({0, 1, 2, 3, 4}))
    page.show()
    return 0


def curve(asked: Asked[Serving]) -> list[dict[str, Any]]:
    """Steady states for 1, 2, 4 ... users, up to what seats and cache hold."""
    from vramcast.serving.engines.base import answer_of
    from vramcast.speed.answer import load_of, step_of
    from vramcast.speed.closed_form import steady
    from vramcast.speed.placing import replicas_of

    question = asked.question
    if question.gpu is None:
        raise QuestionError("--curve needs a card: name one with --gpu")
    answer = answer_of(question, model=asked.model)
    step, copies = step_of(answer), replicas_of(answer.resolved) * question.parallel.pp
    load, _ = load_of(question, 1)
    points, users = [], 1
    while users <= 2048:
        tried = msgspec.structs.replace(load, concurrency=users, rate_per_s=0.0)
        found = steady(step, tried, replicas=copies)
        rate = found.requests_per_s * copies
        points.append({
            "concurrency": users, "ttft_s": found.ttft_s, "tpot_s": found.tpot_s, "tokens_per_s": rate * load.output,
            "requests_per_s": rate, "batch": found.batch * copies,
        })  # fmt: skip
        if found.batch * copies < 0.75 * users:
            break
        users *= 2
    return points
