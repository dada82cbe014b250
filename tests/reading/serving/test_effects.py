"""Flags that no rule counts are told with their value and what they change; secrets and unknown flags are not."""

import pytest

import vramcast
from vramcast.asking.serving import serving_question
from vramcast.reading.serving.effects import VERSIONS, chooses_kernels, effect_of
from vramcast.reading.serving.flags import is_idle
from vramcast.serving.engines import engine

LINE = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE --disaggregation-mode prefill"


def test_its_value_and_what_it_changes_are_told() -> None:
    asked = serving_question(f"{LINE} --hicache-size 64", gpu="H100")
    told = {a.name: a.value for a in asked.assumed}
    assert (told["speculative_algorithm"], told["disaggregation-mode"], told["hicache-size"]) == ("EAGLE", "prefill", "64")
    said = [u.what for u in asked.unmodelled]
    assert any("--hicache-size 64 in the pasted line: it changes host memory" in what for what in said)
    assert any("--disaggregation-mode prefill" in what and "which no rule counts" in what for what in said)


def test_a_value_that_may_hold_a_secret_is_not_shown() -> None:
    line = """vllm serve Qwen/Qwen3-8B --kv-transfer-config '{"kv_connector": {"token": "s3cret"}}' --mystery s3cret"""
    asked = serving_question(line, gpu="H100")
    assert "s3cret" not in str(asked)
    assert any("--mystery" in u.what and "no rule reads it" in u.what for u in asked.unmodelled)


def test_variables_that_choose_kernels_are_told_apart() -> None:
    asked = serving_question("VLLM_USE_DEEP_GEMM=1 VLLM_ODD_ONE=secret vllm serve Qwen/Qwen3-8B", gpu="H100")
    speed = [a for a in asked.assumed if "on speed alone" in a.because]
    assert [a.value for a in speed] == ["VLLM_USE_DEEP_GEMM=1"]
    assert any("VLLM_ODD_ONE" in u.what and "secret" not in u.what for u in asked.unmodelled)
    assert chooses_kernels("SGLANG_ENABLE_JIT_DEEPGEMM")
    assert not chooses_kernels("OLLAMA_NUM_PARALLEL")


@pytest.mark.parametrize(
    ("name", "flag", "effect"),
    [
        ("vllm", "limit-mm-per-prompt.image", "towers"),
        ("vllm", "no-enable-eplb", "experts"),
        ("sglang", "enable-piecewise-cuda-graph", "graphs"),
        ("ollama", "mmproj", "towers"),
        ("tensorrt_llm", "moe-config.backend", "experts"),
        ("tensorrt_llm", "prefill-cuda-graph-backend", "graphs"),
        ("llama_cpp", "no-repack", "rank"),
        ("llama_cpp", "-ncffn", "rank"),
        ("llama_cpp", "no-op-offload", "kernels"),
        ("lmdeploy", "rope-scaling-factor", "cache"),
        ("vllm", "gpu-memory-utilisation", ""),
        ("unknown", "mmproj", ""),
    ],
)
def test_effects_by_engine(name: str, flag: str, effect: str) -> None:
    found = effect_of(name, flag)
    assert (effect in found) if effect else found == ""


def test_no_option_with_a_rule_is_called_uncounted() -> None:
    for name in set(VERSIONS) & {"vllm", "sglang", "llama_cpp", "tensorrt_llm"}:
        options = {option.name.replace("_", "-") for option in engine(name).options}
        # a table of a whole family of flags may name one that has a rule: the rule is asked first
        assert not {option for option in options if is_idle(option)}


def test_the_answer_still_stands() -> None:
    assert vramcast.serve(LINE, gpu="H100").fit.verdict in ("fits", "tight")
