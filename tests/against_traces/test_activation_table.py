"""The activation formulas against every row of the traced table: one layer of each kind, in each implementation.

What a layer saves, how high its forward rises and how high its backward: each within the error that the class's row states, which
is what the answer shows. ``python tools/build_activation_table.py`` makes the table again, ``build_traced_errors.py`` the column.
"""

from typing import Any

import pytest
from build_traced_errors import CONFIGS, ROWS, VERSIONS, errors, heights

from vramcast.models.classes import model_class

# What cannot be traced, and why.
NOT_TRACED: set[str] = {
    "falcon-bf16 checkpointed-2x512",
    "falcon-bf16 checkpointed, reentrant-2x512",
    "falcon-fp32 weights, bf16 autocast, checkpointed-2x512",
    "gpt_neo-bf16 checkpointed-2x512",
    "phimoe-bf16 lora, bf16 autocast-2x512",
    "llama4_text-bf16 lora, bf16 autocast-2x512",
}


def name(row: dict[str, Any]) -> str:
    asked = row["request"]
    return f"{row['kind']}-{row['variant']}-{asked.get('micro_batch', 1)}x{asked['seq']}"


def test_every_row_was_traced_and_says_with_what() -> None:
    assert {name(row) for row in ROWS if "error" in row} == NOT_TRACED
    assert {"torch", "transformers", "peft", "bitsandbytes"} <= VERSIONS["versions"].keys()
    assert len(ROWS) > 300


@pytest.mark.parametrize("row", [r for r in ROWS if "error" not in r], ids=name)
def test_a_layer_costs_what_execution_cost(row: dict[str, Any]) -> None:
    """Saved bytes, the top of forward and the top of backward."""
    within = model_class(row["kind"]).traced
    assert within is not None
    saved = "kept" if row["request"].get("checkpointing") else "saved"
    for what, (forecast, traced) in zip((saved, "forward", "backward"), heights(row), strict=True):
        assert forecast == pytest.approx(traced, rel=getattr(within, what) + 1e-6), what


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_stated_error_is_the_error(kind: str) -> None:
    """A formula that gets better must say so: the column is what the table gives, no wider."""
    assert model_class(kind).traced == errors(kind)
