"""Traced against measured: the LoRA rows of litgpt's published table, its own code run without a GPU.

    python benchmarks/tracing/against_litgpt.py      (needs the [torch] extra and litgpt)

Each row of truth/training_memory.jsonl that litgpt measured with LoRA in its present version is traced through
``litgpt_lora.py``; prints measured, traced and the error, and ends with 1 when one is off by more than 1 %.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from vramcast.planning.tracing import trace_program
from vramcast.units import GiB

ROOT = Path(__file__).parents[2]
NAMES = {"Meta-Llama-3-8B": "Llama-3-8B", "gemma-2b": "Gemma-2b", "TinyLlama-1.1B": "TinyLlama-1.1B-intermediate-step-1431k-3T"}
ALLOWED = 0.01


def rows() -> Iterator[dict[str, Any]]:
    """The measured rows that one script expresses."""
    for line in (ROOT / "truth" / "training_memory.jsonl").read_bytes().splitlines():
        row = msgspec.json.decode(line)
        if row.get("id", "").startswith("litgpt-hub-") and row["subject"]["method"] == "lora":
            yield row


def arguments(row: dict[str, Any]) -> tuple[str, ...]:
    """The script's arguments for a row."""
    settings, model = row["settings"], row["subject"]["model_id"].rsplit("/", 1)[-1]
    adapter = settings["adapters"]
    shape = (settings["micro_batch"], settings["seq_len"], adapter["r"])
    return NAMES.get(model, model), *map(str, shape), ",".join(adapter["targets"])


def main() -> int:
    """Trace every row and print the table."""
    worst = 0.0
    for row in rows():
        asked = arguments(row)
        traced = trace_program((str(Path(__file__).parent / "public" / "programs" / "litgpt_lora.py"), *asked), gpu="A10G")
        measured = row["figures"]["peak_allocated_gib"]
        found = traced.reading.usage.peak_allocated_bytes / GiB
        error = found / measured - 1
        worst = max(worst, abs(error) if not traced.result.error else 1.0)
        print(
            f"{asked[0][:24]:24} {measured:8.3f} GiB measured {found:8.3f} traced {error:+7.2%}  {traced.result.error}",
            flush=True,
        )
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
