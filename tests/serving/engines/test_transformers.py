"""transformers and the loaders like it, against peaks that public pages measured with torch.cuda.max_memory_allocated."""

import pytest

from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import answer_of
from vramcast.units import GiB
from vramcast.workload import Serving


def peak(name: str, version: str, prompt: int, output: int = 2048, gpus: int = 1, batch: int = 1, **options) -> float:
    question = Serving(
        model=name, engine="transformers", engine_version=version, prompt=prompt, output=output, concurrency=batch, gpus=gpus,
        quant="awq" if options.get("loader") == "autoawq" else None, dtype="float16" if options.get("loader") else None,
        options=options or {"attn_implementation": "flash_attention_2"},
    )  # fmt: skip
    answer = answer_of(question, model=read_model(name, offline=True))
    return sum(rank.allocated_bytes for rank in answer.ranks) / GiB


@pytest.mark.parametrize(
    ("name", "prompt", "gpus", "measured"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 1, 1, 14.38),
        ("Qwen/Qwen2.5-7B-Instruct", 30720, 1, 19.97),
        ("Qwen/Qwen2.5-14B-Instruct", 30720, 1, 36.85),
        ("Qwen/Qwen2.5-32B-Instruct", 30720, 1, 74.47),
        ("Qwen/Qwen2.5-72B-Instruct", 30720, 3, 164.79),
    ],
)
def test_last_token_logits_since_4_45(name: str, prompt: int, gpus: int, measured: float) -> None:
    """Qwen2.5 speed page: transformers 4.46, FlashAttention, GiB summed over cards."""
    assert peak(name, "4.46.0", prompt, gpus=gpus) == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(
    ("name", "prompt", "measured"),
    [("Qwen/Qwen2-7B-Instruct", 1, 14.92), ("Qwen/Qwen2-7B-Instruct", 30720, 42.62), ("Qwen/Qwen1.5-1.8B-Chat", 14336, 18.69)],
)
def test_fp32_logits_of_the_whole_prompt_before(name: str, prompt: int, measured: float) -> None:
    """Qwen2 and Qwen1.5 speed pages: transformers 4.38."""
    assert peak(name, "4.38.2", prompt) == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(
    ("name", "lengths", "batch", "measured"),
    [
        ("mistralai/Mistral-7B-v0.1", (64, 64), 1, 4.35),
        ("mistralai/Mistral-7B-v0.1", (2048, 2048), 8, 16.82),
        ("codellama/CodeLlama-34b-hf", (2048, 2048), 1, 20.26),
    ],
)
def test_autoawq_fuses_projections_and_reserves_its_cache(name, lengths, batch, measured) -> None:
    """AutoAWQ 0.1.6 README, GEMM kernels on one RTX 4090."""
    assert peak(name, "4.35.0", *lengths, batch=batch, loader="autoawq") == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(("batch", "length", "measured"), [(1, 256, 13.29), (1, 2048, 16.37), (1, 4096, 21.25), (4, 1024, 19.04)])
def test_scores_and_logits_each_keep_their_segments(batch: int, length: int, measured: float) -> None:
    """DeepSeek-LLM's page: one forward of transformers 4.35, eager attention, on an A100 with 40 GB; GiB reserved."""
    asked = Serving(
        model="deepseek-ai/deepseek-llm-7b-base", engine="transformers", engine_version="4.35.0", gpu="A100-PCIE-40GB",
        context=length, concurrency=batch, dtype="bfloat16",
    )  # fmt: skip
    card = find_accelerator("A100-PCIE-40GB")
    rank = answer_of(asked, model=read_model(asked.model, offline=True), card=card).ranks[0]
    assert rank.reserved_bytes / GiB == pytest.approx(measured, rel=0.03)
    assert rank.allocated_bytes <= rank.reserved_bytes <= card.visible_bytes
    assert rank.device_bytes - rank.reserved_bytes == rank.needed_bytes - rank.allocated_bytes  # the context


def test_reserved_never_exceeds_the_card_while_tensors_fit() -> None:
    asked = Serving(
        model="deepseek-ai/deepseek-llm-7b-base", engine="transformers", engine_version="4.35.0", gpu="A100-PCIE-40GB",
        context=2048, concurrency=8, dtype="bfloat16",
    )  # fmt: skip
    card = find_accelerator("A100-PCIE-40GB")
    rank = answer_of(asked, model=read_model(asked.model, offline=True), card=card).ranks[0]
    assert rank.needed_bytes < rank.device_bytes == card.visible_bytes
