"""``vramcast profile`` beside HolisticTraceAnalysis on the same files in one run: seconds, processor time, MB/s, peak memory.

    python benchmarks/profiling/against_hta.py TRACE.json.gz... --hta-python PATH [--grow 2000]

HTA runs in its own environment (``pip install HolisticTraceAnalysis``), whose interpreter ``--hta-python`` names. Both read the
file and answer temporal breakdown, idle times, overlap and kernel types; imports are not counted, for either. ``--grow MB``
repeats the first trace's events until the JSON has that size, and reads it packed and not, here only.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

_HTA = """
import json, logging, shutil, sys, tempfile, time, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
logging.disable(logging.CRITICAL)
with tempfile.TemporaryDirectory() as folder:
    shutil.copy(sys.argv[1], folder)
    begun, cpu = time.perf_counter(), time.process_time()
    analysis = TraceAnalysis(trace_dir=folder)
    rank = analysis.t.get_ranks()[0]
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=[rank], visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
    print(json.dumps([time.perf_counter() - begun, time.process_time() - cpu]))
"""
_OURS = """
import sys, time, json
import numpy
from pathlib import Path
from vramcast.profiling.files import read_trace
from vramcast.profiling.report import report_of
begun, cpu = time.perf_counter(), time.process_time()
trace = read_trace(Path(sys.argv[1]))
read = time.perf_counter() - begun
report_of(trace, file=sys.argv[1])
whole = time.perf_counter() - begun
lines = Path("/proc/self/status").read_text().splitlines()  # ru_maxrss would still hold the parent's
peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
print(json.dumps([whole, time.process_time() - cpu, read, trace.reading.bytes, peak]))
"""


def main() -> None:
    """Print one line per file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--hta-python", help="interpreter of an environment with HolisticTraceAnalysis")
    parser.add_argument("--grow", type=int, metavar="MB", help="also read the first trace grown to that size")
    parser.add_argument("--times", type=int, default=3, help="the best of so many runs")
    given = parser.parse_args()
    header = f"{'MB':>7} {'read s':>6} {'all s':>6} {'CPU s':>6} {'MB/s':>5} {'peak MB':>7} {'HTA s':>7} {'HTA CPU':>8}"
    print(f"{'file':40} {header} {'x faster':>9} {'x by CPU':>8}")
    for path in given.traces:
        _line(path.name, path, given)
    if given.grow:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("grown.json", "grown.json.gz"):
                path = Path(folder) / name
                _grow(given.traces[0], path, given.grow * 10**6)
                _line(name, path, argparse.Namespace(hta_python=None, times=1))


def _line(name: str, path: Path, given: argparse.Namespace) -> None:
    ours = [_run(sys.executable, _OURS, path) for _ in range(given.times)]
    theirs = [_run(given.hta_python, _HTA, path) for _ in range(given.times)] if given.hta_python else []
    whole, _, read, size, peak = min(ours)
    cpu = min(run[1] for run in ours)
    beside = f"{'fails' if theirs else '-':>7}"
    if theirs := [run for run in theirs if run]:
        wall, busy = min(theirs)[0], min(run[1] for run in theirs)
        beside = f"{wall:7.2f} {busy:8.2f} {wall / whole:9.1f} {busy / cpu:8.1f}"
    rate = size / whole / 1e6
    print(
        f"{name[:40]:40} {size / 1e6:7.1f} {read:6.2f} {whole:6.2f} {cpu:6.2f} {rate:5.0f} {peak / 1e6:7.0f} {beside}", flush=True
    )


def _run(python: str, program: str, path: Path) -> list[float]:
    done = subprocess.run([python, "-c", program, str(path)], capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else []


def _grow(source: Path, target: Path, size: int) -> None:
    """The first trace's events again and again, each time later and with other correlation ids."""
    with gzip.open(source) if source.suffix == ".gz" else source.open("rb") as stream:
        whole = json.load(stream)
    events = [e for e in whole.pop("traceEvents") if e.get("ph") == "X"]
    span = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events) + 1000
    written = 0
    with gzip.open(target, "wb", compresslevel=1) if target.suffix == ".gz" else target.open("wb") as out:
        out.write(json.dumps(whole).encode()[:-1] + b', "traceEvents": [\n')
        while written < size:
            for event in events:
                event["ts"] += span
                if "correlation" in (args := event.get("args", {})):
                    args["correlation"] += 10**7
            text = b",\n".join(json.dumps(e).encode() for e in events)
            written += out.write((b",\n" if written else b"") + text)
        out.write(b"\n]}")


if __name__ == "__main__":
    main()
