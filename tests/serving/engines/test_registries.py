"""What engines say of classes and weights that they do not have."""

import pytest

import vramcast
from vramcast import read_model
from vramcast.serving.engines.registries import lacking, newest_with, registry_of, unloadable


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
        ("vllm", "0.33.0", "baichuan-inc/Baichuan2-7B-Chat", "refused", "vllm==0.24.0"),
        ("vllm", "0.24.0", "baichuan-inc/Baichuan2-7B-Chat", "", ""),
        ("vllm", "0.10.2", "meta-llama/Llama-3.2-11B-Vision-Instruct", "", ""),
        ("vllm", "0.33.0", "adept/persimmon-8b-base", "transformers", "transformers' code"),
        ("sglang", "0.5.23", "HuggingFaceTB/SmolLM3-3B", "transformers", "transformers' code"),
        ("lmdeploy", "0.18.0", "HuggingFaceTB/SmolLM3-3B", "refused", "SmolLM3ForCausalLM"),
        ("vllm", "0.33.0", "THUDM/cogvlm2-llama3-caption", "", "the checkpoint's own code"),
        ("tensorrt_llm", "1.1.0", "google-t5/t5-3b", "refused", "--engine transformers"),
        ("tensorrt_llm", "1.1.0", "EleutherAI/gpt-neo-1.3B", "", "its table of supported models"),
        ("vllm", "0.6.6", "deepseek-ai/DeepSeek-V3.2", "refused", "it came with 0.11.0"),
        ("vllm", "0.10.3rc1", "deepseek-ai/DeepSeek-V3.2", "", ""),
        ("vllm", "0.8.3", "Qwen/Qwen3-8B", "", "which came with 0.8.4"),
        ("vllm", "0.7.3", "Qwen/Qwen3-30B-A3B", "refused", "it came with 0.8.4"),
        ("vllm", "0.4", "CohereForAI/c4ai-command-r-v01", "", ""),
        ("sglang", "0.5.23", "OpenAssistant/oasst-rm-2.1-pythia-1.4b-epoch-2.5", "transformers", "no GPTNeoXRewardModel"),
        ("lmdeploy", "0.2.1", "Qwen/Qwen3-8B", "refused", "it came with"),
        ("vllm", "0.6.6", "Qwen/Qwen3-8B", "refused", "it came with 0.8.4"),
        ("llama_cpp", "b9900", "google-t5/t5-3b", "", ""),
    ],
)
def test_a_class_is_there_or_named(engine: str, version: str, model: str, value: str, words: str) -> None:
    found = _said(engine, version, model)
    assert found[0] == value and words in found[1] and bool(found[1]) == bool(words)


def test_a_newer_release_than_the_lists_is_not_judged() -> None:
    assert lacking("vllm", "0.99.0", read_model("google-t5/t5-3b")) == ((), ())


def test_no_release_that_has_the_weights_and_not_the_class_is_advised() -> None:
    """HQQ left vLLM before DeepSeek-V4 came: no release has both, and none is taken."""
    assert newest_with("vllm", read_model("deepseek-ai/DeepSeek-V4-Flash"), "hqq") == ("", "")
    (refused,) = unloadable("vllm", "0.33.0", "hqq", read_model("deepseek-ai/DeepSeek-V4-Flash"))
    assert "no release loads them and has DeepseekV4ForCausalLM" in refused.because


def test_a_name_that_the_catalogue_typed_itself_refuses_nothing() -> None:
    model = read_model("inclusionAI/Ling-3.0-flash")
    registry = registry_of("sglang")
    assert registry is not None and model.architecture not in registry.classes
    told, unknown = lacking("sglang", "0.5.23", model)
    assert told == () and "catalogue's own" in unknown[0].what


def test_endings_are_read_as_the_engine_reads_them() -> None:
    assert _said("vllm", "0.33.0", "OpenAssistant/oasst-rm-2.1-pythia-1.4b-epoch-2.5") == ("", "")


@pytest.mark.parametrize(
    ("model", "release"),
    [
        ("baichuan-inc/Baichuan2-7B-Chat", "0.24.0"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", "0.10.2"),
        ("facebook/bart-large", "0.10.2"),
    ],
)
def test_without_a_version_the_newest_release_that_has_the_class_answers(model: str, release: str) -> None:
    answer = vramcast.serve(model, gpu="H100")
    assert answer.workload["engine_version"] == release and answer.fit is not None and not answer.fit.refused


@pytest.mark.parametrize(
    ("engine", "version", "method", "words"),
    [
        ("vllm", "0.27.1", "nf4", ""),
        ("vllm", "0.28.0", "nf4-dq", "bitsandbytes weights: it was there up to 0.27.1"),
        ("vllm", "0.14.1", "hqq", ""),
        ("vllm", "0.15.0", "hqq-int8", "up to 0.14.1"),
        ("vllm", "0.10.1", "aqlm", "up to 0.10.0"),
        ("vllm", "0.8.3", "torchao", "it came with 0.8.4"),
        ("sglang", "0.5.23", "gptq", ""),
        ("sglang", "0.5.23", "hqq", "weights of another scheme"),
        ("lmdeploy", "0.18.0", "bitsandbytes", "weights of another scheme"),
        ("lmdeploy", "0.18.0", "awq", ""),
        ("tgi", "3.3.4", "eetq", ""),
        ("transformers", "5.23.0", "exl3", "weights of another scheme"),
        ("vllm", "0.33.0", "a scheme of nobody's", ""),
        ("vllm", "0.99.0", "hqq", ""),
    ],
)
def test_weights_are_loaded_or_refused(engine: str, version: str, method: str, words: str) -> None:
    found = unloadable(engine, version, method, read_model("Qwen/Qwen2.5-7B-Instruct"))
    assert bool(found) == bool(words) and all(one.value == "refused" and words in one.because for one in found)


def test_without_a_version_the_newest_release_that_loads_the_weights_answers() -> None:
    answer = vramcast.serve("Qwen/Qwen2.5-7B-Instruct", gpu="4090", quant="nf4")
    assert answer.workload["engine_version"] == "0.27.1" and answer.fit is not None and answer.fit.verdict == "fits"
