"""Distribution in one process: torch's and transformers' own wrappers on a pretended group, against exact identities."""

from functools import cache
from typing import Any

import pytest

from vramcast.errors import QuestionError, UnmodelledError
from vramcast.planning.tracing.layout import LayoutOptions, distribution_of
from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.distribution import Distribution
from vramcast.tracing.eventlog import Allocation
from vramcast.tracing.request import TraceRequest, TraceResult
from vramcast.tracing.run import trace_all
from vramcast.training.resolve import resolve
from vramcast.workload import Parallel, Training

torch_only = pytest.mark.torch
H, FF, LAYERS, VOCAB, SEQ = 256, 512, 4, 1024, 256
LLAMA = {
    "model_type": "llama", "hidden_size": H, "intermediate_size": FF, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": VOCAB,
}  # fmt: skip
MOE = {
    "model_type": "qwen3_moe", "hidden_size": H, "moe_intermediate_size": 128, "intermediate_size": FF, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": VOCAB, "num_experts": 16,
    "num_experts_per_tok": 4,
}  # fmt: skip
EXPERTS = 2 * 16 * 3 * H * 128
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
    "fsdp1 whole": _sharded("fsdp1", unreduced=True),
    "fsdp2 whole": _sharded("fsdp2", unreduced=True),
    "tp": Distribution(parallel=Parallel(tp=2)),
    "tp, parts of the sequence": Distribution(parallel=Parallel(tp=2), sequence_parallel=True, loss_parallel=True),
    "tp x ddp": Distribution(parallel=Parallel(tp=2, dp=2), sharding="ddp"),
    "tp x fsdp2": _sharded("fsdp2", parallel=Parallel(tp=2, dp=RANKS)),
    "one expert rank": Distribution(),
    "ep": Distribution(parallel=Parallel(dp=4, ep=4), sharding="fsdp2"),
    "ep x tp": Distribution(parallel=Parallel(tp=2, dp=4, ep=4), sharding="fsdp2"),
}


@cache
def _traces() -> dict[str, TraceResult]:
    """Every layout of this file, traced in one process."""
    pytest.importorskip("transformers")
    weights = {name: "float32" if how.compute else "bfloat16" for name, how in LAYOUTS.items()}
    requests = [
        TraceRequest(
            config=_config(name),
            seq=SEQ,
            backend="cuda",
            param_dtype=weights[name],
            distribution=how,
            accumulate=2 if how.unreduced else 1,
        )
        for name, how in LAYOUTS.items()
    ]
    return dict(zip(LAYOUTS, trace_all(requests, timeout_s=120), strict=True))


def _config(name: str) -> dict[str, Any]:
    return MOE if name.startswith(("ep", "one expert")) else LLAMA


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
    assert (result.error, result.steps) == ("", 2)
    if _config(name) is LLAMA:
        assert result.parameters == PARAMETERS


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


@torch_only
def test_gradients_that_wait_for_the_last_micro_batch_are_whole() -> None:
    assert _most("fsdp1 whole", "gradients") >= BF16 * PARAMETERS
    whole, sharded = (replay(_traces()[name].log).peak_allocated_bytes for name in ("fsdp2 whole", "fsdp2"))
    assert whole - sharded == pytest.approx(FP32 * PARAMETERS, rel=0.01)


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


