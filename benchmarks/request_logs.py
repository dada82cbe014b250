"""Logs of single requests and load stages against the simulation: nothing of them is fitted, they are scored.

    python benchmarks/request_logs.py ../shared/kernels

Logs (folders of that path): requests of one H100 under vLLM 0.23, load stages of vLLM on H100 (BLIS), requests under vLLM 0.19
on an RTX 4090 and others (LLMServingSim), closed loops on GeForce cards, llama.cpp on many cards (LocalScore) and on Radeon
8060S. Needs pyarrow. Prints one table; --json prints it as one object; --record keeps the errors of the two logs of vLLM on H100
beside this file, for docs/accuracy_speed.md.
"""

import csv
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

import msgspec

from vramcast.asking.serving import serving_question
from vramcast.errors import VramcastError
from vramcast.models.operations import Batch
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import NEAR, step_of
from vramcast.speed.closed_form import steady
from vramcast.speed.load import Load, Request, drawn
from vramcast.speed.simulation import Served, Server, simulate
from vramcast.speed.step import Step
from vramcast.truth.scoring import quantile

Row = dict[str, Any]
# What the clients of the first log can hold open at once: its overloaded points never have more requests alive than this.
CLIENTS = 256
# The pools of prompts of BLIS's loads are in the prefix cache after the first minute: about one block of each is computed.
UNCACHED = 16
# Its clients give up after five minutes: the longest of each overloaded run's answers took 298 to 300 s, thousands failed. The
# server goes on with what nobody waits for; means are over answers that came in time.
PATIENCE_S = 300


RECORD = Path(__file__).with_suffix(".json")
RECORDED = ("vllm_request_traces", "blis_observations")
# Measured over simulated percentiles of all logs that have them, for the bars of percentiles (truth/write_speed_accuracy.py).
PERCENTILES = Path(__file__).with_name("percentiles.json")
PLACES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
RATIOS: list[Row] = []


