"""Projectors and draft models of llama.cpp's lines: counted by their file or their name, told where neither tells a size."""

from pathlib import Path
from typing import Any

import pytest

from vramcast.asking.launched import launched, question_of_launch
from vramcast.asking.serving import serving_question


def _asked(line: str) -> Any:
    found = launched(line, ())
    assert found is not None
    return question_of_launch(found[0], found[1], {}, {}, serving_question)


def _lines(asked: Any) -> str:
    return "\n".join(one.what for one in asked.unmodelled)


def test_a_projector_by_the_towers_of_the_model() -> None:
    line = "llama-server -m gemma-3-12b-it-Q4_K_M.gguf --mmproj mmproj-model-{}.gguf -c 4096 -ngl 99"
    half, quarter = (_asked(line.format(kind)).question.options["mmproj_bytes"] for kind in ("f16", "Q8_0"))
    assert 0.99 < half / 854_200_224 < 1.01  # the file that ggml-org publishes
    assert 0.5 < quarter / half < 0.6
    assert "--mmproj" not in _lines(_asked(line.format("f16")))


def test_a_projector_that_is_there_has_its_size(tmp_path: Path) -> None:
    file = tmp_path / "mmproj.gguf"
    file.write_bytes(b"x" * 1234)
    asked = _asked(f"llama-server -m Qwen3-8B-Q4_K_M.gguf --mmproj {file} -c 4096")
    assert asked.question.options["mmproj_bytes"] == 1234


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("--mmproj mmproj-f16.gguf", "--mmproj"),  # a model without towers: nobody knows its size
        ("-md our-draft.gguf", "--model-draft"),
    ],
)
def test_what_no_name_tells_stays_listed(more: str, told: str) -> None:
    asked = _asked(f"llama-server -m Qwen3-8B-Q4_K_M.gguf -c 4096 {more}")
    assert told in _lines(asked)
    assert not {"mmproj_bytes", "draft_model_bytes"} & asked.question.options.keys()


@pytest.mark.parametrize(
    "more",
    ["--mmproj mmproj-f16.gguf --no-mmproj-offload", "-md Qwen3-0.6B-Q8_0.gguf -ngld 0", "-md Qwen3-0.6B-Q8_0.gguf -devd none"],
)
def test_what_stays_on_the_host_takes_no_card(more: str) -> None:
    asked = _asked(f"llama-server -m gemma-3-12b-it-Q4_K_M.gguf -c 4096 -ngl 99 {more}")
    assert not {"mmproj_bytes", "draft_model_bytes"} & asked.question.options.keys()
    assert "draft" not in _lines(asked) and "mmproj" not in _lines(asked)


def test_a_draft_by_its_name() -> None:
    asked = _asked("llama-server -m Qwen3-32B-Q4_K_M.gguf -md Qwen3-0.6B-Q8_0.gguf -ngld 99 -c 16384 --draft-max 16")
    assert 0.55e9 < asked.question.options["draft_model_bytes"] < 0.7e9
    (own,) = [one for one in asked.unmodelled if "draft model's own cache" in one.what]
    assert own.bound_bytes > 16384 * 28 * 8 * 128 * 2 * 2  # keys and values of 16,384 tokens in f16, and its graph


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("mmproj-Q4_0.gguf", "q4_0"),
        ("Q8_0/mmproj-Q6_K.gguf", "q6_k"),
        ("gemma-3-Q4_K_M-mmproj-BF16.gguf", "bf16"),
        ("mmproj-UD-Q2_K_XL.gguf", "q2_k"),
        ("mmproj-fp32.gguf", "f32"),
    ],
)
def test_a_projectors_name_tells_its_type(file: str, kind: str) -> None:
    asked = _asked(f"llama-server -m gemma-3-12b-it-Q4_K_M.gguf --mmproj {file} -c 4096")
    (told,) = [one.because for one in asked.assumed if one.name == "mmproj_bytes"]
    assert f" in {kind}, " in told and "tells no type" not in told


def test_another_engine_takes_no_size_of_a_projector() -> None:
    found = launched("llama-server -m gemma-3-12b-it-Q4_K_M.gguf --mmproj mmproj-F16.gguf -c 4096", ())
    assert found is not None
    asked = question_of_launch(found[0], found[1], {}, {"engine": "vllm", "gpu": "H100"}, serving_question)
    assert "mmproj_bytes" not in asked.question.options and "mmproj" in _lines(asked)


def test_some_of_a_drafts_layers_are_counted_as_many() -> None:
    """Ten of Qwen3-0.6B's 29 are its output, 151,936 wide, and nine of its 28 layers."""
    line = "llama-server -m Qwen3-32B-Q4_K_M.gguf -md Qwen3-0.6B-Q8_0.gguf -c 16384 -ngld {}"
    some, most = (_asked(line.format(layers)).question.options["draft_model_bytes"] for layers in (10, 99))
    output, layer = 151_936 * 1024, 15_731_712
    assert some / most == pytest.approx((output + 9 * layer) / (output + 28 * layer), rel=0.01)
