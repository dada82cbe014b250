"""What engines say of classes that they do not have."""

import pytest

import vramcast
from vramcast import read_model
from vramcast.serving.engines.classes import lacking, registries


def _said(engine: str, version: str, model: str) -> tuple[str, str]:
    told, unknown = lacking(engine, version, read_model(model))
    return (str(told[0].value), told[0].because) if told else ("", unknown[0].what if unknown else "")


@pytest.mark.parametrize(
    ("engine", "version", "model", "value", "words"),
    [
        ("vllm", "0.33.0", "Qwen/Qwen2.5-7B-Instruct", "", ""),
        ("vllm", "0.33.0", "google-t5/t5-3b", "refused", "--engine transformers"),
        ("sglang", "0.5.23", "google-t5/t5-3b", "refused", "--engine transformers"),
        ("vllm", "0.33.0", "EleutherAI/gpt-neo-1.3B", "refused", "GPTNeoForCausalLM"),
        ("vllm", "0.33.0", "baichuan-inc/Baichuan2-7B-Chat", "refused", "vllm==0.23.0"),
        ("vllm", "0.23.0", "baichuan-inc/Baichuan2-7B-Chat", "", ""),
        ("vllm", "0.10.2", "meta-llama/Llama-3.2-11B-Vision-Instruct", "", ""),
        ("vllm", "0.33.0", "adept/persimmon-8b-base", "transformers", "transformers' code"),
        ("sglang", "0.5.23", "HuggingFaceTB/SmolLM3-3B", "transformers", "transformers' code"),
        ("lmdeploy", "0.18.0", "HuggingFaceTB/SmolLM3-3B", "refused", "SmolLM3ForCausalLM"),
        ("vllm", "0.33.0", "THUDM/cogvlm2-llama3-caption", "", "the checkpoint's own code"),
        ("tensorrt_llm", "1.1.0", "google-t5/t5-3b", "refused", "encoder-decoder"),
        ("tensorrt_llm", "1.1.0", "EleutherAI/gpt-neo-1.3B", "", ""),
        ("llama_cpp", "b9900", "google-t5/t5-3b", "", ""),
    ],
)
def test_a_class_is_there_or_named(engine: str, version: str, model: str, value: str, words: str) -> None:
    found = _said(engine, version, model)
    assert found[0] == value and words in found[1] and bool(found[1]) == bool(words)


def test_a_newer_release_than_the_lists_is_not_judged() -> None:
    assert lacking("vllm", "0.99.0", read_model("google-t5/t5-3b")) == ((), ())


def test_a_name_that_the_catalogue_typed_itself_refuses_nothing() -> None:
    model = read_model("inclusionAI/Ling-3.0-flash")
    assert model.architecture not in registries()["sglang"].classes
    assert lacking("sglang", "0.5.23", model) == ((), ())


def test_endings_are_read_as_the_engine_reads_them() -> None:
    assert _said("vllm", "0.33.0", "OpenAssistant/oasst-rm-2.1-pythia-1.4b-epoch-2.5") == ("", "")


@pytest.mark.parametrize(
    ("model", "release"),
    [
        ("baichuan-inc/Baichuan2-7B-Chat", "0.23.0"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", "0.10.2"),
        ("facebook/bart-large", "0.10.2"),
    ],
)
def test_without_a_version_the_newest_release_that_has_the_class_answers(model: str, release: str) -> None:
    answer = vramcast.serve(model, gpu="H100")
    assert answer.workload["engine_version"] == release and answer.fit is not None and not answer.fit.refused
