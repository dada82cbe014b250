"""The front door: ids, aliases, names taken apart, paths; and what it says when nothing is known."""

import json
import time

import pytest

from vramcast import read_model
from vramcast.errors import MissingError, QuestionError
from vramcast.models import reading
from vramcast.models.names import take_apart


def test_an_id_is_found_whatever_its_letter_case() -> None:
    model = read_model("meta-LLAMA/llama-3.1-8b", offline=True)
    assert (model.id, model.parameters) == ("meta-llama/Llama-3.1-8B", 8_030_261_248)
    assert model.trust == "verbatim" and model.loaded_from.startswith("catalogue (")
    assert model.assumed == ()


def test_a_short_name_is_an_assumption_that_is_listed() -> None:
    model = read_model("llama-3.1-8b", offline=True)
    assert model.parameters == 8_030_261_248
    assert [a.name for a in model.assumed] == ["model"]
    assert (model.assumed[0].value, model.assumed[0].because) == ("meta-llama/Llama-3.1-8B", "'llama-3.1-8b' read by its name")


def test_a_quantised_ending_is_read_from_the_name() -> None:
    model = read_model("someone/Llama-3.1-8B-Instruct-AWQ-INT4", offline=True)
    assert model.quantization is not None and model.quantization["quant_method"] == "awq"
    assert [a.name for a in model.assumed] == ["model", "quantization"]
    assert model.assumed[1].because == "the name ends in 'awq-int4'"


def test_an_fp8_copy_by_another_publisher_is_taken_to_be_llm_compressors() -> None:
    """Measured: 33.66 GiB of vrfai/Qwen3.6-27B-FP8, whose linear attention is left in 16 bits; Qwen's own is in blocks."""
    copy, own = (read_model(name, offline=True).quantization or {} for name in ("vrfai/Qwen3.6-27B-FP8", "Qwen/Qwen3.5-9B-FP8"))
    assert copy["quant_method"] == "compressed-tensors" and "*linear_attn*" in copy["ignore"]
    assert own["quant_method"] == "fp8"


def test_the_experts_of_a_base_model_are_not_in_fp4() -> None:
    base, released = (
        read_model(f"deepseek-ai/DeepSeek-V4-Flash{end}", offline=True).quantization or {} for end in ("-Base", "-0731")
    )
    assert "expert_dtype" not in base and released["expert_dtype"] == "fp4"


def test_a_name_that_says_sixteen_bits_is_believed() -> None:
    assert read_model("openai/gpt-oss-20b", offline=True).quantization is not None
    model = read_model("unsloth/gpt-oss-20b-BF16", offline=True)
    assert (model.quantization, model.assumed[-1].because) == (None, "the name says 16 bits")


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(QuestionError, match=r"unknown model 'meta-llama/Lama-3\.1-8B-X': did you mean meta-llama/Llama-3\.1-8B"):
        read_model("meta-llama/Lama-3.1-8B-X", offline=True)


def test_a_path_that_is_not_there_is_said_to_be_a_path() -> None:
    with pytest.raises(QuestionError, match=r"no model at nowhere/config\.json"):
        read_model("nowhere/config.json")


def test_a_config_file_is_read_where_it_stands(tmp_path) -> None:
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **shape}))
    for what in (tmp_path, tmp_path / "config.json"):
        assert read_model(str(what)).layers == 2


@pytest.mark.parametrize(
    ("name", "core", "ending"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "gptq-int4"),
        ("unsloth/Meta-Llama-3.1-8B-unsloth-bnb-4bit", "llama-3.1-8b", "unsloth-bnb-4bit"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b", "fp8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", "quantized.w4a16"),
        ("google/gemma-3-27b-it", "gemma-3-27b", ""),
        ("google/gemma-4-26b-a4b-it-qat-q4_0-gguf", "gemma-4-26b-a4b", ""),
        ("unsloth/Qwen3-8B-GGUF", "qwen3-8b", ""),
    ],
)
def test_names_come_apart(name: str, core: str, ending: str) -> None:
    assert (take_apart(name).core, take_apart(name).ending) == (core, ending)


def test_one_model_is_loaded_quickly() -> None:
    reading.load("meta-llama/Llama-3.1-8B")
    start = time.process_time()
    for _ in range(50):
        reading.load.__wrapped__("meta-llama/Llama-3.1-8B")
    assert (time.process_time() - start) / 50 < 0.003


def test_a_hub_out_of_reach_is_said_once_and_quickly(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("VRAMCAST_CACHE", str(tmp_path))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MissingError, match=r"127\.0\.0\.1:9 cannot be reached \(.*\): use a catalogued id"):
        read_model("zzyzx/qwertyuiop")
    with pytest.raises(MissingError, match="it was out of reach a moment ago"):
        read_model("zzyzx/asdfghjkl")
    model = read_model("someone/Llama-3.1-8B-Instruct-AWQ")
    assert "127.0.0.1:9 cannot be reached: read by its name" in model.assumed[0].because
