"""A deep log written from shallow ones: against toy programs of every depth, and against whole traces of real models."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.distribution import Distribution
from vramcast.tracing.eventlog import Allocation, EventLog
from vramcast.tracing.extrapolation.depth import deepen, same_sequence, shallow_depths
from vramcast.tracing.request import TraceRequest
from vramcast.tracing.run import Tracer
from vramcast.workload import Adapter, Parallel


def _step(layers: int, widths: list[int], *, uneven: bool = False) -> EventLog:
    """Forward, backward in reverse, one buffer over all layers, an optimizer over lists: the shape of every training step."""
    log = EventLog(allocations=[], order=[], marks=[])

    def allocate(size: int, op: str, phase: str) -> int:
        return log.allocate(Allocation(size=size, op=op, phase=phase))

    saved = []
    for layer in range(layers):
        kept = [allocate(512 * w + (layer if uneven else 0), "mm", "forward") for w in widths]
        log.free(allocate(4096, "norm", "forward"))
        saved.append(kept)
    log.mark("backward")
    gradients = []
    for kept in reversed(saved):
        for number, width in zip(reversed(kept), widths, strict=True):
            gradients.append(allocate(256 * width, "grad", "backward"))
            log.free(number)
    log.mark("optimizer")
    norms = allocate(4 * len(gradients), "stack", "optimizer")
    roots = [allocate(log.allocations[g - 1].size, "sqrt", "optimizer") for g in gradients]
    for number in (*roots, norms, *gradients):
        log.free(number)
    return log


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=6), st.integers(1, 30))
def test_a_deep_log_is_written_event_by_event(widths: list[int], more: int) -> None:
    deep, true = deepen(_step(3, widths), _step(4, widths), more), _step(3 + more, widths)
    assert deep is not None
    assert same_sequence(deep, true)
    assert deep.marks == true.marks
    assert replay(deep).peak_reserved_bytes == replay(true).peak_reserved_bytes


def test_layers_that_are_not_alike_are_not_repeated() -> None:
    assert deepen(_step(3, [7], uneven=True), _step(4, [7], uneven=True), 5) is None


@pytest.mark.parametrize(
    ("layers", "depths"),
    [
        ("d" * 32, (2, 3, 4)),
        ("d" * 10, (2, 3, 4)),
        ("d" * 9, None),
        ("ddd" + "e" * 58, (5, 6, 7)),
        ("sf" * 21, (4, 6, 8)),
        (("s" * 5 + "f") * 20 + "ss", (14, 20, 26)),
        ("abcdefgh" * 4, None),
    ],
)
def test_depths_keep_the_pattern_of_the_stack(layers: str, depths: tuple[int, int, int] | None) -> None:
    assert shallow_depths(layers) == depths


def test_a_longer_beginning_can_be_asked_for() -> None:
    assert shallow_depths("d" * 32, base=5) == (5, 6, 7)


SMALL = {"hidden_size": 256, "intermediate_size": 704, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024}
LLAMA = {"model_type": "llama", "num_hidden_layers": 13, **SMALL}
GEMMA = {"model_type": "gemma2", "num_hidden_layers": 26, "head_dim": 64, **SMALL}


QWEN3_NEXT = {
    "model_type": "qwen3_next", "num_hidden_layers": 28, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64, "head_dim": 64, "linear_num_value_heads": 4, "linear_num_key_heads": 2, **SMALL,
}  # fmt: skip
QWEN_VL = {
    "model_type": "qwen2_5_vl",
    "text_config": {"num_hidden_layers": 13, "rope_scaling": {"rope_type": "default", "mrope_section": [8, 12, 12]}, **SMALL},
    "vision_config": {"depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "out_hidden_size": 256},
}
DEPTHS = {
    "llama": shallow_depths("d" * 13),
    "gemma2": shallow_depths("sf" * 13),
    "qwen3_next": (8, 12, 16),
    "qwen2_5_vl": (2, 3, 4),
}
STAGE = Distribution(parallel=Parallel(pp=2, dp=2), sharding="fsdp2", compute="bfloat16", stage=1)
ADAPTED = {
    "adapter": Adapter(rank=4, targets=("q_proj",)),
    "autocast": "bfloat16",
    "param_dtype": "float32",
    "checkpointing": "full",
}


@pytest.mark.torch
@pytest.mark.parametrize(
    ("config", "options"),
    [
        (LLAMA, {"checkpointing": "reentrant", "clip_norm": 1.0, "optimizer": "adamw_fused"}),
        (LLAMA, {"optimizer": "adamw_loop", "accumulate": 2}),
        (LLAMA, {"optimizer": "adafactor"}),
        (LLAMA, {"task": "generate", "new_tokens": 3}),
        (LLAMA, ADAPTED),
        (GEMMA, {}),
        (QWEN3_NEXT, {"seq": 128}),
        (QWEN_VL, {}),
        (LLAMA | {"num_hidden_layers": 20}, {"distribution": STAGE, "accumulate": 4, "clip_norm": 1.0}),
    ],
    ids=["reentrant", "loop", "adafactor", "generation", "lora", "gemma2", "qwen3-next", "towers", "pipeline"],
)
def test_a_few_layers_tell_the_whole_model_to_the_byte(config: dict[str, Any], options: dict[str, Any], tracer: Tracer) -> None:
    layers = config.get("text_config", config)["num_hidden_layers"]
    request = TraceRequest(config=config, **{"seq": 512, **options})
    stages = request.distribution.parallel.pp
    depths = tuple(depth * stages for depth in DEPTHS[config["model_type"]])
    whole = tracer.trace(request)
    few = tracer.trace(msgspec.structs.replace(request, layers=layers, depths=depths))
    further = tuple(depth + depths[1] - depths[0] for depth in depths)  # where the shallowest are too shallow
    assert (whole.error, few.error, few.depths in {depths, further}) == ("", "", True)
    assert same_sequence(few.log, whole.log)
    assert replay(few.log) == replay(whole.log)
    assert (few.parameters, few.trainable, few.attention) == (whole.parameters, whole.trainable, whole.attention)
