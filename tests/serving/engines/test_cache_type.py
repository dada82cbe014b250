"""A checkpoint that names its cache's type, and the releases that follow it."""

import msgspec
import pytest

from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import answer_of
from vramcast.workload import Serving

MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
    "kv_cache_scheme": {"num_bits": 8, "type": "float"},
}


def token_bytes(scheme, **fields) -> int:
    model = msgspec.structs.replace(read_model("meta-llama/Llama-3.1-8B", offline=True), quantization=scheme)
    return answer_of(Serving(model="x", **fields), model=model, card=find_accelerator("H100 SXM")).cache.bytes_per_token


@pytest.mark.parametrize(
    ("engine", "version", "scheme", "fp8"),
    [
        ("vllm", "0.13.0", MODELOPT, False),
        ("vllm", "0.14.0", MODELOPT, True),
        ("vllm", "0.14.0", COMPRESSED, True),
        ("vllm", "0.33.0", None, False),
        ("sglang", "0.5.3", MODELOPT, False),
        ("sglang", "0.5.4", MODELOPT, True),
        ("sglang", "0.5.4", COMPRESSED, False),
        ("tensorrt_llm", None, MODELOPT, True),
        ("transformers", None, MODELOPT, False),
    ],
)
def test_auto_follows_the_checkpoint_from_its_release_on(engine: str, version: str | None, scheme, fp8: bool) -> None:
    assert token_bytes(scheme, engine=engine, engine_version=version) == 32 * 2 * 1024 * (1 if fp8 else 2)


def test_an_asked_type_is_kept() -> None:
    assert token_bytes(MODELOPT, engine="vllm", kv_dtype="bfloat16") == 32 * 2 * 1024 * 2


@pytest.mark.parametrize(
    ("name", "fp8"), [("nvidia/Llama-3.1-8B-Instruct-NVFP4", True), ("someone/Llama-3.1-8B-Instruct-NVFP4", False)]
)
def test_nvidias_unread_checkpoints_are_taken_to_have_an_fp8_cache(name: str, fp8: bool) -> None:
    answer = answer_of(Serving(model=name, engine="vllm"), model=read_model(name, offline=True), card=find_accelerator("B200"))
    assert (answer.resolved.question.kv_dtype == "fp8") is fp8
    assert [a.name for a in answer.resolved.assumed if a.name == "kv_dtype"] == ["kv_dtype"] * fp8


@pytest.mark.parametrize(
    ("version", "scheme", "each"),
    [
        ("0.6.4", None, 16 * 256 * 2),
        ("0.7.0", "fp8", 16 * 256 * 2),
        ("0.7.1", None, 640),
        ("0.7.1", "awq", 16 * 256 * 2),
        ("0.7.2", "bf16", 640),
        ("0.7.3", "awq", 640),
        ("0.8.5", None, 576),
    ],
)
def test_latents_are_cached_since_vllm_0_7_1(version: str, scheme: str | None, each: int) -> None:
    """Before, all heads padded to 256: 5,373 blocks of 16 tokens in 35.42 GiB of DeepSeek-V2-Lite (vllm-project/vllm#10927)."""
    model, card = read_model("deepseek-ai/DeepSeek-V2-Lite-Chat", offline=True), find_accelerator("H100 SXM")
    asked = Serving(model="x", engine="vllm", engine_version=version, quant=scheme)
    assert answer_of(asked, model=model, card=card).cache.bytes_per_token == 27 * each * 2
    if each > 640:
        assert 35.42 * 2**30 / (27 * each * 2 * 16) == pytest.approx(5373, abs=1)


def test_minicpm3_is_cached_as_heads_in_every_release() -> None:
    """It is not among vLLM's classes of latent attention (model_arch_config_convertor.py): 40 heads of 96, keys and values."""
    model, card = read_model("openbmb/MiniCPM3-4B", offline=True), find_accelerator("H100 SXM")
    for version in ("0.6.6", "0.33.0"):
        found = answer_of(Serving(model="x", engine="vllm", engine_version=version), model=model, card=card)
        assert found.cache.bytes_per_token == 62 * 40 * 96 * 2 * 2
    shared = answer_of(Serving(model="x", engine="sglang"), model=model, card=card)
    assert shared.cache.bytes_per_token == 62 * (256 + 32) * 2