def _short(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def main(folder: Path, *, as_json: bool) -> None:
    """Score every log there is."""
    found: list[Row] = []
    for part in (_traces, _stages, _requests, _consumer, _localscore, _strix):
        found += list(part(folder))
    if "--record" in sys.argv[2:]:
        kept = [row for row in found if row["log"] in RECORDED]
        PERCENTILES.write_text("[\n" + ",\n".join(json.dumps(row) for row in RATIOS) + "\n]\n")
        RECORD.write_text(json.dumps([{k: _short(v) for k, v in row.items()} for row in kept], indent=1) + "\n")
    if as_json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    for log in dict.fromkeys(row["log"] for row in found):
        rows = [row for row in found if row["log"] == log]
        sys.stdout.write(f"\n{log}: {len(rows)} points\n")
        for row in rows if len(rows) <= 24 else ():
            said = "  ".join(f"{key} {row[key]:+.1%}" for key in row if key not in ("log", "point"))
            sys.stdout.write(f"  {row['point']:44} {said}\n")
        for key in dict.fromkeys(key for row in rows for key in row if key not in ("log", "point")):
            errors = [row[key] for row in rows if key in row]
            text = f"mean |error| {mean(map(abs, errors)):.1%}, median {median(map(abs, errors)):.1%}, bias {median(errors):+.1%}"
            sys.stdout.write(f"  {key:14} {text}\n")


def _step(model: str, gpu: str, *, options: Row | None = None, **words: Any) -> Step:
    return step_of(answer_of(serving_question(model, gpu=gpu, options=options or {}, **words).question))


def _errors(served: list[Served], measured: Row) -> Row:
    """Relative errors of the means that were measured, by name."""
    means = {name: mean(getattr(one, f"{name}_s") for one in served) for name in ("ttft", "tpot", "e2e")}
    return {name: means[name] / value - 1 for name, value in measured.items() if value}


def _ratios(group: str, served: list[Served], measured: dict[str, dict[str, float]]) -> None:
    """Keep measured/simulated of each percentile of each time (seconds)."""
    for name, places in measured.items():
        values = sorted(getattr(one, f"{name}_s") for one in served)
        for place, value in places.items():
            simulated = quantile(values, PLACES[place])
            if value > 0 and simulated > 0:
                RATIOS.append({"group": group, "measure": f"{name}_{place}", "ratio": round(value / simulated, 4)})


def _keeps_up(step: Step, load: Load) -> bool:
    """Whether a rate is far enough from the largest that an answer prints bars of its percentiles (speed/answer.py, NEAR)."""
    return load.rate_per_s < NEAR * steady(step, load).most_per_s


def _places(values: list[float]) -> dict[str, float]:
    return {place: quantile(sorted(values), share) for place, share in PLACES.items()}


def _traces(folder: Path) -> Any:
    from pyarrow import parquet

    groups = defaultdict(list)
    for row in parquet.read_table(folder / "vllm_request_traces/qwen3_14b_h100.parquet").to_pylist():
        groups[row["point"]].append(row)
    step = _step("Qwen/Qwen3-14B", "H100", engine="vllm==0.23.0", context=4096)
    for point, rows in sorted(groups.items()):
        rows.sort(key=lambda row: row["start_s"])
        trace = tuple(Request(r["start_s"], r["num_input_tokens"], r["num_output_tokens"]) for r in rows)
        rate = len(rows) / max(1.0, rows[-1]["start_s"])
        full = mean(r["e2e_ms"] for r in rows) / 1e3 * rate > 0.9 * CLIENTS
        load = Load(prompt=1024, output=128, trace=trace)
        served = _overloaded(step, point, len(rows)) if full else Server(step, load).run(trace)
        means = {name: mean(r[f"{name}_ms"] for r in rows) / 1e3 for name in ("ttft", "tpot", "e2e")}
        lengths = {n: mean(r[f"num_{n}_tokens"] for r in rows) for n in ("input", "output")}
        if not full and _keeps_up(step, Load(prompt=lengths["input"], output=lengths["output"], rate_per_s=rate)):
            spread = {name: _places([r[f"{name}_ms"] / 1e3 for r in rows]) for name in ("ttft", "tpot", "e2e")}
            _ratios("traces H100 Qwen3-14B", served, spread)
        yield {"log": "vllm_request_traces", "point": f"{point} {rate:.1f}/s{' full' * full}", **_errors(served, means)}


def _overloaded(step: Step, point: str, count: int) -> list[Served]:
    """A point whose log shows when its clients could send, not what they were offered: Poisson at the rate of its name."""
    load = Load(prompt=1024, output=128, rate_per_s=float(re.sub(r"\D", "", point)))
    return Server(step, load).run(drawn(load, count), clients=CLIENTS)


def _stages(folder: Path) -> Any:
    for line in (folder / "blis_observations/runs.jsonl").read_text().splitlines():
        run = json.loads(line)
        options = {"max_num_batched_tokens": run["max_num_batched_tokens"], "max_num_seqs": run["max_num_seqs"]}
        step = _step(run["model"], f"H100x{run['tp']}", engine="vllm==0.15.1", context=run["max_model_len"], options=options)
        cached = max(0.0, 1 - UNCACHED / run["input_len"])
        for stage, duration in zip(run["per_stage"], (part["duration"] for part in run["stages"]), strict=True):
            ttft, e2e = stage["ttft_ms"]["mean"] / 1e3, stage["e2e_ms"]["mean"] / 1e3
            output = _tokens_out(run)
            load = Load(prompt=run["input_len"], output=output, rate_per_s=stage["rate"], cached=cached)
            means = {"ttft": ttft, "tpot": (e2e - ttft) / (output - 1), "e2e": e2e}
            name = f"{run['id'].split('-', 3)[-1]} {stage['rate']:g}/s"
            served = simulate(step, load)
            if run["failures"]:
                every = Server(step, load).run(drawn(load, round(stage["rate"] * duration)))
                served = [one for one in every if one.e2e_s < PATIENCE_S]
            elif _keeps_up(step, load):
                told = {"ttft": stage["ttft_ms"], "e2e": stage["e2e_ms"]}
                places = {"p50": "median", "p90": "p90", "p99": "p99"}
                _ratios(f"blis {run['model']} tp{run['tp']}", served,
                        {n: {p: v[key] / 1e3 for p, key in places.items()} for n, v in told.items()})  # fmt: skip
            yield {"log": "blis_observations", "point": name, **_errors(served, means)}


def _tokens_out(run: Row) -> float:
    """Tokens that the server streamed: ``output_len`` counts the text tokenised again, which Llama-2-7B's is shorter by a fifth.

    Two chunks come for each token (README of the data), so that the mean chunk interval tells them apart: half a TPOT.
    """
    streamed = (run["e2e_ms"]["mean"] - run["ttft_ms"]["mean"]) / (2 * run["itl_ms"]["mean"]) + 1
    return float(streamed if streamed > 1.1 * run["output_len"] else run["output_len"])


_MODELS = {
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen3-32B": "Qwen/Qwen3-32B",
    "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
}


def _requests(folder: Path) -> Any:
    groups = defaultdict(list)
    with (folder / "llmservingsim/vllm_requests.csv").open() as file:
        for row in csv.DictReader(file):
            groups[row["card"], row["model"]].append({k: float(v) for k, v in row.items() if k.endswith(("_s", "_toks"))})
    for (card, model), rows in groups.items():
        rows.sort(key=lambda row: row["t_arrival_s"])
        name = "RTX PRO 6000" if card.startswith("RTXPRO") else re.sub(r"^RTX", "RTX ", card)
        try:
            step = _step(_MODELS.get(model, model), name, engine="vllm==0.19.0", context=8192)
        except VramcastError as error:
            sys.stderr.write(f"{card} {model}: {error}\n")
            continue
        trace = tuple(Request(r["t_arrival_s"], int(r["input_toks"]), int(r["output_toks"])) for r in rows)
        served = Server(step, Load(prompt=1024, output=512, trace=trace)).run(trace)
        ttft = mean(r["first_token_s"] - r["t_arrival_s"] for r in rows)
        tpot = mean((r["last_token_s"] - r["first_token_s"]) / max(1, r["output_toks"] - 1) for r in rows)
        means = {"ttft": ttft, "tpot": tpot, "e2e": mean(r["last_token_s"] - r["t_arrival_s"] for r in rows)}
        rate = len(rows) / max(1.0, rows[-1]["t_arrival_s"])
        lengths = {n: mean(r[f"{k}_toks"] for r in rows) for n, k in (("prompt", "input"), ("output", "output"))}
        if not _keeps_up(step, Load(rate_per_s=rate, **lengths)):
            yield {"log": "llmservingsim", "point": f"{card} {model}", **_errors(served, means)}
            continue
        firsts = [r["first_token_s"] - r["t_arrival_s"] for r in rows]
        gaps = [(r["last_token_s"] - r["first_token_s"]) / max(1, r["output_toks"] - 1) for r in rows]
        _ratios(f"llmservingsim {card} {model}", served, {
            "ttft": _places(firsts), "tpot": _places(gaps), "e2e": _places([r["last_token_s"] - r["t_arrival_s"] for r in rows]),
        })  # fmt: skip
        yield {"log": "llmservingsim", "point": f"{card} {model}", **_errors(served, means)}


def _consumer(folder: Path) -> Any:
    for line in (folder / "consumer_vllm/serving.jsonl").read_text().splitlines():
        run = json.loads(line)
        flags, load = run["vllm"], run["aiperf"]
        if run.get("status") != "success" or "lora" in run["id"]:
            continue
        options = {k: flags[k] for k in ("max_num_batched_tokens", "gpu_memory_utilization") if k in flags}
        kv = "fp8" if str(flags.get("kv_cache_dtype")).startswith("fp8") else None
        try:
            step = _step(
                run["model"], f"{run['gpu']}x{run['n_gpus']}", engine="vllm==0.12.0", context=flags["max_model_len"],
                kv_dtype=kv, options=options,
            )  # fmt: skip
        except VramcastError as error:
            sys.stderr.write(f"{run['id']}: {error}\n")
            continue
        clients = load["concurrency"]
        asked = Load(
            prompt=load["synthetic_input_tokens_mean"], output=load["output_tokens_mean"], concurrency=clients, spread=0.1
        )
        served = simulate(step, asked, count=load.get("request_count") or 500)
        keys = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}
        told = {n: {p: run[f"{key}_ms_{p}"] / 1e3 for p in PLACES if f"{key}_ms_{p}" in run} for n, key in keys.items()}
        _ratios(f"consumer {run['gpu']}x{run['n_gpus']} {run['model']}", served, told)
        means = {"ttft": run["time_to_first_token_ms_avg"] / 1e3, "tpot": run["inter_token_latency_ms_avg"] / 1e3}
        yield {"log": "consumer_vllm", "point": run["id"].removeprefix("holtmann/")[:44], **_errors(served, means)}


