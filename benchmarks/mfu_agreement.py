"""Printed MFU and TFLOP/s of published training runs against the same runs counted here, by source and convention.

    python benchmarks/mfu_agreement.py ../shared/truth/training_speed.jsonl

Each row gives a model, a sequence length, tokens per second per card and what its source printed. The ratio is ours over
theirs; a convention is the source's own when it is 1. Rows that count recomputation, or divide by another peak, show it as
another ratio.
"""

import json
import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from vramcast.errors import VramcastError
from vramcast.hardware.cards import find_accelerator
from vramcast.models.inventory import Model
from vramcast.models.reading import read_model
from vramcast.speed.utilization import CONVENTIONS, training_work

_GPUS = {"H100-SXM-80GB": "H100", "A100-SXM-80GB": "A100-80G", "A100-SXM-40GB": "A100-40G", "A800-80GB": "A800"}


def main(file: str) -> None:
    """Print one line per source and printed figure."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    ratios: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    unread: set[str] = set()
    for line in Path(file).read_text().splitlines():
        _add(json.loads(line), ratios, unread)
    print(f"{'source':52} {'printed':10} {'rows':>5} " + " ".join(f"{name:>14}" for name in CONVENTIONS))
    for (source, printed), by in sorted(ratios.items()):
        cells = " ".join(f"{_middle(by[name]):>14}" for name in CONVENTIONS)
        print(f"{source[:52]:52} {printed:10} {len(by['causal']):5} {cells}")
    print("models that are not described here:", ", ".join(sorted(unread)))


def _middle(values: list[float]) -> str:
    """Median and the width of the middle 80 %."""
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return f"{statistics.median(ordered):.3f} {100 * (high - low):5.1f}%"


def _add(row: dict[str, Any], ratios: Any, unread: set[str], known: dict[str, Model | None] = {}) -> None:  # noqa: B006
    measured, seq = row["measured"], row["settings"].get("seq_len")
    tokens, printed = measured.get("tokens_per_s_per_gpu"), [k for k in ("mfu_pct", "model_tflops_per_gpu") if k in measured]
    if not (tokens and seq and printed):
        return
    name = row["model_id"]
    if name not in known:
        try:
            known[name] = read_model(name)
        except VramcastError:
            known[name] = None
    model = known[name]
    if model is None:
        unread.add(name)
        return
    source = row["source"].split("@")[0].removeprefix("github:") + ":" + row["source"].rsplit(":", 1)[-1].rsplit("/", 1)[-1]
    peak = find_accelerator(_GPUS.get(row["gpu"], row["gpu"])).flops["bf16"] if "mfu_pct" in measured else 0.0
    for convention, each in training_work(model, seq=seq).model.items():
        for figure in printed:
            theirs = measured[figure] * 1e12 if figure == "model_tflops_per_gpu" else measured[figure] / 100 * peak
            ratios[source, figure.split("_")[0]][convention].append(each * tokens / theirs)


if __name__ == "__main__":
    main(sys.argv[1])
