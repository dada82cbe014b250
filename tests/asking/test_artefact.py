"""What a name says beside the model: Ollama's tags, GGUF repositories and files decide engine and type, unless they are typed."""

from pathlib import Path

import pytest

import vramcast
from vramcast.asking.artefact import artefact_of
from vramcast.asking.serving import serving_question
from vramcast.errors import QuestionError


@pytest.mark.parametrize(
    ("text", "model", "engine", "quant"),
    [
        ("llama3.1:8b", "llama3.1:8b", "ollama", "Q4_K_M"),
        ("llama3.1:latest", "llama3.1", "ollama", "Q4_K_M"),
        ("llama3.2:3b-instruct-q8_0", "llama3.2:3b-instruct", "ollama", "Q8_0"),
        ("https://ollama.com/library/gemma3:27b-it-fp16", "gemma3:27b-it", "ollama", "F16"),
        ("gpt-oss:20b", "gpt-oss:20b", "ollama", None),
        ("gemma-3-27b-it-GGUF:Q4_K_M", "gemma-3-27b-it-GGUF", "llama_cpp", "Q4_K_M"),
        ("bartowski/Llama-3.3-70B-Instruct-GGUF", "bartowski/Llama-3.3-70B-Instruct-GGUF", "llama_cpp", "Q4_K_M"),
        ("google/gemma-3-27b-it-qat-q4_0-gguf", "google/gemma-3-27b-it-qat-q4_0-gguf", "llama_cpp", "Q4_0"),
        ("hf.co/unsloth/Qwen3-8B-GGUF:UD-Q4_K_XL", "unsloth/Qwen3-8B-GGUF", "llama_cpp", "Q4_K_M"),
        ("Qwen3-30B-A3B-IQ4_XS.gguf", "Qwen3-30B-A3B", "llama_cpp", "IQ4_XS"),
        ("./models/x.gguf", "./models/x.gguf", "llama_cpp", None),
        ("https://huggingface.co/Qwen/Qwen2.5-7B-Instruct/", "Qwen/Qwen2.5-7B-Instruct", None, None),
        ("TheBloke/Llama-2-13B-chat-AWQ", "TheBloke/Llama-2-13B-chat-AWQ", None, None),
        ("qwen2.5 7b", "qwen2.5 7b", None, None),
    ],
)
def test_names(text: str, model: str, engine: str | None, quant: str | None) -> None:
    found = artefact_of(text)
    assert (found.model, found.engine, found.quant) == (model, engine, quant)


def test_a_folder_that_is_there_stays_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "x-GGUF"
    folder.mkdir()
    assert artefact_of(str(folder)).engine is None


def test_what_is_typed_wins() -> None:
    asked = serving_question("llama3.1:8b", engine="vllm").question
    assert (asked.engine, asked.quant) == ("vllm", None)
    assert serving_question("llama3.1:8b", quant="Q8_0").question.quant == "Q8_0"
    told = serving_question("llama3.1:8b").assumed
    assert [(a.name, a.value) for a in told] == [("engine", "ollama"), ("quant", "Q4_K_M")]


def test_the_engine_fits_the_card() -> None:
    mac = serving_question("google/gemma-3-27b-it", gpu="M3 Max 64GB")
    assert (mac.question.engine, mac.question.quant) == ("llama_cpp", "Q4_K_M")
    assert "vllm has no build for Apple GPU" in mac.assumed[0].because
    assert serving_question("google/gemma-3-27b-it", gpu="4090").question.engine == "vllm"


@pytest.mark.parametrize(
    ("typed", "taken"), [("UD-Q4_K_XL", "Q4_K_M"), ("ud-iq2_xxs", "IQ2_XXS"), ("Q6_K_XL", "Q6_K"), ("UD-Q8_K_XL", "Q8_0")]
)
def test_a_mix_of_unsloth_is_taken_as_that_of_its_bits_and_told(typed: str, taken: str) -> None:
    asked = serving_question("Qwen/Qwen3-8B", engine="llama.cpp", quant=typed, gpu="3060")
    assert asked.question.quant == taken
    assert any(one.name == "quant" and typed in one.because for one in asked.assumed)


def test_a_mix_that_nobody_makes_is_named_as_it_was_typed() -> None:
    with pytest.raises(QuestionError, match="UD-Q9_K_XL"):
        vramcast.serve("Qwen/Qwen3-8B", engine="llama.cpp", quant="UD-Q9_K_XL", gpu="3060")
