"""Contexts beyond a model's positions: a longer rope, or the engine's own switch, is read in every way that people write it."""

import json
from pathlib import Path

import pytest

import vramcast
from vramcast.asking.launched import launched, question_of_launch
from vramcast.asking.serving import serving_question
from vramcast.errors import QuestionError
from vramcast.reading.serving.flags import Flag, _of_overrides

YARN = '{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}'


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("rope-scaling", YARN, ["max-positions=131072"]),
        ("hf-overrides", f'{{"rope_parameters":{YARN}}}', ["max-positions=131072"]),
        ("hf-overrides", '{"text_config":{"max_position_embeddings":65536}}', ["max-positions=65536"]),
        ("hf-overrides", f'{{"rope_scaling":{YARN},"num_hidden_layers":4}}', ["max-positions=131072", "hf-overrides="]),
        ("hf-overrides", '{"architectures":["X"]}', ["hf-overrides="]),
        ("rope-scaling", '{"rope_type":"dynamic","factor":2.0}', ["allow-longer-context="]),
        ("json-model-override-args", f'{{"rope_scaling":{YARN}}}', ["max-positions=131072"]),
    ],
)
def test_the_positions_of_overrides(name: str, value: str, expected: list[str]) -> None:
    found = _of_overrides(Flag(name=name, values=(value,), typed=f"--{name}"), json.loads(value))
    told = [f"{one.name}={'' if one.name == name else one.value or ''}" for one in found]
    assert told == expected


@pytest.mark.parametrize(
    "line",
    [
        f"vllm serve Qwen/Qwen3-8B --rope-scaling '{YARN}' --max-model-len 131072",
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve Qwen/Qwen3-8B --max-model-len 131072",
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 sglang serve --model-path Qwen/Qwen3-8B --context-length 131072",
    ],
)
def test_a_longer_context_is_answered(tmp_path: Path, line: str) -> None:
    (tmp_path / "run.sh").write_text(line + "\n")
    found = launched(None, (), files=(str(tmp_path / "run.sh"),), variables={})
    assert found is not None
    question = question_of_launch(found[0], found[1], {}, {}, serving_question).question
    assert vramcast.serve(question.model, gpu="H100", engine=question.engine, context=question.context, options=question.options)


def test_the_border_names_the_flag_that_moves_it() -> None:
    model, longer = "Qwen/Qwen3-8B", {"max_positions": 131_072}
    with pytest.raises(QuestionError, match="--max-positions N"):
        vramcast.serve(model, gpu="H100", context=100_000)
    assert vramcast.serve(model, gpu="H100", context=100_000, options=longer).workload["context"] == 100_000
    assert vramcast.serve(model, gpu="H100", options=longer).workload["context"] == 131_072
    with pytest.raises(QuestionError, match=r"ask for at most 40,960$"):
        vramcast.serve(model, gpu="H100", engine="lmdeploy", context=100_000)
