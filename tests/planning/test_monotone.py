"""Random questions asked twice: more work never needs less memory, more bits never less, adapters never more than the whole.

``VRAMCAST_RANDOM_QUESTIONS=5000`` asks more of them.
"""

import os
import random

import msgspec
import pytest

from vramcast.errors import VramcastError
from vramcast.models.reading import read_model
from vramcast.planning.core import core_of
from vramcast.workload import Adapter, Parallel, Serving, Training

MODELS = [
    "Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-8B", "google/gemma-2-9b", "google/gemma-3-27b-it", "Qwen/Qwen3-30B-A3B",
    "openai/gpt-oss-20b", "meta-llama/Llama-2-7b-hf", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen2.5-0.5B",
    "mistralai/Mistral-7B-v0.1", "microsoft/phi-4",
]  # fmt: skip
GPUS = ["H100", "A100-80G", "4090", "3090", "MI300X"]
QUESTIONS = int(os.environ.get("VRAMCAST_RANDOM_QUESTIONS", "80"))
ROUNDING = 2**21  # of blocks and segments that tensors are placed in
SEGMENTS = 0.01  # of the whole: what one size leaves of its last segments another may fill (0.6 % of a replayed 8B step)


def need(question: Serving | Training) -> int | None:
    """What the worst rank needs; None where the question is refused. Its bar holds it, and what fits is within the card."""
    try:
        rank, fit = core_of(question, model=read_model(question.model))
    except VramcastError:
        return None
    assert sum(t.bytes for t in rank.terms) >= 0
    assert rank.interval is None or rank.interval.low_bytes <= rank.needed_bytes <= rank.interval.high_bytes
    assert fit.verdict != "fits" or rank.needed_bytes <= fit.capacity_bytes
    return rank.needed_bytes


def grows(less: Serving | Training, more: Serving | Training, *, slack: int = ROUNDING) -> None:
    one, two = need(less), need(more)
    assert one is None or two is None or one <= two + max(slack, SEGMENTS * two), f"{less}\n{more}\n{one - two:,} B less"


def test_serving_more_never_needs_less() -> None:
    chance = random.Random(11)
    for _ in range(QUESTIONS):
        engine = chance.choice(["vllm", "sglang", "tensorrt_llm", "llama_cpp", "transformers"])
        asked = Serving(
            model=chance.choice(MODELS), gpu=chance.choice(GPUS), engine=engine, context=chance.choice([512, 2048, 4096]),
            concurrency=chance.choice([1, 2, 8]), quant="Q4_K_M" if engine == "llama_cpp" else None,
        )  # fmt: skip
        grows(asked, msgspec.structs.replace(asked, context=2 * asked.context))
        grows(asked, msgspec.structs.replace(asked, concurrency=2 * asked.concurrency))
        if engine == "llama_cpp":
            grows(asked, msgspec.structs.replace(asked, quant="Q8_0"))
        elif not read_model(asked.model).quantization:
            grows(msgspec.structs.replace(asked, quant="awq"), msgspec.structs.replace(asked, quant="fp8"))
            grows(msgspec.structs.replace(asked, quant="fp8"), asked)


def test_training_more_never_needs_less() -> None:
    chance = random.Random(13)
    for _ in range(QUESTIONS):
        asked = Training(
            model=chance.choice(MODELS), gpu="H100", method="full", seq=chance.choice([512, 2048]),
            micro_batch=chance.choice([1, 2]), checkpointing=chance.choice(["none", "full"]),
            framework=chance.choice(["hf_trainer", "torchtitan", "torchtune", "unsloth"]),
        )  # fmt: skip
        grows(asked, msgspec.structs.replace(asked, seq=2 * asked.seq))
        grows(asked, msgspec.structs.replace(asked, micro_batch=2 * asked.micro_batch))
        if asked.framework in ("hf_trainer", "unsloth"):
            adapted = msgspec.structs.replace(asked, method="lora", adapter=Adapter(rank=8))
            grows(adapted, msgspec.structs.replace(adapted, adapter=Adapter(rank=64)))
            if asked.checkpointing == "full":
                grows(adapted, asked)


def test_higher_zero_stages_never_need_more_beyond_what_they_gather() -> None:
    chance = random.Random(17)
    for _ in range(QUESTIONS // 2):
        asked = Training(
            model=chance.choice(MODELS), gpu="H100", gpus=8, parallel=Parallel(dp=8), method="full",
            seq=chance.choice([512, 2048]), framework="hf_trainer", checkpointing=chance.choice(["none", "full"]), zero=2,
        )  # fmt: skip
        three = msgspec.structs.replace(asked, zero=3)
        gathered = 4 * 10**9  # stage3_max_live_parameters of 16 bits, twice while the next block is fetched
        grows(three, asked, slack=gathered)


@pytest.mark.parametrize("optimizer", ["adamw_8bit", "sgd"])
def test_lighter_optimizers_never_need_more(optimizer: str) -> None:
    for model in MODELS[:6]:
        asked = Training(model=model, gpu="H100", seq=512, checkpointing="full", optimizer="adamw")
        grows(msgspec.structs.replace(asked, optimizer=optimizer), asked)
