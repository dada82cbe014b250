"""Fuzz everything that vramcast reads, for as long as one likes.

    python tools/fuzz.py --runs 50000                 every target, 50,000 inputs each
    python tools/fuzz.py --runs 1000 config launch    two of them
    python tools/fuzz.py --list

No input may bring a traceback, an error of several lines, two seconds of processor time or 300 MiB. What does is kept in --keep,
one file each, and printed with the place where it arose. The same --seed makes the same inputs.
"""

import argparse
import contextlib
import sys
import time
from pathlib import Path

from fuzzing.running import Failure, Tally, fuzz
from fuzzing.targets import TARGETS


def main() -> int:
    """Runs what is asked; 1 where something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="names of targets; all without any")
    parser.add_argument("--runs", type=int, default=1000, help="inputs of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="where failing inputs are kept")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(TARGETS))
        return 0
    if unknown := set(asked.targets) - set(TARGETS):
        parser.error(f"no target {sorted(unknown)[0]!r}: --list names them")
    with contextlib.suppress(ImportError):
        import transformers  # noqa: F401 (an unknown model_type asks it: two seconds that are no input's own)
    failed = sum(_run(name, asked.runs, asked.seed, asked.keep) for name in asked.targets or TARGETS)
    return int(failed > 0)


def _run(name: str, runs: int, seed: int, keep: Path) -> int:
    """The number of causes found in one target."""
    tally, causes, start = Tally(), set(), time.process_time()
    for failure in fuzz(name, runs, seed, tally):
        cause = (failure.what.split(":")[0], failure.place)
        if cause not in causes:
            causes.add(cause)
            print(f"{name}: {failure.what} at {failure.place}; kept in {_kept(failure, keep, len(causes))}", flush=True)
    share = tally.answered / tally.runs if tally.runs else 0
    print(
        f"{name:14} {tally.runs:8,} inputs, {share:4.0%} answered, {time.process_time() - start:7.1f} s, slowest "
        f"{tally.slowest_s:5.2f} s, {len(causes)} causes of failure", flush=True,
    )  # fmt: skip
    return len(causes)


def _kept(failure: Failure, keep: Path, number: int) -> Path:
    keep.mkdir(parents=True, exist_ok=True)
    file = keep / f"{failure.target.replace(' ', '_')}-{number}"
    made = failure.made
    file.write_bytes(
        made if isinstance(made, bytes) else (made if isinstance(made, str) else repr(made)).encode("utf-8", "replace")
    )
    return file


if __name__ == "__main__":
    sys.exit(main())
