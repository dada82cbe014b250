"""What cards compute, emulate and refuse, and why."""

import pytest

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import RULES, capability, catalogue


@pytest.mark.parametrize(
    ("part", "feature", "verdict"),
    [
        ("t4", "bfloat16", "emulated"),
        ("a100-sxm4-80", "bf16", "native"),
        ("a100-sxm4-80", "fp8", "emulated"),
        ("rtx-4090", "fp8", "native"),
        ("h100-sxm5-80", "nvfp4", "emulated"),
        ("b200-sxm-180", "nvfp4", "native"),
        ("v100-sxm2-32", "flash_attention_2", "refused"),
        ("rtx-3090", "flash_attention_2", "native"),
        ("h100-sxm5-80", "flash_attention_3", "native"),
        ("b200-sxm-180", "flash_attention_3", "refused"),
        ("gtx-1080-ti", "awq", "refused"),
        ("mi300x", "fp8", "native"),
        ("mi300x", "mxfp4", "emulated"),
        ("mi300x", "nvfp4", "refused"),
        ("mi210", "fp8", "refused"),
        ("tpu-v5e", "bf16", "unknown"),
    ],
)
def test_verdicts(part: str, feature: str, verdict: str) -> None:
    answer = capability(catalogue()[part], feature)
    assert answer.verdict == verdict, answer.because


def test_reasons_quote_the_card_and_what_happens_instead() -> None:
    assert capability(catalogue()["a100-sxm4-80"], "fp8").because == (
        "A100 SXM4 80GB has compute capability 8.0 and fp8 needs 8.9 (Ada): weights are unpacked to 16 bits inside the Marlin"
        " kernel: memory saved, no faster arithmetic (vLLM docs, supported hardware for quantization kernels)"
    )


def test_every_card_has_an_answer_for_every_feature() -> None:
    for part in catalogue().values():
        for feature in RULES:
            assert capability(part, feature).verdict in {"native", "emulated", "refused", "unknown"}


def test_unknown_features_are_refused() -> None:
    with pytest.raises(QuestionError, match="unknown capability 'fp7': did you mean"):
        capability(catalogue()["t4"], "fp7")
