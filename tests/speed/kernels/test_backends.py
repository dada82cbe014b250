"""Which kernel an engine takes changes with its releases: each border of the rules on both sides."""

import pytest

from vramcast.hardware.accelerator import catalogue
from vramcast.speed.kernels.machine import RULES, backend

CARDS = {"hopper": "h100-sxm5-80", "blackwell": "b200-sxm-180", "workstation": "rtx-pro-6000-bw"}
BORDERS = [
    # vllm/model_executor/layers/quantization/utils/fp8_utils.py, w8a8_block_fp8_matmul_deepgemm
    ("vllm", "gemm", "fp8_block", "hopper", (0, 8, 5), "vllm/triton", "deepgemm"),
    ("vllm", "gemm", "nvfp4", "blackwell", (0, 21), "trtllm", "cutedsl"),  # vLLM pull 42235
    # vllm/attention/backends/flash_attn.py: version 3 on Hopper
    ("vllm", "decode_attention", "bf16", "hopper", (0, 7, 2), "vllm/fa2", "vllm/fa3"),
    ("vllm", "prefill_attention", "bf16", "hopper", (0, 7, 2), "vllm/fa2", "vllm/fa3"),
    # vllm/platforms/cuda.py: FlashInfer's TensorRT-LLM kernels where the card has compute capability 10
    ("vllm", "decode_attention", "bf16", "blackwell", (0, 11), "vllm/fa2", "vllm/trtllm_gen"),
    ("vllm", "prefill_attention", "bf16", "blackwell", (0, 11), "vllm/fa2", "vllm/trtllm_gen"),
    # vllm/model_executor/layers/fused_moe/oracle
    ("vllm", "moe", "bf16", "blackwell", (0, 11), "vllm/triton", "vllm/trtllm_gen"),
    ("vllm", "moe", "fp8", "hopper", (0, 11), "vllm/triton", "vllm/cutlass"),
    ("vllm", "moe", "bf16", "workstation", (0, 11), "vllm/triton", "vllm/cutlass"),
    ("vllm", "moe", "mxfp4", "hopper", (0, 10), "vllm/marlin", "vllm/triton"),
    ("vllm", "recurrent_prefill", "bf16", "hopper", (0, 16), "vllm/triton", "vllm/flashinfer"),
    # SGLang's notes of 0.4.6 (FlashAttention 3 by default) and 0.5.3 (trtllm_mha, flashinfer_trtllm on Blackwell)
    ("sglang", "decode_attention", "bf16", "hopper", (0, 4, 6), "sglang/flashinfer", "sglang/fa3"),
    ("sglang", "prefill_attention", "bf16", "hopper", (0, 4, 6), "sglang/flashinfer", "sglang/fa3"),
    ("sglang", "decode_attention", "bf16", "blackwell", (0, 5, 3), "sglang/flashinfer", "sglang/trtllm_gen"),
    ("sglang", "prefill_attention", "bf16", "blackwell", (0, 5, 3), "sglang/flashinfer", "sglang/trtllm_gen"),
    ("sglang", "moe", "fp8_block", "blackwell", (0, 5, 3), "sglang/triton", "sglang/trtllm_gen"),
    ("sglang", "moe", "bf16", "blackwell", (0, 5, 9), "sglang/triton", "sglang/trtllm_gen"),
]


@pytest.mark.parametrize(("engine", "operator", "precision", "card", "since", "before", "after"), BORDERS)
def test_a_kernel_is_taken_from_its_release_on(
    engine: str, operator: str, precision: str, card: str, since: tuple[int, ...], before: str, after: str
) -> None:
    just_before = (*since[:-1], since[-1] - 1, 99)
    names = [
        backend(engine=engine, operator=operator, precision=precision, card=catalogue()[CARDS[card]], version=version).name
        for version in (just_before, since)
    ]
    assert names == [before, after]


def test_every_border_of_the_rules_is_held() -> None:
    held = {(engine, operator, after, since) for engine, operator, _, _, since, _, after in BORDERS}
    assert held == {(r.engine, r.operator, r.backend, r.since) for r in RULES if r.since}


@pytest.mark.parametrize(("family", "taken"), [("gpt_oss", "vllm/triton"), ("qwen3_moe", "sglang/triton")])
def test_sglang_takes_triton_kernels_for_gpt_oss_alone(family: str, taken: str) -> None:
    card = catalogue()[CARDS["hopper"]]
    assert backend(engine="sglang", operator="moe", precision="mxfp4", card=card, family=family).name == taken


@pytest.mark.parametrize(
    ("engine", "precision", "card", "taken"),
    [
        ("vllm", "mxfp4", "mi300x", "vllm/triton"),
        ("vllm", "mxfp4", "mi355x", "aiter"),
        ("vllm", "int4_weight_only", "mi355x", "vllm/triton"),
        ("sglang", "int4_weight_only", "mi300x", "sglang/triton"),
        ("vllm", "fp8", "mi300x", "aiter"),
    ],
)
def test_experts_of_four_bits_on_instinct(engine: str, precision: str, card: str, taken: str) -> None:
    assert backend(engine=engine, operator="moe", precision=precision, card=catalogue()[card]).name == taken
