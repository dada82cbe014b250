"""A seeded sample of the corpus as check points for the tests: a few rows of each kind, card and format, with their source.

``python tools/kernels/points.py`` writes tests/speed/kernels/points.jsonl. Rows are facts of Apache-2.0 and MIT tables, in the
columns that laws read, times rounded to three digits.
"""

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "src")]

from corpus import Columns, _groups, load  # noqa: E402

from vramcast.speed.kernels.rows import KINDS  # noqa: E402

SEED, A_GROUP = 5, 2
SOURCE = "aiconfigurator-core 0.12.0 (Apache-2.0)"
_FILES = ("gemm", "generation_attention", "context_attention", "moe", "nccl", "custom_allreduce", "linear_attention", "mla")
_CARDS = {"h100_sxm", "b200_sxm", "a100_sxm", "l40s", "rtx_pro_6000_server"}
_KINDS_OF = ("card", "engine", "dtype", "op", "phase")


def main() -> None:
    """Draw and write."""
    folder = Path(os.environ.get("VRAMCAST_SHARED", ROOT.parent / "shared")) / "kernels/aiconfigurator"
    lines = [msgspec.json.encode(row) for kind in _FILES for row in _drawn(load(folder / f"{kind}.parquet"), kind)]
    (ROOT / "tests/speed/kernels/points.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    sys.stdout.write(f"{len(lines)} points\n")


def _drawn(columns: Columns, kind: str) -> list[dict[str, Any]]:
    chosen = _real(columns, kind)
    columns = {name: column[chosen] for name, column in columns.items()}
    rng = np.random.default_rng(SEED)
    drawn = []
    for _, rows in _groups([columns[name] for name in _KINDS_OF if name in columns]):
        for row in rng.choice(rows, size=min(A_GROUP, len(rows)), replace=False):
            drawn.append(_row(columns, kind, row))
    return drawn


def _real(columns: Columns, kind: str) -> Any:
    """Rows of cards and shapes that a server meets: no toy products, no eager launches, no test of windows."""
    chosen = np.isin(columns["card"], list(_CARDS))
    if kind == "gemm":
        chosen &= (columns["n"] >= 1024) & (columns["k"] >= 1024) & (columns["m"] <= 8192)
        chosen &= ~np.isin(columns["kernel"], ["DeepGemmFp8BlockScaledMMKernel", "TritonFp8BlockScaledMMKernel"])
    if "window_size" in columns:
        chosen &= columns["window_size"] == 0
    if kind == "generation_attention":
        chosen &= (columns["past"] >= 1024) & (columns["batch"] >= 8)
    if kind == "mla":
        chosen &= np.isin(columns["op"], ["context_mla", "generation_mla"]) & np.isin(columns["card"], ["h100_sxm", "b200_sxm"])
    return chosen


def _row(columns: Columns, kind: str, row: int) -> dict[str, Any]:
    words = {name: str(columns[name][row]) for name in KINDS[kind].words if name in columns and name != "num_gpus"}
    numbers = {
        name: int(value) for name, column in columns.items() if column.dtype.kind == "f" and (value := column[row]) == value
    }
    return {**words, **numbers, "us": float(f"{columns['us'][row]:.3g}"), "source": SOURCE}


if __name__ == "__main__":
    main()
