"""What the simulation adds to an answer: percentiles, goodput under a service level, the largest rate that meets it."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.serving.engines.base import Answer
from vramcast.speed.answer import Speed, check_lengths, step_of
from vramcast.speed.load import Load, Request
from vramcast.speed.placing import replicas_of
from vramcast.speed.simulation import Served, simulate
from vramcast.truth.scoring import quantile
from vramcast.truth.speed_bars import percentile_bars
from vramcast.units import MiB
from vramcast.untrusted import read_bytes, shown

_MOST_LINES, _MOST_BYTES = 1_000_000, 256 * MiB
_SEARCHES, _WITHIN = 9, 0.9


def under_load(answer: Answer, speed: Speed) -> dict[str, Any]:
    """Percentiles of a simulated run of the load, and what a service level makes of it.

    Raises QuestionError for a file of requests that cannot be read as one, or that holds one longer than the model takes.
    """
    traffic, load = answer.resolved.question.traffic, speed.load
    if traffic.requests:
        load = msgspec.structs.replace(load, trace=_taken(answer, read_requests(traffic.requests), generates=speed.generates))
    run, more = _runner(answer)
    served = run(load, 0)
    barred = answer.resolved.question.engine if load.rate_per_s and speed.state == "steady" else ""
    found: dict[str, Any] = {
        "percentiles": percentiles(served, engine=barred),
        "simulated_requests": len(served),
        **more,
    }
    if not speed.generates:
        del found["percentiles"]["tpot_s"]
    if load.rate_per_s > speed.most_per_s:
        found["warning"] = (
            f"{load.rate_per_s:,.6g} requests/s are more than {speed.cards} card{'s' * (speed.cards > 1)} can serve: "
            "the queue grows without end; "
            f"the largest rate is {speed.most_per_s:,.3g}/s; times are those of {len(served):,} requests and grow with more"
        )
    elif speed.state == "near saturation":
        found["warning"] = (
            f"{load.rate_per_s:,.6g} requests/s are {load.rate_per_s / speed.most_per_s:.0%} of the largest rate: a step a tenth "
            f"longer than forecast would let the queue grow"
        )
    level = (traffic.ttft_s, traffic.tpot_s if speed.generates else None)
    if any(level):
        good = _within(served, *level)
        rate = load.rate_per_s or speed.requests_per_s
        found |= {"within_slo": good, "goodput_per_s": good * min(rate, speed.most_per_s)}
        found["largest_rate_within_slo_per_s"] = _largest(run, load, speed, level)
    return found


def _taken(answer: Answer, trace: tuple[Request, ...], *, generates: bool) -> tuple[Request, ...]:
    """The requests of a file, none of which is longer than the model takes; to an encoder they ask for no token."""
    if not generates:
        trace = tuple(msgspec.structs.replace(one, output=1) for one in trace)
    worst = max(trace, key=lambda one: one.prompt + one.output)
    check_lengths(answer.resolved, worst.prompt, worst.output)
    return trace


Runner = Callable[[Load, int], list[Served]]
"""What becomes of a load's requests; the number is how many, 0 for the usual number."""


def _runner(answer: Answer) -> tuple[Runner, dict[str, Any]]:
    """The simulation of the question's server, and what is told of its pools where prefill and decode are apart."""
    if answer.resolved.question.traffic.pools:
        return _of_pools(answer)
    step, copies = step_of(answer), replicas_of(answer.resolved) * answer.resolved.question.parallel.pp
    return lambda load, count: simulate(step, load, copies=copies, count=count), {}


def _of_pools(answer: Answer) -> tuple[Runner, dict[str, Any]]:
    from vramcast.planning.verdict import serving_fit
    from vramcast.speed.disaggregation import simulate_pools
    from vramcast.speed.pools import pools_of, prefill_answer

    pools, _ = pools_of(answer)
    prefill = prefill_answer(answer)
    told = {
        "prefill_workers": pools.prefill_workers, "decode_workers": pools.decode_workers,
        "prefill_cards": pools.prefill.on.ranks, "decode_cards": pools.decode.on.ranks,
        "prefill_fit": serving_fit(prefill, prefill.resolved.card).verdict,
        "prefill_needed_bytes": max(rank.needed_bytes for rank in prefill.ranks),
        "link_bytes_per_s": pools.rate_bytes_per_s,
    }  # fmt: skip
    return lambda load, count: simulate_pools(pools, load, count=count), {"pools": told}


