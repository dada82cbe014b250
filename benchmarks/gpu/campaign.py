"""The campaign: the cases of cases.toml measured on one card, then set beside a trace and the forecast of the same questions.

    python benchmarks/gpu/campaign.py --plan                      what would run, with forecasts and the estimated time
    python benchmarks/gpu/campaign.py --part steps                measure one part; again after a kill: what is finished is kept
    python benchmarks/gpu/campaign.py --compare                   measured, traced and forecast in one table, on any machine
    python benchmarks/gpu/campaign.py --part tiny --device cpu    the script itself, on a processor

Finished cases lie in a store (--store), and as JSON lines that ``vramcast evaluate`` reads beside it.
"""

import argparse
import contextlib
import itertools
import os
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vramcast.cli.pages.page import Page
from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.cards import find_accelerator, local_cards
from vramcast.measuring import campaign
from vramcast.measuring.campaign import Point
from vramcast.measuring.request import Measurement, MeasureRequest
from vramcast.measuring.run import measure_each
from vramcast.measuring.store import Store
from vramcast.models.inventory import Model
from vramcast.models.reading import read_model
from vramcast.planning.measuring import RunSettings, forecast_beside, on_cards, point_of, serving_of, trace_beside
from vramcast.tracing.run import Tracer
from vramcast.truth.case import Case
from vramcast.units import GiB
from vramcast.workload import Adapter, Training

HERE = Path(__file__).parent
# What a case costs beside its steps: CUDA's context and libraries, the first kernels' loading. Its imports run beside the case
# before it, so that no case is shorter than they are.
START_S, IMPORTS_S = 4.0, 6.0
# Shares of the card's dense rate and bandwidth that eager kernels of this size reach, and the time to launch one layer's kernels.
EFFICIENCY, STREAMING, LAUNCH_S = 0.35, 0.7, 0.003
DRAWN_PARAMETERS_PER_S = 4e9
COUNTERS = ("allocated", "reserved", "device")


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A case ready to run: its point, its forecast in bytes, and the seconds that it should take on the card."""

    point: Point
    model: Model
    forecast: dict[str, Any]
    seconds: float


def main(words: list[str] | None = None) -> int:
    """Plan, run or compare the parts that were asked for."""
    given = _arguments().parse_args(words)
    card = None if given.device == "cpu" else card_of(given.gpu)
    parts = tomllib.loads((HERE / "cases.toml").read_text())["parts"]
    names = given.part or [name for name in parts if name != "tiny"]
    by_part = {name: [case for entry in parts[name] for case in plan(entry, card, given)] for name in names}
    if given.plan:
        return show_plan(by_part)
    planned = [case for cases in by_part.values() for case in cases]
    store = Store(given.store)
    if not given.compare:
        run(planned, store, given)
        print(f"{store.export(given.store.with_suffix('.jsonl'))} cases in {given.store.with_suffix('.jsonl')}")
    return compare(planned, store, card, given)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", help="a part of cases.toml (repeatable); all but tiny when absent")
    parser.add_argument("--plan", action="store_true", help="print the cases with forecasts and estimated time, run nothing")
    parser.add_argument("--compare", action="store_true", help="run nothing: set the store's cases beside traces and forecasts")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--gpu", help="plan for, or compare as of, this card; this machine's own when absent, else an H100")
    parser.add_argument("--store", type=Path, default=Path("campaign.sqlite"))
    parser.add_argument("--snapshots", type=Path, help="a folder for the allocator's history of the cases that record it")
    parser.add_argument("--seconds", type=float, default=540, help="start no further case after that long")
    parser.add_argument("--no-trace", action="store_true", help="compare with the forecast alone")
    return parser


def card_of(name: str | None) -> Accelerator:
    """The card of that name, else this machine's first, else an H100 to plan for."""
    if name is None:
        with contextlib.suppress(VramcastError):
            return local_cards()[0].card
    return find_accelerator(name or "H100")


def plan(entry: dict[str, Any], card: Accelerator | None, given: argparse.Namespace) -> Iterator[Planned]:
    """The cases of one entry: one per combination of its grid."""
    grid = entry.get("grid", {})
    for values in itertools.product(*grid.values()):
        yield _planned({**entry, **dict(zip(grid, values, strict=True))}, card, given)


def _planned(fields: dict[str, Any], card: Accelerator | None, given: argparse.Namespace) -> Planned:
    own = {name: fields.pop(name, None) for name in ("grid", "generate", "rank", "kernels", "snapshot")}
    path = os.path.relpath(HERE / "models" / f"{fields['model']}.json")  # so that the questions hold where the repository lies
    adapter = Adapter(rank=own["rank"]) if own["rank"] else None
    asked = on_cards(Training(**{**fields, "model": path}, adapter=adapter), card, 1)
    question = serving_of(asked, own["generate"]) if own["generate"] else asked
    model = read_model(path)
    how = RunSettings(device=given.device, repeats=3, kernels=(own["kernels"],) if own["kernels"] else ())
    point = msgspec.structs.replace(point_of(question, model, card=card, how=how), name=_name(fields, own))
    if own["snapshot"] and given.snapshots:
        file = str(given.snapshots.absolute() / f"{point.name.replace(' ', '_')}.pickle")
        point = msgspec.structs.replace(point, request=msgspec.structs.replace(point.request, snapshot=file))
    return Planned(
        point=point,
        model=model,
        forecast=forecast_beside(question, model, card),
        seconds=estimate_s(point.request, model, card),
    )


