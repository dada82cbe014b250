"""A family and a size without a publisher: the maker's current model of that size, never a guess about other names."""

import pytest

from vramcast.errors import QuestionError
from vramcast.models.inventory import resolved_id
from vramcast.models.reading import read_model
from vramcast.models.reading.typed import current


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("llama 70b", "meta-llama/Llama-3.3-70B-Instruct"),
        ("gemma 27b", "google/gemma-3-27b-it"),
        ("qwen 32b", "Qwen/Qwen3-32B"),
        ("qwen3 coder 30b", "Qwen/Qwen3-Coder-30B-A3B-Instruct"),
        ("qwen3-235b", "Qwen/Qwen3-235B-A22B"),
        ("qwen3-next-80b", "Qwen/Qwen3-Next-80B-A3B-Instruct"),
        ("mistral-7b-instruct", "mistralai/Mistral-7B-Instruct-v0.3"),
        ("mistral nemo 12b", "mistralai/Mistral-Nemo-Instruct-2407"),
        ("phi 14b", "microsoft/phi-4"),
        ("glm 9b", "THUDM/GLM-4-9B-0414"),
    ],
)
def test_a_family_with_its_size_is_the_makers_current_model(typed: str, meant: str) -> None:
    model = read_model(typed, offline=True)
    assert resolved_id(model) == meant
    assert meant in next(a.because for a in model.assumed if a.name == "model")


@pytest.mark.parametrize(
    "typed", ["qwen 72b", "mixtral 8x7b", "mistral 7b instruct v0.2", "llama-3.1-8b", "qwen2.5 7b", "yi 34b", "llama3 70b"]
)
def test_a_name_that_says_its_generation_stays_that_generation(typed: str) -> None:
    digits = "".join(filter(str.isdigit, typed))
    assert digits in "".join(filter(str.isdigit, resolved_id(read_model(typed, offline=True))))


@pytest.mark.parametrize("typed", ["deepseek 671b", "llama 90b", "nosuch 7b", "gemma 1000b"])
def test_a_size_that_no_model_of_the_family_has_is_refused_with_the_nearest(typed: str) -> None:
    with pytest.raises(QuestionError, match="unknown model"):
        read_model(typed, offline=True)


@pytest.mark.parametrize("typed", ["llama", "70b", "org/llama-70b", "qwen2.5-7b-awq", "qwen3 8b 32b"])
def test_names_of_other_kinds_are_not_read_so(typed: str) -> None:
    assert current(typed) is None
