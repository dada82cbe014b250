"""The project's copy of the measured corpus: raw rows of public reports, reduced to facts in one format of our own.

    python truth/import_rows.py ../shared/truth

A row keeps what decides its figures (subject, settings), the figures with the units their keys name, and its source. Sentences
and remarks of the sources are not kept. Settings that a row's own source shows and the raw row leaves out are added from
``completed.json``. Rows found wrong are marked by ``marks.json`` with the proof, and not scored. The program reads these rows as
it reads raw ones (``vramcast.truth.rows.own`` restores the raw shape), so anyone can check:

    vramcast evaluate truth/*.jsonl truth/speed/*.jsonl
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

from vramcast.truth.rows import format_of, read_rows
from vramcast.truth.rows.own import reduce_row

HERE = Path(__file__).parent
FILES = ("inference_memory", "llama_cpp_load_logs", "training_memory", "training_oom", "training_speed")
SPEED = ("serving_latency", "inference_speed")


def main(corpus: Path) -> None:
    """Write one file per format beside this script."""
    marks = msgspec.json.decode((HERE / "marks.json").read_bytes(), type=dict[str, str])
    completed = msgspec.json.decode((HERE / "completed.json").read_bytes(), type=dict[str, dict[str, Any]])
    for name in (*FILES, *SPEED):
        rows = [reduce_row(row, format_of(row), marks, completed) for row in read_rows(corpus / f"{name}.jsonl")]
        target = HERE / ("speed" if name in SPEED else "") / f"{name}.jsonl"
        target.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        sys.stdout.write(f"{target.name}: {len(rows)} rows, {target.stat().st_size // 1024} KiB\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
