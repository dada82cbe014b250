"""torch.cuda.empty_cache: where a program calls it is part of the log, and the replay gives the unused segments back there."""

from pathlib import Path

import pytest

from vramcast.tracing.allocator.replay import replay, reserved_over
from vramcast.tracing.eventlog import Allocation, EventLog
from vramcast.tracing.extrapolation.depth import deepen
from vramcast.tracing.extrapolation.surface import Surface
from vramcast.tracing.request import ScriptRequest
from vramcast.tracing.run import trace_script

MIB = 1 << 20


def _log(layers: int = 1, size: int = 64 * MIB, *, emptied: bool = True) -> EventLog:
    """Two steps, the second of another width; the cache is emptied between them."""
    log = EventLog()
    for step, width in enumerate((size, size + 16 * MIB)):
        if step and emptied:
            log.empty()
        held = [log.allocate(Allocation(size=width, op=f"layer {step}")) for _ in range(layers)]
        for number in reversed(held):
            log.free(number)
    return log


def test_emptying_the_cache_between_two_widths_halves_what_is_reserved() -> None:
    assert replay(_log()).peak_reserved_bytes == 80 * MIB
    assert replay(_log(emptied=False)).peak_reserved_bytes == 144 * MIB
    assert reserved_over(_log()) == [64 * MIB, 64 * MIB, 80 * MIB, 80 * MIB]


def test_the_log_of_more_layers_and_of_other_lengths_is_emptied_at_the_same_moment() -> None:
    deep = deepen(_log(2), _log(3), 4)
    assert deep is not None
    assert deep.emptied == _log(6).emptied
    assert replay(deep).peak_reserved_bytes == 6 * 80 * MIB
    surface = Surface({(batch, seq): _log(size=batch * seq) for batch in (1, 2) for seq in (MIB, 2 * MIB)})
    assert surface.at(3, 5 * MIB).emptied == _log().emptied


def test_a_log_without_some_allocations_is_still_emptied_where_it_was() -> None:
    assert _log(2).without([1]).emptied == [2]


@pytest.mark.torch
def test_a_script_that_empties_the_cache_is_logged_doing_so(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "for mib in (64, 80):\n"
        "    torch.cuda.empty_cache()\n"
        "    held = torch.empty(mib << 20, dtype=torch.uint8, device='cuda')\n"
        "    del held\n"
    )
    log = trace_script(ScriptRequest(argv=(str(script),))).log
    assert log.emptied == [0, 2]
    assert replay(log).peak_reserved_bytes == 80 * MIB
