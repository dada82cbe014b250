"""Traced against recorded: a small decoder's program on fake tensors, beside memory snapshots of the same program on a GPU.

    python benchmarks/tracing/against_snapshots.py FOLDER      (the folder of the recorded snapshots; needs the [torch] extra)

Requested bytes are compared with what the snapshot's own events sum to, reserved bytes with its segments at their largest.
"""

import sys
from pathlib import Path

from vramcast.planning.tracing.answer import trace_program
from vramcast.tracing.snapshots.file import read_snapshot
from vramcast.tracing.snapshots.report import explain_snapshot

PROGRAM = Path(__file__).parent / "recorded" / "course_model.py"
# the recording, and the flags of its program: half precision where the recorded sizes show it
RECORDED = {
    "assignment2-__results__medium_128_training_memory_snapshot.pickle": ("--context", "128"),
    "assignment2-__results__medium_512_training_memory_snapshot.pickle": ("--context", "512", "--autocast"),
    "assignment2-__results__medium_128_inference_memory_snapshot.pickle": ("--context", "128", "--inference"),
    "assignment2-__results__medium_512_inference_memory_snapshot.pickle": ("--context", "512", "--inference", "--autocast"),
}
GPU = "RTX 4090"  # not told by the recordings; decides the size of cuBLAS's workspaces alone


def errors(folder: Path, name: str) -> tuple[float, float]:
    """Traced over recorded, less 1: requested bytes, then reserved bytes."""
    recorded = explain_snapshot(read_snapshot(folder / name))
    traced = trace_program((str(PROGRAM), *RECORDED[name]), gpu=GPU).reading.usage
    requested = traced.peak_requested_bytes / recorded.peak_allocated - 1
    return requested, traced.peak_reserved_bytes / recorded.peak_reserved - 1


def main(folder: str) -> None:
    """One line per recording."""
    for name, flags in RECORDED.items():
        requested, reserved = errors(Path(folder), name)
        print(f"{' '.join(flags):<42} requested {requested:+.2%}   reserved {reserved:+.2%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
