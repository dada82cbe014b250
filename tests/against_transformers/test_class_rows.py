"""The rows of classes say what transformers answers; the windows that families read by rule are those its configs give."""

from typing import Any

import msgspec
import pytest

pytest.importorskip("transformers")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

from build_classes import asked, compact, with_answers  # noqa: E402
from class_questions import is_text, small_config  # noqa: E402
from transformers import CONFIG_MAPPING  # noqa: E402

from vramcast.models.classes import ROWS, ModelClass, model_class, model_classes  # noqa: E402
from vramcast.models.families import read_config  # noqa: E402

GIVEN = {row["name"]: row for row in map(msgspec.json.decode, ROWS.read_bytes().splitlines())}


def _one_of_each() -> list[str]:
    """One class of every way to write a layer, the one that sorts last: the tool checks all of them."""
    found: dict[Any, str] = {row.layer: row.name for row in model_classes() if row.asked}
    return sorted(found.values())


@pytest.mark.parametrize("kind", _one_of_each())
def test_the_row_says_what_transformers_answers(kind: str) -> None:
    row = compact(GIVEN[kind])
    assert with_answers(row, asked(kind)) == row


def test_the_tool_writes_every_row_as_it_stands() -> None:
    """Also groups that it never asks for, and those with a field that must be given (``remote``)."""
    assert [name for name, row in GIVEN.items() if msgspec.json.encode(compact(row)) != msgspec.json.encode(row)] == []


SHARED = [row.name for row in model_classes() if row.reads_as and is_text(row.name)]
UNBUILT = {
    "deepseek_ocr2_text",
    "hunyuan_vl_text",
    "paddleocr_vl_text",
    "qwen2_5_omni_text",
    "qwen3_omni_moe_text",
    "step3p5",
    "unlimited_ocr_text",
}  # fmt: skip  (no model of their own)
DENSE = {"granite_docling_text"}  # Granite's row tells the router of its sparse sisters too


@pytest.mark.parametrize("kind", sorted(set(SHARED) - UNBUILT))
def test_a_decoder_read_as_another_class_is_written_like_it(kind: str) -> None:
    """Whose facts a wrapper's decoder takes: transformers answers the same for both."""
    row = model_class(kind)
    answer = msgspec.convert({"name": row.name, **asked(kind)}, ModelClass)
    same = ("norms", "norm_form", "layer_norm", "softmax_as_is", "router", "float_router", "float_routes")
    same = same[:4] if kind in DENSE else same
    assert row.layer is not None
    assert answer.layer is not None
    assert {f: getattr(answer.layer, f) for f in same} == {f: getattr(row.layer, f) for f in same}


OWN_WORDS = {"deepseek_v4", "dots3_note_text"}  # their layer_types say how a layer compresses, not how far it sees
LAYERS = 24


def _windowed() -> list[str]:
    kinds = [row.name for row in model_classes() if row.reader and is_text(row.name) and row.name not in OWN_WORDS]
    return [kind for kind in kinds if "sliding_attention" in (getattr(CONFIG_MAPPING[kind](), "layer_types", None) or ())]


@pytest.mark.parametrize("kind", _windowed())
def test_layers_slide_where_the_class_says(kind: str) -> None:
    """``layer_types`` of a config that does not state them, against the rule of the family that reads it."""
    try:
        config = CONFIG_MAPPING[kind](num_hidden_layers=LAYERS)
    except Exception as error:  # a class whose other defaults fit only its own depth
        pytest.skip(f"{type(error).__name__}: {error}")
    said = [name == "sliding_attention" for name in config.layer_types]
    raw = {k: v for k, v in config.to_dict().items() if k not in ("layer_types", "architectures")} | {"model_type": kind}
    model = read_config(raw)
    assert [any(getattr(m, "window", 0) for m in block.mixers) for block in model.layer_list()] == said


def test_small_configs_are_small() -> None:
    assert small_config("llama").hidden_size == 64