@torch_only
def test_tensor_parallelism_halves_matrices_and_keeps_norms_whole() -> None:
    rotary, norms = 2 * 4 * (H // 4 // 2), (2 * LAYERS + 1) * H
    halved = BF16 * ((PARAMETERS - norms) // 2 + norms) + rotary
    assert _held("tp", "weights") == halved
    assert _held("tp, parts of the sequence", "weights") == halved
    assert _held("tp x ddp", "weights") == _held("tp", "weights")
    assert _held("tp x ddp", "communication") == halved - rotary
    assert _held("tp x fsdp2", "weights") == pytest.approx(2 * (halved - rotary) / RANKS + rotary, abs=1024)


@torch_only
def test_parts_of_the_sequence_are_saved_where_no_matrix_is_cut_and_logits_stay_divided() -> None:
    """Two norms a layer keep their rows in 32 bits, the normed rows in 16 and a scale per row; inputs of products are whole."""
    whole, parts = _saved("tp", "layers.1."), _saved("tp, parts of the sequence", "layers.1.")
    assert whole - parts == 2 * (4 * SEQ * H + 2 * SEQ * H + 4 * SEQ) // 2
    assert _largest("tp") == 4 * SEQ * VOCAB
    assert _largest("tp, parts of the sequence") < 4 * SEQ * VOCAB


def _saved(name: str, layer: str) -> int:
    log = _traces()[name].log
    start = max(m.place for m in log.marks if m.name == "backward")
    return sum(a.size for a in log.alive_at(start) if a.phase == "forward" and layer in a.module and a.category == "")


def _largest(name: str) -> int:
    return max(a.size for a in _traces()[name].log.allocations if a.category == "" and a.phase == "forward")


@torch_only
def test_experts_are_divided_by_their_ranks_and_the_rest_over_all() -> None:
    total = _traces()["one expert rank"].parameters
    others, rotary = total - EXPERTS, 2 * 4 * (64 // 2)
    assert _held("ep", "weights") == pytest.approx(BF16 * (EXPERTS / 4 + others / 4) + rotary, abs=512)
    spread = BF16 * (EXPERTS / 8 + others / 8) + rotary
    assert spread < _held("ep x tp", "weights") < 1.05 * spread  # norms and routers are whole on every tensor-parallel rank


@torch_only
def test_tokens_travel_to_their_experts_and_back() -> None:
    """A rank gets as many routed tokens as it sends, by the balanced routing policy: 256 tokens, 4 experts each."""
    routed = BF16 * SEQ * 4 * H
    moved = [a for a in _traces()["ep"].log.allocations if "all_to_all" in a.op and a.size == routed and a.phase == "forward"]
    assert len(moved) == 2 * 2 * 2  # two ways, two layers, two steps
    assert not _traces()["ep"].guessed


def test_what_the_tracer_does_not_run_is_refused_with_what_to_try() -> None:
    from vramcast.models.reading import read_model

    model = read_model("meta-llama/Llama-3.1-8B")

    def refusal(**fields: object) -> str:
        usual = {"model": model.id, "gpus": 8, "framework": "hf_trainer", "parallel": Parallel(dp=8)}
        question = Training(**(usual | fields))  # type: ignore[arg-type]
        with pytest.raises(UnmodelledError) as refused:
            distribution_of(question, resolve(question, model)[0], LayoutOptions())
        return str(refused.value)

    assert "sharding distributed_optimizer: Megatron's layers are its own" in refusal(framework="megatron")
    assert "FSDP1 beside tensor or expert parallelism: use --fsdp 2" in refusal(fsdp=1, parallel=Parallel(tp=2, dp=4))
    assert "FSDP1's offload" in refusal(fsdp=1, offload=("parameters",))


@torch_only
def test_key_value_heads_that_do_not_divide_are_named() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(QuestionError, match="2 key-value heads do not divide over tp 4 in transformers: tp can be 1, 2"):
        trace_all([TraceRequest(config=LLAMA, seq=SEQ, distribution=Distribution(parallel=Parallel(tp=4)))])


def test_an_impossible_layout_is_refused() -> None:
    with pytest.raises(QuestionError, match="8 data-parallel ranks do not divide into 3 replicas"):
        Distribution(parallel=Parallel(dp=8, replicate=3), sharding="fsdp2")
    with pytest.raises(QuestionError, match="unknown sharding to trace 'fspd2': did you mean fsdp2"):
        Distribution(sharding="fspd2")
    with pytest.raises(QuestionError, match="8,192 ranks are more than the tracer pretends"):
        Distribution(parallel=Parallel(dp=8192))


SHARED = {
    "bert": {
        "model_type": "bert", "hidden_size": H, "intermediate_size": FF, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": VOCAB, "architectures": ["BertForMaskedLM"],
    },
    "t5": {
        "model_type": "t5", "d_model": H, "d_ff": FF, "num_layers": 2, "num_heads": 4, "d_kv": 64, "vocab_size": VOCAB,
        "decoder_start_token_id": 0,
        "architectures": ["T5ForConditionalGeneration"],
    },
}  # fmt: skip


@torch_only
@pytest.mark.parametrize("kind", SHARED)
def test_weights_that_several_modules_share_are_one_group(kind: str) -> None:
    pytest.importorskip("transformers")
    request = TraceRequest(
        config=SHARED[kind], seq=64, backend="cuda", param_dtype="float32", distribution=_sharded("fsdp2", ends_apart=True)
    )
    result = trace_all([request], timeout_s=120)[0]
    assert result.error == ""
    kept = sum(a.size for a in result.log.allocations if a.category == "weights" and a.end < 0)
    assert kept == pytest.approx(FP32 * result.parameters / RANKS, rel=0.02)  # shards are padded to equal rows
