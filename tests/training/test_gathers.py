"""What FSDP2's streams and torchtitan's layouts hold beside the instants of a step."""

import pytest

from vramcast.ledger import RankMemory
from vramcast.models.reading import read_model
from vramcast.training.forecast import forecast_training
from vramcast.workload import Parallel, Training

MODEL = "meta-llama/Llama-3.1-8B"
BLOCK = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
VOCABULARY = 128_256 * 4096
GIB = 2**30


def _rank(*, version: str = "2024.12", dp: int = 8, tp: int = 1, checkpointing: str = "op", **more: object) -> RankMemory:
    question = Training(
        model=MODEL, framework="torchtitan", framework_version=version, seq=8192, gpus=dp * tp, parallel=Parallel(dp=dp, tp=tp),
        checkpointing=checkpointing, **more,
    )  # fmt: skip
    return forecast_training(question, model=read_model(MODEL, offline=True)).ranks[0]


def test_what_is_gathered_on_a_stream_of_its_own_is_reserved_beside_the_rest() -> None:
    with_streams, one_graph = _rank(), _rank(options={"one_graph": True})
    gathered = 2 * (BLOCK + 2 * VOCABULARY)  # a block is on its way while the ends are copied out
    assert with_streams.allocated_bytes == one_graph.allocated_bytes
    assert with_streams.reserved_bytes - one_graph.reserved_bytes == pytest.approx(gathered, rel=0.01)


def test_sharded_gradients_have_an_expandable_segment_of_their_own() -> None:
    """Published for these settings: 41.17 GiB active and 49.59 GiB reserved (torchtitan, December 2024)."""
    rank = _rank(options={"expandable": True})
    assert rank.allocated_bytes / GIB == pytest.approx(41.17, rel=0.002)
    assert rank.reserved_bytes / GIB == pytest.approx(49.59, rel=0.02)


def test_eager_8_bit_matmuls_kept_the_absolute_values_of_inputs_and_weights_while_abs_was_on_the_list() -> None:
    """Published: 81.77 GiB with it, 47.77 GiB compiled (torchtitan, pull request 820)."""
    plain, narrow, later = (
        _rank(version=version, compute_dtype=dtype)
        for version, dtype in (("2025.2", None), ("2025.2", "float8"), ("2025.3", "float8"))
    )
    inputs = 8192 * (6 * 4096 + 14336)
    weights = BLOCK - 2 * 4096
    assert narrow.allocated_bytes - plain.allocated_bytes == pytest.approx(32 * 2 * (inputs + weights), rel=0.01)
    assert narrow.reserved_bytes / GIB == pytest.approx(81.77, rel=0.02)
    assert later.allocated_bytes == plain.allocated_bytes


def test_a_vocabulary_over_ranks_makes_a_whole_gradient_on_each() -> None:
    """Traced for these settings at 4,096 tokens: 3.23 GiB, at the embedding's backward."""
    rank = _rank(version="0.2.2", tp=8, checkpointing="full")
    moment = next(i for i in rank.instants if i.name == "backward of the embedding")
    temporaries = next(t.bytes for t in moment.terms if t.name == "temporaries")
    assert temporaries == pytest.approx(2 * VOCABULARY * (1 + 1 / 8), rel=0.01)
    assert not any(i.name == "backward of the embedding" for i in _rank(version="0.2.2").instants)
