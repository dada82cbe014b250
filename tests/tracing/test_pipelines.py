"""Pipelines under torch's own schedules and sequences divided by its ring attention, on a pretended group."""

from functools import cache
from typing import Any

import pytest

from vramcast.errors import QuestionError, UnmodelledError
from vramcast.models.reading import read_model
from vramcast.planning.tracing.layout import LayoutOptions, distribution_of, equal_parts, stages_of
from vramcast.tracing.distribution import Distribution
from vramcast.tracing.request import TraceRequest, TraceResult
from vramcast.tracing.run import trace_all
from vramcast.training.resolve import resolve
from vramcast.workload import Parallel, Training

torch_only = pytest.mark.torch
H, LAYERS, SEQ, MICRO_BATCHES, BF16 = 128, 4, 128, 6, 2
LLAMA = {
    "model_type": "llama", "hidden_size": H, "intermediate_size": 256, "num_hidden_layers": LAYERS, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 512,
}  # fmt: skip
MESSAGE = BF16 * SEQ * H


def _pipeline(stage: int, pp: int = 2, **options: Any) -> dict[str, Any]:
    parallel = Parallel(pp=pp, vpp=options.pop("vpp", 1))
    return {"accumulate": MICRO_BATCHES, "distribution": Distribution(parallel=parallel, stage=stage, **options)}


RUNS: dict[str, dict[str, Any]] = {
    "alone": {},
    "first": _pipeline(0),
    "last": _pipeline(1),
    "gpipe": _pipeline(0, schedule="gpipe"),
    "interleaved": _pipeline(0, vpp=2, schedule="interleaved"),
    "middle": _pipeline(1, pp=4),
    "ring": {"distribution": Distribution(parallel=Parallel(cp=2), sharding="ddp")},
    "everything": {
        "accumulate": 2, "param_dtype": "float32",
        "distribution": Distribution(
            parallel=Parallel(tp=2, pp=2, cp=2, dp=2), sharding="fsdp2", compute="bfloat16", reduce="float32", stage=1,
            sequence_parallel=True, loss_parallel=True, ends_apart=True,
        ),
    },
}  # fmt: skip


@cache
def _traces() -> dict[str, TraceResult]:
    pytest.importorskip("transformers")
    requests = [TraceRequest(config=LLAMA, seq=SEQ, backend="cuda", **run) for run in RUNS.values()]
    return dict(zip(RUNS, trace_all(requests, timeout_s=120), strict=True))


def _held(name: str, category: str) -> int:
    return sum(a.size for a in _traces()[name].log.allocations if a.category == category and a.end < 0)


def _waiting(name: str) -> int:
    """The most bytes of the layers' forward passes alive together."""
    log, live, most = _traces()[name].log, 0, 0
    for event in log.order:
        a = log.allocations[abs(event) - 1]
        if a.phase == "forward" and ".layers." in a.module and a.category == "":
            live += a.size if event > 0 else -a.size
            most = max(most, live)
    return most


@torch_only
@pytest.mark.parametrize("name", RUNS)
def test_every_rank_completes_two_steps(name: str) -> None:
    assert (_traces()[name].error, _traces()[name].steps) == ("", 2)


@torch_only
def test_stages_hold_their_layers_and_ends() -> None:
    end, norm, rotary = BF16 * 512 * H, BF16 * H, 2 * 4 * (H // 2 // 2)
    layers = _held("alone", "weights") - 2 * end - norm - rotary
    assert _held("first", "weights") == layers // 2 + end + rotary
    assert _held("last", "weights") == layers // 2 + end + norm + rotary
    assert _held("middle", "weights") == layers // 4 + rotary
    assert _held("interleaved", "weights") == layers // 2 + end + 2 * rotary


@torch_only
def test_a_message_buffer_stands_for_every_micro_batch_and_direction() -> None:
    """torch.distributed.pipelining makes all receive buffers before the first step (stage.py, _setup_forward_recv_info)."""
    assert _held("first", "communication") == MICRO_BATCHES * MESSAGE
    assert _held("last", "communication") == MICRO_BATCHES * MESSAGE
    assert _held("middle", "communication") == 2 * MICRO_BATCHES * MESSAGE
    assert _held("interleaved", "communication") == 3 * MICRO_BATCHES * MESSAGE


@torch_only
def test_the_schedule_decides_how_many_micro_batches_wait() -> None:
    one, shares = _waiting("last"), 0.08  # what a pass makes and drops counts once, however many wait
    assert _waiting("first") == pytest.approx(2 * one, rel=shares)
    assert _waiting("gpipe") == pytest.approx(MICRO_BATCHES * one, rel=shares)
    assert _waiting("interleaved") == pytest.approx(2.5 * one, rel=shares)  # five of its half-stages
    assert _waiting("middle") == pytest.approx(3 * one / 2, rel=shares)


@torch_only
def test_a_divided_sequence_halves_what_layers_save_and_no_weight() -> None:
    assert _held("ring", "weights") == _held("alone", "weights")
    assert _waiting("ring") < 0.75 * _waiting("alone")
    assert _held("everything", "weights") < 4 * _held("alone", "weights") / 2 / 8 + 2048  # fp32 of half the layers over eight


def test_the_kinds_of_rank_are_the_forecasts() -> None:
    request = TraceRequest(config=LLAMA, distribution=Distribution(parallel=Parallel(pp=4)))
    assert [(name, r.distribution.stage) for name, r in stages_of(request)] == [
        ("first stage", 0), ("middle stage", 2), ("last stage", 3)
    ]  # fmt: skip
    assert request.distribution.rank == 0
    assert stages_of(request)[1][1].distribution.rank == 2


def test_layers_are_divided_evenly_or_traced_whole() -> None:
    model = read_model("meta-llama/Llama-3.1-8B")
    part = equal_parts(model, 4)
    assert part is not None
    assert len(part) == 8
    assert equal_parts(model, 5) is None


def test_what_no_schedule_can_fill_is_refused() -> None:
    model = read_model("meta-llama/Llama-3.1-8B")

    def asked(layout: Parallel, *, accumulate: int, schedule: str = "", **fields: Any) -> None:
        usual = {"model": model.id, "gpus": 8, "framework": "pytorch"}
        question = Training(**(usual | fields), parallel=layout, accumulate=accumulate)
        distribution_of(question, resolve(question, model)[0], LayoutOptions(schedule=schedule))

    with pytest.raises(
        QuestionError, match="2 micro-batches cannot fill 4 stages in torch's schedules: use --accumulate 4 or more"
    ):
        asked(Parallel(pp=4, dp=2), accumulate=2)
    with pytest.raises(QuestionError, match="6 micro-batches make no whole rounds of 4 stages: use --accumulate 8"):
        asked(Parallel(pp=4, dp=2, vpp=2), accumulate=6)
    with pytest.raises(QuestionError, match="schedule interleaved with 1 chunks per rank: interleaved goes with --vpp 2 or more"):
        asked(Parallel(pp=4, dp=2), accumulate=8, schedule="interleaved")
    with pytest.raises(
        UnmodelledError, match="FSDP1 under a pipeline, which it cannot accumulate micro-batches for: use --fsdp 2"
    ):
        asked(Parallel(pp=4, dp=2), accumulate=8, fsdp=1)
