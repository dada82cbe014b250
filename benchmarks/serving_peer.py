"""TTFT and TPOT of measured closed loops: aiconfigurator's SDK beside this program, on the same rows.

    PEER/bin/python benchmarks/serving_peer.py truth/speed/serving_latency.jsonl --ask peer.json [--each 3]
    python benchmarks/serving_peer.py truth/speed/serving_latency.jsonl --beside peer.json

PEER is a virtual environment of its own with ``pip install aiconfigurator`` (no GPU needed). The first line asks the peer about
up to ``--each`` rows of every engine, card and model, evenly spaced, and keeps what it says; the second scores both on the rows
that both answer. The rows are a sample of what the peer ships itself (silicon_sample.csv); its kernel tables are measured on
the very cards. Rows of split servers are left out.
"""

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

Row = dict[str, Any]

_SYSTEMS = {
    "B200": "b200_sxm", "B300": "b300_sxm", "GB200": "gb200", "GB300": "gb300", "H100-SXM-80GB": "h100_sxm",
    "H200-SXM-141GB": "h200_sxm", "A100-SXM-80GB": "a100_sxm", "L40S": "l40s",
}  # fmt: skip
_BACKENDS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm"}
_QUANT = {"fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "bf16": "bfloat16", "fp4": "nvfp4"}
_MODELS = {
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
}


def main() -> int:
    """Ask the peer, or score both."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("rows", type=Path)
    asked.add_argument("--ask", type=Path, help="where to keep what the peer says")
    asked.add_argument("--beside", type=Path, help="what the peer said")
    asked.add_argument("--each", type=int, default=3)
    given = asked.parse_args()
    if given.ask:
        said = ask(sampled(given.rows, given.each), given.ask)
        sys.stdout.write(f"{sum('ttft_ms' in one for one in said.values())} of {len(said)} rows answered\n")
    elif given.beside:
        compare(given.rows, json.loads(given.beside.read_text()))
    else:
        asked.error("give --ask or --beside")
    return 0


def sampled(path: Path, each: int) -> list[Row]:
    """Up to ``each`` rows of every engine, card and model, evenly spaced."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for line in path.read_text().splitlines():
        row = json.loads(line)
        s, subject = row["settings"], row["subject"]
        closed = s.get("mode") != "disagg" and isinstance(s.get("concurrency"), int) and "tpot_ms" in row["figures"]
        if closed and "marked" not in row:
            groups[subject["engine"], subject["gpu"], subject["model_id"]].append(row)
    return [rows[(2 * i + 1) * len(rows) // (2 * each)] for i in range(each) for rows in groups.values() if i < len(rows)]


def ask(rows: list[Row], target: Path) -> dict[str, Row]:
    """What the peer says of each row: times in milliseconds, or why it says nothing."""
    import logging

    from aiconfigurator.cli.api import cli_estimate  # type: ignore[import-not-found]  # the peer's own environment has it

    logging.disable(logging.WARNING)
    said: dict[str, Row] = {}
    for row in rows:
        begun = time.perf_counter()
        try:
            question = _question(row)
            try:
                found = cli_estimate(**question)
            except Exception:  # the checkpoint's own formats, where its tables have none for the row's words
                found = cli_estimate(**{name: value for name, value in question.items() if not name.endswith("quant_mode")})
            said[row["id"]] = {"ttft_ms": found.ttft, "tpot_ms": found.tpot, "seconds": time.perf_counter() - begun}
        except Exception as error:  # a peer may refuse in any way; the row is counted as not answered
            said[row["id"]] = {"refused": f"{type(error).__name__}: {error}"[:200]}
        target.write_text(json.dumps(said, indent=1))
    return said


def _question(row: Row) -> Row:
    s, subject = row["settings"], row["subject"]
    dp = s.get("attention_dp_size") or 1
    gemm, moe = _QUANT.get(str(s.get("gemm_quant"))), _QUANT.get(str(s.get("moe_quant")))
    return {
        "model_path": _MODELS.get(subject["model_id"], subject["model_id"]), "system_name": _SYSTEMS[subject["gpu"]],
        "backend_name": _BACKENDS[subject["engine"]], "isl": s["isl"], "osl": s["osl"],
        "batch_size": max(1, round(s["concurrency"] / dp)), "tp_size": s.get("tp_size") or 1, "pp_size": s.get("pp_size") or 1,
        "attention_dp_size": dp, "moe_tp_size": s.get("moe_tp_size"), "moe_ep_size": s.get("moe_ep_size"),
        **({"gemm_quant_mode": gemm} if gemm else {}), **({"moe_quant_mode": moe} if moe else {}),
    }  # fmt: skip


def compare(path: Path, said: dict[str, Row]) -> None:
    """Median, 90 % and macro errors of both on the rows that both answer."""
    from vramcast.truth.evaluation import evaluate

    ours: dict[tuple[str, str], Any] = {}
    for point in evaluate([path]).points:
        ours[point.id, point.measure] = point
    for measure in ("tpot", "ttft"):
        both = [
            (point.predicted / point.measured - 1, answer[f"{measure}_ms"] / 1e3 / point.measured - 1, _group(point))
            for (row, kind), point in ours.items()
            if kind == measure and (answer := said.get(row, {})).get(f"{measure}_ms")
        ]
        for name, place in (("vramcast", 0), ("aiconfigurator", 1)):
            errors = sorted(abs(one[place]) for one in both)
            groups: dict[str, list[float]] = defaultdict(list)
            for one in both:
                groups[one[2]].append(abs(one[place]))
            macro = statistics.mean(statistics.median(values) for values in groups.values())
            bias = statistics.median(one[place] for one in both)
            sys.stdout.write(
                f"{measure} {name:15} {len(both):4} rows, {len(groups)} groups: median {statistics.median(errors):6.1%}  "
                f"90 % {errors[int(0.9 * (len(errors) - 1))]:6.1%}  macro {macro:6.1%}  bias {bias:+.1%}\n"
            )
    refused = sum("refused" in one for one in said.values())
    sys.stdout.write(f"the peer refused {refused} of {len(said)}\n")


def _group(point: Any) -> str:
    return f"{point.keys['engine']} {point.keys['card']} {point.keys['model']}"


if __name__ == "__main__":
    sys.exit(main())
