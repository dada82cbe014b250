"""Distribution in one process: torch's and transformers' own wrappers on a pretended group, against exact identities."""

from functools import cache

import pytest

from vramcast.errors import QuestionError, UnmodelledError
from vramcast.planning.tracing_layout import LayoutOptions, distribution_of
from vramcast.tracing.distribution import Distribution
from vramcast.tracing.eventlog import Allocation
from vramcast.tracing.request import TraceRequest, TraceResult
from vramcast.tracing.run import trace_all
from vramcast.training.forecast import resolve
from vramcast.workload import Parallel, Training

torch_only = pytest.mark.torch
H, FF, LAYERS, VOCAB, SEQ = 256, 512, 4, 1024, 256
LLAMA = {
    "model_type": "llama", "hidden_size": H, "intermediate_size": FF, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": VOCAB,
}  # fmt: skip
PARAMETERS = 2 * VOCAB * H + H + LAYERS * (3 * H * H + 3 * H * FF + 2 * H)  # q, o, and k with v together one more square
RANKS, FP32, BF16 = 8, 4, 2


def _sharded(sharding: str, **options: object) -> Distribution:
    usual = {"compute": "bfloat16", "reduce": "float32", "parallel": Parallel(dp=RANKS)}
    return Distribution(sharding=sharding, **(usual | options))  # type: ignore[arg-type]


LAYOUTS = {
    "ddp": Distribution(parallel=Parallel(dp=RANKS), sharding="ddp"),
    "ddp views": Distribution(parallel=Parallel(dp=RANKS), sharding="ddp", bucket_view=True),
    "ddp static": Distribution(parallel=Parallel(dp=RANKS), sharding="ddp", static_graph=True),
    "fsdp1": _sharded("fsdp1"),
    "fsdp1 alone": _sharded("fsdp1", prefetch=False),
    "fsdp1 kept": _sharded("fsdp1", reshard=False),
    "fsdp2": _sharded("fsdp2"),
    "fsdp2 kept": _sharded("fsdp2", reshard=False),
    "fsdp2 ends": _sharded("fsdp2", ends_apart=True),
    "fsdp2 hybrid": _sharded("fsdp2", parallel=Parallel(dp=RANKS, replicate=2)),
    "fsdp2 host": _sharded("fsdp2", host_weights=True),
}


@cache
def _traces() -> dict[str, TraceResult]:
    """Every layout of this file, traced in one process."""
    pytest.importorskip("transformers")
    weights = {name: "bfloat16" if how.sharding == "ddp" else "float32" for name, how in LAYOUTS.items()}
    requests = [
        TraceRequest(config=LLAMA, seq=SEQ, backend="cuda", param_dtype=weights[name], distribution=how)
        for name, how in LAYOUTS.items()
    ]
    return dict(zip(LAYOUTS, trace_all(requests, timeout_s=120), strict=True))


def _held(name: str, category: str) -> int:
    """Bytes of a category that nothing frees."""
    return sum(a.size for a in _traces()[name].log.allocations if a.category == category and a.end < 0)


def _most(name: str, category: str) -> int:
    """The most bytes of a category alive together."""
    log, live, most = _traces()[name].log, 0, 0
    for event in log.order:
        allocation: Allocation = log.allocations[abs(event) - 1]
        if allocation.category == category:
            live += allocation.size if event > 0 else -allocation.size
            most = max(most, live)
    return most


@torch_only
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_completes_two_steps(name: str) -> None:
    result = _traces()[name]
    assert (result.error, result.steps, result.parameters) == ("", 2, PARAMETERS)


@torch_only
def test_ddp_holds_a_second_set_of_gradients_unless_they_are_views_of_its_buckets() -> None:
    gradients = BF16 * PARAMETERS
    assert _held("ddp", "communication") == gradients
    assert _most("ddp", "gradients") == gradients
    assert _most("ddp views", "communication") == 0
    assert _held("ddp views", "gradients") == gradients
    assert _held("ddp static", "communication") == gradients


@torch_only
@pytest.mark.parametrize(("name", "shards"), [("fsdp1", RANKS), ("fsdp2", RANKS), ("fsdp2 hybrid", RANKS // 2)])
def test_full_sharding_divides_weights_and_states_exactly(name: str, shards: int) -> None:
    rotary = 2 * 4 * (H // 4 // 2)  # inv_freq and its original, which nobody shards
    padding = 1024  # a flat parameter, and each first dimension, is padded to a multiple of the ranks
    assert _held(name, "weights") == pytest.approx(FP32 * PARAMETERS / shards + rotary, abs=padding)
    assert _held(name, "optimizer") == pytest.approx(2 * FP32 * PARAMETERS / shards, abs=2 * padding)


@torch_only
def test_what_is_gathered_follows_the_options() -> None:
    root, layer = BF16 * (2 * VOCAB * H + H), BF16 * (3 * H * H + 3 * H * FF + 2 * H)
    assert _gathered("fsdp2 kept") >= root + LAYERS * layer
    assert root + 2 * layer <= _gathered("fsdp2") < root + 4 * layer
    assert _gathered("fsdp2 ends") < _gathered("fsdp2") - root / 4
    assert root + 2 * layer <= _gathered("fsdp1") < root + 3 * layer
    assert _gathered("fsdp1 alone") == pytest.approx(_gathered("fsdp1") - layer, rel=0.01)
    assert root + LAYERS * layer <= _gathered("fsdp1 kept") < root + (LAYERS + 1) * layer


def _gathered(name: str) -> int:
    log, live, most = _traces()[name].log, 0, 0
    for event in log.order:
        allocation = log.allocations[abs(event) - 1]
        if allocation.category == "gathered" or allocation.op == "resize_":
            live += allocation.size if event > 0 else -allocation.size
            most = max(most, live)
    return most


@torch_only
def test_weights_on_the_host_leave_the_card() -> None:
    assert _held("fsdp2 host", "weights") < 4096
    assert _held("fsdp2 host", "optimizer") == 0


def test_what_the_tracer_does_not_run_is_refused_with_what_to_try() -> None:
    from vramcast.models.reading import read_model

    model = read_model("meta-llama/Llama-3.1-8B")

    def refusal(**fields: object) -> str:
        question = Training(model=model.id, gpus=8, framework="hf_trainer", parallel=Parallel(dp=8), **fields)  # type: ignore[arg-type]
        with pytest.raises(UnmodelledError) as refused:
            distribution_of(question, resolve(question, model)[0], LayoutOptions())
        return str(refused.value)

    assert "sharding zero3: vramcast train answers it; the trace does not yet, because DeepSpeed's engine" in refusal(zero=3)
    assert "FSDP1's offload" in refusal(fsdp=1, offload=("parameters",))


def test_an_impossible_layout_is_refused() -> None:
    with pytest.raises(QuestionError, match="8 data-parallel ranks do not divide into 3 replicas"):
        Distribution(parallel=Parallel(dp=8, replicate=3), sharding="fsdp2")
    with pytest.raises(QuestionError, match="unknown sharding to trace 'fspd2': did you mean fsdp2"):
        Distribution(sharding="fspd2")
    with pytest.raises(QuestionError, match="8,192 ranks are more than the tracer pretends"):
        Distribution(parallel=Parallel(dp=8192))
