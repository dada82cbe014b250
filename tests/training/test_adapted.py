"""What each kind of adapter saves beside a frozen matrix, against the storages that PEFT's own layers saved under the tracer."""

import pytest

from vramcast.training.activations.choice import LowRank, Style
from vramcast.training.activations.dense import linear, norm
from vramcast.training.activations.tape import Tape
from vramcast.training.adapters.prompts import virtual_tokens

TOKENS, INPUTS, OUTPUTS, RANK = 1024, 3072, 1024, 32
WIDE_IN, WIDE_OUT, WIDE_RANK = (4 * TOKENS * n for n in (INPUTS, OUTPUTS, RANK))
NARROW_OUT = 2 * TOKENS * OUTPUTS


@pytest.mark.parametrize(
    ("adapter", "role", "saved"),
    [
        (LowRank(), "v", WIDE_IN + WIDE_RANK),  # the cast input, and what the second matrix reads
        (LowRank(dora=True), "v", WIDE_IN + WIDE_RANK + WIDE_OUT + NARROW_OUT),  # both parts that a magnitude scales
        (LowRank(kind="miss"), "v", WIDE_RANK),  # the summed input alone
        (LowRank(kind="vera"), "v", WIDE_RANK + WIDE_OUT),  # what both vectors scale
        (LowRank(kind="ia3"), "v", NARROW_OUT),  # the output as the matrix made it
        (LowRank(kind="ia3"), "down", WIDE_IN),  # the cast input
    ],
    ids=["lora", "dora", "miss", "vera", "ia3 on an output", "ia3 on an input"],
)
def test_what_an_adapter_saves(adapter: LowRank, role: str, saved: int) -> None:
    tape = Tape(2 * TOKENS * INPUTS)
    ranked = LowRank(kind=adapter.kind, dora=adapter.dora, ranks={role: RANK})
    linear(tape, Style(adapter=ranked), 0, tokens=TOKENS, inputs=INPUTS, outputs=OUTPUTS, role=role, trains=False)
    assert tape.life().saved == saved


def test_norms_that_alone_are_trained_save_what_they_scale() -> None:
    held = []
    for style in (Style(trains=False), Style(trains=False, trains_norms=True)):
        tape = Tape(2 * TOKENS * INPUTS)
        norm(tape, style, 0, tokens=TOKENS, width=INPUTS)
        held.append(tape.life().saved)
    assert held[1] - held[0] == 2 * TOKENS * INPUTS


def test_virtual_tokens_lengthen_every_sequence() -> None:
    assert virtual_tokens("prompt_tuning", {"num_virtual_tokens": 200}) == 200
    assert virtual_tokens("ptuning", {}) == 20
    assert virtual_tokens("prefix_tuning", {"num_virtual_tokens": 200}) == 0  # they stand in the cache, not in the sequence
