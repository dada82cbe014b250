"""Engine flags are accepted as their users type them, and refused in one line."""

import pytest

from vramcast.asking.engine_line import fields, read_flags
from vramcast.asking.serving import serving_question
from vramcast.errors import QuestionError
from vramcast.serving.engines.options import Option

OPTIONS = (
    Option(name="gpu_memory_utilization", kind="float", about="fraction of the card"),
    Option(name="max_num_seqs", kind="count", about="sequences at once"),
    Option(name="enforce_eager", kind="bool", about="no CUDA graphs"),
    Option(name="n_gpu_layers", kind="int", about="layers on the card", flags=("-ngl",)),
    Option(name="split_mode", kind="text", about="how layers are split", choices=("layer", "row", "none")),
)


def read(*arguments: str) -> dict:
    return read_flags(list(arguments), OPTIONS, engine="vllm")


def test_every_spelling() -> None:
    assert read("--gpu-memory-utilization", "0.9", "--max_num_seqs=1k", "-ngl", "40") == {
        "gpu_memory_utilization": 0.9,
        "max_num_seqs": 1000,
        "n_gpu_layers": 40,
    }


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--enforce-eager"], True),
        (["--enforce-eager", "false"], False),
        (["--no-enforce-eager"], False),
        (["--enforce-eager=on"], True),
    ],
)
def test_switches(arguments: list[str], value: bool) -> None:
    assert read(*arguments) == {"enforce_eager": value}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu-memory-utilisation", "0.9"], "did you mean --gpu-memory-utilization"),
        (["--max-num-seqs"], "--max-num-seqs needs a value: sequences at once"),
        (["-ngl", "many"], "-ngl is 'many', expected a whole number"),
        (["extra"], "unexpected argument 'extra'"),
    ],
)
def test_refusals(arguments: list[str], message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        read(*arguments)


def test_our_own_fields_in_an_engines_spelling() -> None:
    expected = ({"context": "32768", "tp": "2"}, ["-ngl", "99", "--max-num-seqs", "8"])
    assert fields(["-c", "32768", "-ngl", "99", "--tensor-parallel-size=2", "--max-num-seqs", "8"]) == expected
    assert fields("-c 32768 -ngl 99 --tensor-parallel-size=2 --max-num-seqs '8'") == expected
    with pytest.raises(QuestionError, match="No closing quotation"):
        fields("-c '32768")


def test_flags_of_the_engine_without_a_rule_are_told_and_misspelt_ones_refused() -> None:
    words = ["--served-model-name", "x", "--max-num-seqs", "2", "--limit-mm-per-prompt", '{"image": 2}', "--trust-remote-code"]
    asked = serving_question("Qwen/Qwen2.5-VL-7B-Instruct", flags=words, gpu="4090")
    assert asked.question.options == {"max_num_seqs": 2}
    told = {one.name: str(one.value) for one in asked.assumed}
    assert {"served-model-name", "trust-remote-code"} <= set(told["no effect on memory"].split(", "))
    assert "vision and audio towers" in asked.unmodelled[0].what
    with pytest.raises(QuestionError, match="did you mean --max-num-seqs"):
        serving_question("Qwen/Qwen2.5-7B", flags=["--port", "1", "--max-num-seqz", "2"], gpu="4090")


def test_an_engines_other_name_for_an_option_of_ours_is_typed_as_it_is_pasted() -> None:
    """SGLang counts the token that is checked among its draft tokens: four are three drafted."""
    words = ["--speculative-num-draft-tokens", "4"]
    asked = serving_question("deepseek-ai/DeepSeek-V3", flags=words, gpu="H200x8", tp=8, engine="sglang")
    assert asked.question.options["num_speculative_tokens"] == 3
