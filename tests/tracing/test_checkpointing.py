"""What each kind of checkpointing leaves of a layer, traced, against the list of what it keeps."""

from functools import cache

import pytest

from vramcast.errors import QuestionError
from vramcast.tracing.request import TraceRequest, TraceResult
from vramcast.tracing.run import Tracer

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("transformers")

H, FF, HEADS, KV, SEQ = 256, 704, 4, 128, 512
LLAMA = {
    "model_type": "llama", "hidden_size": H, "intermediate_size": FF, "num_hidden_layers": 4, "num_attention_heads": HEADS,
    "num_key_value_heads": KV * HEADS // H, "vocab_size": 1024,
}  # fmt: skip
BF16, FLASH_RANDOM_STATE = 2, 24


@cache
def _traces(tracer: Tracer) -> dict[str, TraceResult]:
    kinds = ("none", "full", "offloaded", "op", "layer:2")
    requests = [TraceRequest(config=LLAMA, seq=SEQ, backend="cuda", checkpointing=kind) for kind in kinds]
    requests.append(TraceRequest(config=LLAMA, seq=SEQ, backend="cuda", compiled=True))
    return dict(zip((*kinds, "compiled"), map(tracer.trace, requests), strict=True))


def _saved(tracer: Tracer, kind: str, layer: int) -> int:
    """Bytes made in a layer's forward that wait for backward in the last step."""
    log = _traces(tracer)[kind].log
    start = max(m.place for m in log.marks if m.name == "backward")
    return sum(a.size for a in log.alive_at(start) if a.phase == "forward" and f".layers.{layer}" in a.module and not a.category)


def test_full_checkpointing_keeps_the_output_that_the_next_layer_starts_from(tracer: Tracer) -> None:
    assert _saved(tracer, "full", 1) == BF16 * SEQ * H


def test_an_offloaded_checkpoint_leaves_nothing_on_the_card_and_comes_back_for_its_backward(tracer: Tracer) -> None:
    assert (_traces(tracer)["offloaded"].error, _traces(tracer)["offloaded"].steps) == ("", 2)
    assert [_saved(tracer, "offloaded", n) for n in range(3)] == [0, 0, 0]
    back = [
        a for a in _traces(tracer)["offloaded"].log.allocations if a.phase == "backward" and "_to_copy" in a.op and not a.module
    ]
    assert sum(a.size == BF16 * SEQ * H for a in back) >= 4 * 2  # each layer's input in either step


def test_the_list_of_operations_keeps_attention_and_every_second_product(tracer: Tracer) -> None:
    """Of q, k, v, o, gate, up and down the first, third, fifth and seventh; attention's output, statistics and random state."""
    products = BF16 * SEQ * (H + KV + FF + H)
    attention = BF16 * SEQ * H + 4 * HEADS * SEQ + FLASH_RANDOM_STATE
    assert _saved(tracer, "op", 1) == BF16 * SEQ * H + products + attention


def test_every_second_layer_is_recomputed_from_the_output_of_the_one_before(tracer: Tracer) -> None:
    assert [_saved(tracer, "layer:2", n) for n in (1, 3)] == [0, 0]
    assert _saved(tracer, "layer:2", 2) == _saved(tracer, "none", 2) + BF16 * SEQ * H


def test_a_compiled_layer_saves_what_the_partitioner_leaves_and_no_more_than_an_eager_one(tracer: Tracer) -> None:
    """Norms and the activation are made again from products and inputs; products and attention are kept."""
    assert _traces(tracer)["compiled"].error == ""
    eager, compiled = _saved(tracer, "none", 1), _saved(tracer, "compiled", 1)
    products = BF16 * SEQ * (H + 2 * KV + 2 * FF) + BF16 * SEQ * H
    assert products <= compiled < 0.8 * eager


def test_an_unknown_kind_is_refused(tracer: Tracer) -> None:
    with pytest.raises(QuestionError, match="unknown checkpointing to trace 'partial'"):
        tracer.trace(TraceRequest(config=LLAMA, checkpointing="partial"))
