"""Short names mean the maker's own model; suggestions go by likeness and by how well known a model is, never by the alphabet."""

import pytest

from vramcast.errors import QuestionError
from vramcast.models import reading
from vramcast.models.inventory import facts_of
from vramcast.models.reading import read_model
from vramcast.models.reading.known import MAKERS, SHORT, in_english, is_by_maker


def test_every_short_name_means_a_catalogued_model_of_its_maker() -> None:
    index = reading.read_index()
    for short, meant in SHORT.items():
        assert meant.lower() in index.models or meant.lower() in index.aliases, short
        assert is_by_maker(meant), meant
    assert len(MAKERS) == len(set(MAKERS))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("llama3.3", "meta-llama/Llama-3.3-70B-Instruct"),
        ("Llama 2", "meta-llama/Llama-2-7b-chat-hf"),
        ("gpt oss", "openai/gpt-oss-20b"),
        ("通义千问7B", "Qwen/Qwen-7B"),
        ("qwen2.5 7b", "Qwen/Qwen2.5-7B"),
    ],
)
def test_names_are_answered_by_the_id_they_mean(typed: str, meant: str) -> None:
    assert facts_of(read_model(typed, offline=True)).id == meant


def test_chinese_families() -> None:
    assert in_english("智谱 4.5") == "glm 4.5"


@pytest.mark.parametrize(
    ("typed", "first"),
    [("vicuna 65b", "lmsys/vicuna"), ("llama 3.1 71b", "meta-llama/Llama"), ("qwen2.5 coder 99b", "qwen/qwen2.5-coder")],
)
def test_suggestions_begin_with_the_makers_own(typed: str, first: str) -> None:
    with pytest.raises(QuestionError, match=rf"(?i)did you mean {first}"):
        read_model(typed, offline=True)


def test_what_nobody_can_load_is_said() -> None:
    with pytest.raises(QuestionError, match="the weights of 'gpt-4o' are not published"):
        read_model("gpt-4o", offline=True)
    with pytest.raises(QuestionError, match=r"there is no file 'compose\.yml' here, and no model is called so"):
        read_model("compose.yml", offline=True)


@pytest.mark.parametrize(
    ("model_id", "dtype"),
    [
        ("google/gemma-3-12b-it", "bfloat16"),
        ("huggyllama/llama-65b", "float16"),
        ("TheBloke/Llama-2-7B-fp16", "float16"),
        ("EleutherAI/pythia-12b", "float16"),
        ("google-bert/bert-base-cased", "float32"),
        ("allenai/OLMo-2-1124-7B", "float32"),
    ],
)
def test_types_are_those_of_the_published_weights(model_id: str, dtype: str) -> None:
    assert read_model(model_id, offline=True).dtype == dtype


def test_minimax_m2_is_stored_in_fp8_as_its_makers_say() -> None:
    assert (read_model("MiniMaxAI/MiniMax-M2", offline=True).quantization or {})["quant_method"] == "fp8"