def _name(fields: dict[str, Any], own: dict[str, Any]) -> str:
    """What tells a case from the others, in the words of its entry."""
    shown = {k: v for k, v in {**fields, **own}.items() if v and k not in ("grid", "model", "framework", "snapshot")}
    return " ".join([fields["model"], *(f"{k}={v}" for k, v in shown.items())])


def estimate_s(request: MeasureRequest, model: Model, card: Accelerator | None) -> float:
    """Seconds of the card: start, weights drawn, then warm-up and repeats of steps bound by arithmetic, traffic or launches."""
    if card is None:
        return 0.0
    step = request.step
    rate = EFFICIENCY * card.flops["bf16"]
    tokens = step.micro_batch * step.seq * step.accumulate
    # 2 per parameter and token, and the causal half of 4 * seq * width in attention, which is about 2 * seq * hidden a layer.
    forward = tokens * 2 * (model.active_parameters + step.seq * model.hidden * model.layers)
    weights = 2 * model.parameters / (STREAMING * card.bandwidth_bytes_per_s)
    launches = LAUNCH_S * model.layers
    if step.task == "generate":
        one = forward / rate + (step.new_tokens - 1) * max(weights, launches / 3)
    else:
        passes = (2 if step.adapter else 3) + (step.checkpointing != "none")
        update = 0 if step.adapter else 14 * weights  # reads and writes of weight, gradient and two fp32 states
        one = max(passes * forward / rate, launches * step.accumulate) + update
    return max(IMPORTS_S, START_S + model.parameters / DRAWN_PARAMETERS_PER_S + (request.warmup + request.repeats) * one)


def show_plan(parts: dict[str, list[Planned]]) -> int:
    """Print the cases with their forecasts, and the time that they should take by part."""
    page = Page()
    rows = [
        (case.point.name, _gib(case.forecast["allocated_bytes"]), _gib(case.forecast["device_bytes"]), f"{case.seconds:.1f}")
        for cases in parts.values()
        for case in cases
    ]
    page.table([("case", "allocated GiB", "device GiB", "s"), *rows], right=frozenset({1, 2, 3}))
    page.blank()
    for name, cases in parts.items():
        page.line(f"{name}: {len(cases)} cases, about {sum(case.seconds for case in cases) / 60:.1f} minutes of the card")
    page.show()
    return 0


def run(planned: Sequence[Planned], store: Store, given: argparse.Namespace) -> None:
    """Measure what the store does not hold, until the time is spent."""
    if given.snapshots:
        given.snapshots.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + given.seconds

    def in_time(requests: Sequence[MeasureRequest]) -> Iterator[Measurement]:
        measured = measure_each(requests, timeout_s=120)
        while time.monotonic() < ends and (found := next(measured, None)) is not None:
            yield found

    def told(point: Point, case: Case) -> None:
        figures = case.figures
        outcome = "out of memory" if "oom" in figures else case.versions.get("message", "failed") if "failed" in figures else ""
        sizes = "  ".join(f"{name} {figures[name] / GiB:.2f}" for name in COUNTERS if name in figures)
        print(f"{point.name}: {sizes} {outcome}".rstrip(), file=sys.stderr, flush=True)

    campaign.run_campaign([c.point for c in planned], store, on=campaign.identity(given.device), told=told, runner=in_time)


def compare(planned: Sequence[Planned], store: Store, card: Accelerator | None, given: argparse.Namespace) -> int:
    """Measured, traced and forecast, case by case; exit code 1 when none of the cases was measured."""
    by_name = {case.id: case for case in store.cases()}
    found = [(p, by_name[p.point.name]) for p in planned if p.point.name in by_name]
    with Tracer() as tracer:
        traces = [{} if given.no_trace else trace_beside(p.point.request, card, tracer) for p, _ in found]
    page = Page()
    head = ("case", *(f"{c} {w}" for c in COUNTERS[:2] for w in ("GiB", "trace", "forecast")), "device GiB", "forecast", "s")
    rows = [_row(p, case.figures, trace) for (p, case), trace in zip(found, traces, strict=True)]
    page.table([head, *rows], right=frozenset(range(1, len(head))))
    page.blank()
    page.line(f"{len(found)} of {len(planned)} cases measured; trace and forecast as parts of what was measured")
    page.show()
    return 0 if found else 1


def _row(planned: Planned, measured: dict[str, float], trace: dict[str, int]) -> tuple[str, ...]:
    cells = [planned.point.name]
    for counter in COUNTERS[:2]:
        cells += [_gib(measured.get(counter)), _part(trace.get(counter), measured.get(counter))]
        cells.append(_part(planned.forecast[f"{counter}_bytes"], measured.get(counter)))
    cells += [_gib(measured.get("device")), _part(planned.forecast["device_bytes"], measured.get("device"))]
    outcome = "oom" if "oom" in measured else "failed" if "failed" in measured else ""
    seconds = measured.get("step_s", measured.get("run_s"))
    return (*cells, outcome or (f"{seconds:.3g}" if seconds is not None else ""))


def _gib(size: float | None) -> str:
    return "" if size is None else f"{size / GiB:.2f}"


def _part(said: float | None, measured: float | None) -> str:
    return f"{said / measured:.3f}" if said and measured else _gib(said)


if __name__ == "__main__":
    sys.exit(main())