_LOCAL = {
    "Meta Llama 3.1 8B Instruct": "meta-llama/Llama-3.1-8B-Instruct", "Qwen2.5 14B Instruct": "Qwen/Qwen2.5-14B-Instruct",
    "Llama 3.2 1B Instruct": "meta-llama/Llama-3.2-1B-Instruct",
}  # fmt: skip


def _localscore(folder: Path) -> Any:
    with (folder / "localscore/results.csv").open() as file:
        for row in csv.DictReader(file):
            if row["accel_type"] != "GPU" or row["model_name"] not in _LOCAL or "Q4_K" not in row["model_quant"]:
                continue
            try:
                step = _step(_LOCAL[row["model_name"]], row["accel_name"], engine="llama.cpp", quant="Q4_K_M", context=4096)
                prompt = 1024 / step.seconds(Batch(prefills=1, prefill_tokens=1024))
            except (VramcastError, ZeroDivisionError):
                continue
            measured = float(row["prompt_tps"] or 0)
            if measured > 0:
                yield {"log": "localscore", "point": row["accel_name"], "prompt_tps": prompt / measured - 1}


def _strix(folder: Path) -> Any:
    from pyarrow import parquet

    rows = parquet.read_table(folder / "strix_halo/llama_bench_sweep.parquet").to_pylist()
    seen = {key for row in rows for key, value in row.items() if isinstance(value, str)}
    sys.stderr.write(
        f"strix_halo: {len(rows)} rows, by {', '.join(sorted(seen))}: builds and back ends change it twofold, not scored\n"
    )
    yield from ()


if __name__ == "__main__":
    del msgspec
    main(Path(sys.argv[1]), as_json="--json" in sys.argv[2:])