def percentiles(served: list[Served], *, engine: str = "") -> dict[str, dict[str, Any]]:
    """Mean, p50, p90 and p99 of TTFT, TPOT and end-to-end time.

    ``engine``: whose intervals are told, where logs of this kind of load have earned some.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        values = sorted(getattr(one, name) for one in served)
        places = {f"p{p}": quantile(values, p / 100) for p in (50, 90, 99)}
        found[name] = {"mean": sum(values) / len(values), **places}
        if engine:
            found[name]["intervals"] = percentile_bars(name.removesuffix("_s"), places, engine)
    return found


def _within(served: list[Served], ttft_s: float | None, tpot_s: float | None) -> float:
    good = sum((not ttft_s or one.ttft_s <= ttft_s) and (not tpot_s or one.tpot_s <= tpot_s) for one in served)
    return good / len(served)


def _largest(run: Runner, load: Load, speed: Speed, slo: tuple[float | None, float | None]) -> float:
    """The largest rate at which 90 % of requests meet the service level, by halving; 0 where even a lone request does not."""
    low, high = 0.0, speed.most_per_s
    for _ in range(_SEARCHES):
        rate = (low + high) / 2
        tried = msgspec.structs.replace(load, concurrency=0, rate_per_s=rate, trace=())
        met = _within(run(tried, 600), *slo) >= _WITHIN
        low, high = (rate, high) if met else (low, rate)
    return low


def read_requests(name: str) -> tuple[Request, ...]:
    """Requests of a file, one a line: JSON objects or CSV with a header; arrival_s, prompt, output, and cached where known.

    Raises QuestionError where there is no such file, or for a line that is none, quoting it.
    """
    path = Path(name)
    if not path.is_file():
        raise QuestionError(f"no file {shown(name)}: give lines with arrival_s, prompt and output")
    lines = read_bytes(path, most=_MOST_BYTES).decode("utf-8", "replace").splitlines()
    if len(lines) > _MOST_LINES:
        raise QuestionError(f"{path.name} has more than {_MOST_LINES:,} lines")
    rows = _objects(lines, path.name) if _is_json(lines) else _table(lines, path.name)
    found = sorted((_request(row, number, path.name) for number, row in enumerate(rows, 1)), key=lambda one: one.arrival_s)
    if not found:
        raise QuestionError(f"{path.name} holds no requests")
    return tuple(found)


def _objects(lines: list[str], name: str) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found += [msgspec.json.decode(line)] if line.strip() else []
        except (msgspec.DecodeError, ValueError) as error:
            raise QuestionError(f"{name}, line {number} is not JSON: {error}") from None
    return found


def _table(lines: list[str], name: str) -> list[dict[str, Any]]:
    try:
        return list(csv.DictReader(lines))
    except csv.Error as error:
        raise QuestionError(f"{name} is no table of requests: {error}") from None


def _is_json(lines: list[str]) -> bool:
    return bool(lines) and lines[0].lstrip().startswith("{")


def _request(row: dict[str, Any], number: int, name: str) -> Request:
    try:
        cached = int(float(row.get("cached") or 0))
        one = Request(float(row["arrival_s"]), int(float(row["prompt"])), int(float(row["output"])), cached)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise QuestionError(f"{name}, request {number}: expected arrival_s, prompt and output, found {shown(row, 80)}") from None
    if not (
        0 <= one.arrival_s < float("inf") and 0 < one.prompt < 10**9 and 0 < one.output < 10**9 and 0 <= cached <= one.prompt
    ):
        raise QuestionError(f"{name}, request {number}: times and lengths must be positive numbers, found {shown(row, 80)}")
    return one
