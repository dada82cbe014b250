"""``vramcast calibrate``: a machine's own speed from its own runs, kept as a profile that later answers name."""

import sys
from pathlib import Path
from statistics import median
from typing import Any

import click
import msgspec

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.cli.pages.page import Page
from vramcast.errors import QuestionError
from vramcast.units import time_text

_EPILOG = """\b
Examples:
  vramcast calibrate runs.jsonl --name lab-4090
  vramcast calibrate bench-*.json --gpu "RTX 4090" --engine vllm==0.19.0 --name lab-4090
  vramcast serve Qwen/Qwen3-14B --gpu 4090 --prompt 1024 --output 256 --profile lab-4090

\b
A run is a JSON object: the words of serve (model, gpu, engine, quant, tp, prompt, output, concurrency or rate) and what was
measured (ttft_s, tpot_s, tokens_per_s); or the result file of vllm bench serve.
"""
_FIGURES = ("ttft_s", "tpot_s", "tokens_per_s")


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--gpu", metavar="NAME[xN]", help="The card, where the runs do not name it.")
@click.option("--engine", metavar="NAME[==VERSION]", help="The engine, where the runs do not name it.")
@click.option("--name", default="mine", show_default=True, help="Name of the profile.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(runs: tuple[Path, ...], gpu: str | None, engine: str | None, name: str, as_json: bool) -> int:
    """Fit three factors (host, bandwidth, compute) to measured RUNS and keep them as a profile."""
    from vramcast.speed.scales import save

    given = {k: v for k, v in (("gpu", gpu), ("engine", engine)) if v}
    profile, rows = calibrated([{**given, **run} for path in runs for run in read_runs(path)], name=name)
    path = save(profile)
    if as_json:
        found = {"schema": "vramcast/1", "profile": msgspec.to_builtins(profile), "file": str(path), "figures": rows}
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
        return 0
    page = Page()
    page.line((profile.name, "title"), f"  {profile.card}, {profile.runs} measured figures, kept in {path}")
    factors = msgspec.structs.asdict(profile.scales)
    page.table(
        [(key, f"x {value:.2f}", "of the class's seconds") for key, value in factors.items()], styles=("", "number", "faint")
    )
    page.line(f"  median error {profile.error_before:.1%} before, {profile.error_after:.1%} after")
    shown = [(row["run"], row["figure"], _text(row, "measured"), _text(row, "before"), _text(row, "after")) for row in rows]
    page.table([("run", "figure", "measured", "before", "after"), *shown], right=frozenset({2, 3, 4}))
    page.show()
    return 0


def _text(row: dict[str, Any], name: str) -> str:
    return f"{row[name]:,.1f}" if row["figure"] == "tokens_per_s" else time_text(row[name])


def calibrated(runs: list[dict[str, Any]], *, name: str) -> tuple[Any, list[dict[str, Any]]]:
    """The profile of these runs, and each figure before and after. Raises QuestionError where a run says too little."""
    from vramcast.speed.scales import Profile, Scales, fit

    asked = [_Run(run, number) for number, run in enumerate(runs, 1)]
    figures = [(run, key) for run in asked for key in _FIGURES if run.measured.get(key)]
    if not figures:
        raise QuestionError(f"no run holds a measured figure: expected one of {', '.join(_FIGURES)}")
    measured = [run.measured[key] for run, key in figures]

    def predict(scales: Scales) -> list[float]:
        return [run.predict(key, scales) for run, key in figures]

    scales = fit(predict, measured)
    before, after = predict(Scales()), predict(scales)
    rows = [
        {"run": run.name, "figure": key, "measured": m, "before": b, "after": a}
        for (run, key), m, b, a in zip(figures, measured, before, after, strict=True)
    ]
    errors = [median(abs(p / m - 1) for p, m in zip(found, measured, strict=True)) for found in (before, after)]
    return Profile(
        name=name, card=asked[0].card, scales=scales, runs=len(figures), error_before=errors[0], error_after=errors[1]
    ), rows


class _Run:
    """One measured run and its forecast under any factors."""

    def __init__(self, run: dict[str, Any], number: int) -> None:
        from vramcast.asking.serving import ServingWords, serving_question
        from vramcast.serving.engines.base import answer_of

        words = {key: value for key, value in run.items() if key in ServingWords.__annotations__ and value is not None}
        if "model" not in run or "gpu" not in words:
            raise QuestionError(f"run {number} names no {'gpu' if 'model' in run else 'model'}: add it, or give --gpu")
        self.name = str(run.get("id") or f"run {number}")[:40]
        self.measured = {key: _positive(run[key], key, number) for key in _FIGURES if run.get(key) is not None}
        options = run.get("options") or {}
        question = serving_question(str(run["model"]), options=options, **{"context": "auto", **words}).question
        self.answer = answer_of(question)
        self.card = self.answer.resolved.card.name if self.answer.resolved.card else ""

    def predict(self, key: str, scales: Any) -> float:
        from vramcast.speed.answer import serving_speed

        speed = serving_speed(self.answer, scales=scales)
        return {"ttft_s": speed.ttft.seconds, "tpot_s": speed.tpot.seconds, "tokens_per_s": speed.tokens_per_s}[key]


def _positive(value: Any, key: str, number: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise QuestionError(f"run {number}: {key} is {str(value)[:40]!r}, expected a number above 0")
    return float(value)


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The runs of a file: JSON lines, or one result of ``vllm bench serve``.

    Raises QuestionError where there is no such file, or for what is neither.
    """
    if not path.is_file():
        raise QuestionError(f"no file {str(path)!r}: give a file of measured runs")
    text = path.read_bytes()
    try:
        whole = msgspec.json.decode(text)
        found = [whole] if isinstance(whole, dict) else list(whole)
    except msgspec.DecodeError:
        found = _lines(text, path)
    return [_of_bench(run) if "mean_tpot_ms" in run else run for run in found if isinstance(run, dict)]


def _lines(text: bytes, path: Path) -> list[Any]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found += [msgspec.json.decode(line)] if line.strip() else []
        except msgspec.DecodeError as error:
            raise QuestionError(f"{path.name}, line {number}: not JSON ({error})") from None
    return found


def _of_bench(run: dict[str, Any]) -> dict[str, Any]:
    """What ``vllm bench serve --save-result`` writes, in our words."""
    done = run.get("completed") or 1
    rate = run.get("request_rate")
    load = {"rate": rate} if isinstance(rate, int | float) and rate < 1e6 else {"concurrency": run.get("max_concurrency")}
    return {
        "id": run.get("date"), "model": run.get("model_id"), "prompt": round(run["total_input_tokens"] / done),
        "output": round(run["total_output_tokens"] / done), "ttft_s": run["mean_ttft_ms"] / 1e3,
        "tpot_s": run["mean_tpot_ms"] / 1e3, **load,
    }  # fmt: skip
