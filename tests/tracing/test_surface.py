"""Logs at any batch and length from a few: against whole traces of real models."""

from typing import Any

import pytest

from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.eventlog import Allocation, EventLog
from vramcast.tracing.extrapolation.surface import Point, Surface
from vramcast.tracing.request import TraceRequest
from vramcast.tracing.run import Tracer

SMALL = {
    "hidden_size": 256, "intermediate_size": 704, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096,
    "num_hidden_layers": 2,
}  # fmt: skip
LLAMA = {"model_type": "llama", **SMALL}
MIXTRAL = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, **SMALL}


@pytest.mark.torch
@pytest.mark.parametrize(
    ("config", "options", "lengths", "further"),
    [
        (LLAMA, {}, (512, 1024), [(7, 768), (64, 2048)]),
        (LLAMA, {"checkpointing": "full", "autocast": "bfloat16", "param_dtype": "float32"}, (512, 1024), [(7, 768)]),
        (LLAMA, {"attention": "eager"}, (2048, 3072, 4096), [(5, 6144)]),
        (LLAMA, {"task": "generate"}, (512, 1024), [(9, 4096)]),
        (MIXTRAL, {}, (512, 1024), [(8, 512)]),
    ],
    ids=["plain", "checkpointed", "eager", "generation", "experts"],
)
def test_a_few_points_tell_the_others(
    config: dict[str, Any], options: dict[str, Any], lengths: tuple[int, ...], further: list[Point], tracer: Tracer
) -> None:
    def at(batch: int, seq: int) -> EventLog:
        result = tracer.trace(TraceRequest(config=config, micro_batch=batch, seq=seq, **options))
        assert result.error == ""
        return result.log

    surface = Surface({(batch, length): at(batch, length) for batch in (2, 3) for length in lengths})
    for point in further:
        whole = at(*point)
        written = replay(surface.at(*point))
        assert (written.peak_allocated_bytes, written.peak_reserved_bytes) == (
            replay(whole).peak_allocated_bytes,
            replay(whole).peak_reserved_bytes,
        )


@pytest.mark.torch
def test_a_batch_of_one_is_another_program(tracer: Tracer) -> None:
    logs = {(batch, 512): tracer.trace(TraceRequest(config=LLAMA, micro_batch=batch, seq=512)).log for batch in (1, 2)}
    with pytest.raises(ValueError, match="not of the same program"):
        Surface(logs)


def test_points_that_are_no_grid_are_refused() -> None:
    log = EventLog(allocations=[Allocation(size=1)], order=[1], marks=[])
    with pytest.raises(ValueError, match="3 logs are no grid of 2 batches and 2 lengths"):
        Surface({(1, 1): log, (1, 2): log, (2, 1): log})
