"""What is read of real artefacts: files recognised, keys read, keys that no rule reads by frequency.

    python tools/score_artefacts.py FILE...        a table of files, then of keys

A file counts as recognised when it yields an engine with its model, or the one thing that it leaves open; its keys as read when
every flag is read, known to have no effect, or open. Nothing is run or fetched.
"""

import sys
from collections import Counter

from vramcast.asking.sorted_flags import sorted_flags
from vramcast.errors import VramcastError
from vramcast.reading.serving import Launch, read_serving_file
from vramcast.reading.serving.launch import UNMODELLED
from vramcast.serving.engines import engine


def score(paths: list[str]) -> None:
    """Print one line a file and the keys that stay unread. Files that cannot be read are listed with the reason."""
    recognised, whole = 0, 0
    unread: Counter[str] = Counter()
    for path in paths:
        try:
            found = read_serving_file(path)
        except VramcastError as error:
            print(f"-  {path[-80:]:80s} {str(error)[:110]}")
            continue
        recognised += 1
        left = {key for launch in found.launches for key in _unread(launch)}
        whole += not left
        unread.update(left)
        engines = ",".join(sorted({launch.engine for launch in found.launches}))
        names = [launch.model or "?" for launch in found.launches[:3]]
        print(f"ok {path[-80:]:80s} {found.kind}, {len(found.launches)} x {engines}: {names} {sorted(left) or ''}")
    print(f"\n{recognised} of {len(paths)} recognised, {whole} with every key read\n")
    for key, count in unread.most_common():
        print(f"{count:4d}  {key}")


def _unread(launch: Launch) -> list[str]:
    name = "vllm" if launch.engine in UNMODELLED or launch.engine == "triton" else launch.engine
    told = sorted_flags(launch, engine(name).options)
    return [u.what.partition(" in ")[0].removeprefix("the flag ").removeprefix("the variable ") for u in told.unmodelled]


if __name__ == "__main__":
    score(sys.argv[1:])
