"""DeepSpeed's own engine on a pretended group: what each ZeRO stage divides, to the byte."""

from functools import cache

import msgspec
import pytest

from vramcast.errors import MissingError, UnmodelledError
from vramcast.models.reading import read_model
from vramcast.planning.tracing import layout
from vramcast.planning.tracing.answer import shallow
from vramcast.planning.tracing.layout import LayoutOptions, distribution_of
from vramcast.tracing.distribution import Distribution
from vramcast.tracing.extrapolation.depth import same_sequence
from vramcast.tracing.request import TraceRequest, TraceResult
from vramcast.tracing.run import trace_all
from vramcast.training.resolve import resolve
from vramcast.workload import Parallel, Training

H, FF, LAYERS, VOCAB, RANKS = 256, 512, 4, 1024, 8
LLAMA = {
    "model_type": "llama", "hidden_size": H, "intermediate_size": FF, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": VOCAB,
}  # fmt: skip
PARAMETERS = 2 * VOCAB * H + H + LAYERS * (3 * H * H + 3 * H * FF + 2 * H)
ROTARY, PADDING = 2 * 4 * (H // 4 // 2), 2048


@cache
def _traces() -> dict[str, TraceResult]:
    pytest.importorskip("deepspeed")
    stages = ("zero1", "zero2", "zero3")
    layouts = [Distribution(parallel=Parallel(dp=RANKS), sharding=stage) for stage in stages]
    requests = [
        TraceRequest(config=LLAMA, seq=256, backend="cuda", optimizer="adamw_fused", accumulate=2, distribution=asked)
        for asked in layouts
    ]
    return dict(zip(stages, trace_all(requests, timeout_s=120), strict=True))


def _held(stage: str, category: str) -> int:
    return sum(a.size for a in _traces()[stage].log.allocations if a.category == category and a.end < 0)


@pytest.mark.torch
@pytest.mark.parametrize("stage", ["zero1", "zero2", "zero3"])
def test_the_engine_steps_and_divides_masters_and_states(stage: str) -> None:
    result = _traces()[stage]
    assert (result.error, result.steps, result.parameters) == ("", 2, PARAMETERS)
    assert _held(stage, "master_weights") == pytest.approx(4 * PARAMETERS / RANKS, abs=PADDING)
    assert _held(stage, "optimizer") == pytest.approx(8 * PARAMETERS / RANKS, abs=2 * PADDING)


@pytest.mark.torch
def test_only_the_third_stage_divides_weights() -> None:
    assert _held("zero1", "weights") == pytest.approx(2 * PARAMETERS + ROTARY, abs=PADDING)
    assert _held("zero2", "weights") == pytest.approx(2 * PARAMETERS + ROTARY, abs=PADDING)
    assert _held("zero3", "weights") == pytest.approx(2 * PARAMETERS / RANKS + ROTARY, rel=0.05)
    assert any(a.category == "gathered" for a in _traces()["zero3"].log.allocations)


@pytest.mark.torch
def test_a_few_layers_of_the_third_stage_tell_all() -> None:
    pytest.importorskip("deepspeed")
    wide = LLAMA | {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_hidden_layers": 16}
    wide |= {"num_key_value_heads": 8, "vocab_size": 128256}
    how = Distribution(parallel=Parallel(dp=64), sharding="zero3")
    request = TraceRequest(config=wide, seq=1024, backend="cuda", optimizer="adamw_fused", checkpointing="full", distribution=how)
    few = msgspec.structs.replace(request, layers=16, depths=(5, 6, 9))
    whole, told = trace_all([request, few], timeout_s=240)
    assert (whole.error, told.error, told.depths) == ("", "", (5, 6, 9))
    assert same_sequence(told.log, whole.log)
    assert told.parameters == whole.parameters


def test_where_one_layer_is_not_the_next_all_are_traced() -> None:
    model = read_model("meta-llama/Llama-3.1-70B")
    by_stage = {
        stage: shallow(TraceRequest(config={}, distribution=Distribution(parallel=Parallel(dp=RANKS), sharding=stage)), model)
        for stage in ("zero1", "zero2", "zero3", "fsdp2")
    }
    assert {stage: request.depths for stage, request in by_stage.items()} == {
        "zero1": None, "zero2": None, "zero3": (5, 6, 9), "fsdp2": (3, 4, 5),
    }  # fmt: skip


def _layout(**fields: object) -> Distribution:
    model = read_model("meta-llama/Llama-3.1-8B")
    usual = {"model": model.id, "gpus": 8, "framework": "hf_trainer", "parallel": Parallel(dp=8), "zero": 3}
    question = Training(**(usual | fields))  # type: ignore[arg-type]
    return distribution_of(question, resolve(question, model)[0], LayoutOptions())


def test_without_deepspeed_the_install_line_and_the_forecast_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "find_spec", lambda _: None)
    with pytest.raises(MissingError, match="DS_BUILD_OPS=0 pip install deepspeed, or use vramcast train"):
        _layout()


def test_what_the_engine_is_not_driven_to_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "find_spec", lambda _: object())
    assert _layout().sharding == "zero3"
    with pytest.raises(UnmodelledError, match="ZeRO with weights, states or activations on the host: use vramcast train"):
        _layout(offload=("optimizer",))
    with pytest.raises(UnmodelledError, match="ZeRO beside another parallelism: use vramcast train"):
        _layout(parallel=Parallel(dp=4, tp=2))
