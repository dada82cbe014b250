"""What a config says of rotary tables: rows beside its positions, tables of sliding layers, sections."""

from typing import Any

import pytest

from vramcast.models.inventory import Model
from vramcast.models.reading import read_model
from vramcast.models.rotary import LOCAL, ROWS, SECTIONS, with_tables
from vramcast.serving.engines.base import answer_of
from vramcast.units import MiB
from vramcast.workload import Serving

BARE = Model(id="", family="llama", hidden=1, vocab=1, blocks=(), tensors=(), positions=32768)


def facts(**config: Any) -> dict[str, float]:
    return with_tables(BARE, {"max_position_embeddings": 32768, **config}).facts


@pytest.mark.parametrize(
    ("scaling", "rows"),
    [
        ({"rope_type": "linear", "factor": 8.0}, 8 * 32768),
        ({"type": "dynamic", "factor": 2.0}, 2 * 32768),
        ({"type": "dynamic", "factor": 2.0, "alpha": 1000.0}, None),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 4 * 32768),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}, None),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, None),
        ({"type": "longrope", "original_max_position_embeddings": 4096}, 4096 + 32768),
        ({"rope_type": "linear", "factor": "much"}, None),
        (None, None),
    ],
)
def test_rows_follow_the_kind_of_scaling(scaling: Any, rows: int | None) -> None:
    assert facts(rope_scaling=scaling).get(ROWS) == rows


def test_sections_are_long_unless_interleaved() -> None:
    assert facts(rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}) == {SECTIONS: 1}
    assert facts(rope_parameters={"mrope_section": [24, 20, 20], "mrope_interleaved": True}) == {}


def test_sliding_layers_with_a_base_of_their_own_have_a_table_of_their_own() -> None:
    assert facts(text_config={"rope_local_base_freq": 10000.0}) == {LOCAL: 1}
    by_kind = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    assert facts(rope_parameters=by_kind) == {LOCAL: 1}
    assert facts(rope_parameters={"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e6}}) == {}


def table(model: str, **question: Any) -> float:
    """MiB of the rotary tables of one rank."""
    answer = answer_of(Serving(model=model, context=4096, **question))
    weights = next(t for t in answer.ranks[0].terms if t.name == "weights")
    return next(t.bytes for t in weights.terms if t.name == "rotary_tables") / MiB


def test_gemma_3_keeps_a_table_eight_times_as_long_and_a_plain_one() -> None:
    assert table("google/gemma-3-27b-it") == (8 + 1) * 131072 * 128 * 2 / MiB
    assert table("google/gemma-3-1b-it") == 2 * 32768 * 256 * 2 / MiB


def test_qwen_2_5_vl_keeps_four_times_its_positions_since_it_was_supported() -> None:
    positions = read_model("Qwen/Qwen2.5-VL-7B-Instruct", offline=True).positions
    assert table("Qwen/Qwen2.5-VL-7B-Instruct") == 4 * positions * 128 * 2 / MiB
    assert table("Qwen/Qwen2.5-VL-7B-Instruct", engine_version="0.7.1") == positions * 128 * 2 / MiB
    interleaved = read_model("Qwen/Qwen3-VL-8B-Instruct", offline=True).positions
    assert table("Qwen/Qwen3-VL-8B-Instruct") == interleaved * 128 * 2 / MiB
