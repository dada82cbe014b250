"""The words of training reports, and what they mean here: the first word found decides."""

import functools
import re
from pathlib import Path

import msgspec

from vramcast.training.frameworks.common import ALIASES

FRAMEWORKS = (
    ("fms-acceleration", "trl"),
    ("megatron-swift", "megatron"),
    ("megatron-deepspeed", "megatron_deepspeed"),
    ("simumax", "megatron"),
    ("megatron-bridge", "megatron_bridge"),
    ("nanotron", "nanotron"),
    ("openrlhf", "openrlhf"),
    ("nemo-rl", "nemo_rl"),
    ("nemo rl", "nemo_rl"),
    ("prime-rl", "prime_rl"),
    ("verl", "verl"),
    ("megatron", "megatron"),
    ("ms-swift", "ms_swift"),
    ("torchtitan", "torchtitan"),
    ("torchtune", "torchtune"),
    ("litgpt", "litgpt"),
    ("fsdp_qlora", "fsdp_qlora"),
    ("unsloth", "unsloth"),
    ("axolotl", "axolotl"),
    ("llama-factory", "llama_factory"),
    ("qwen", "qwen_finetune"),
    ("peft bench", "peft_bench"),
    ("colossal", "colossalai"),
    ("llm-foundry", "llm_foundry"),
    ("xtuner", "xtuner"),
    ("nemo automodel", "nemo_automodel"),
    ("nemo", ALIASES["nemo"]),
    ("composer", "llm_foundry"),
    ("llama-recipes", "llama_recipes"),
    ("trl", "trl"),
    ("transformers", "hf_trainer"),
    ("hf trainer", "hf_trainer"),
    ("peft", "hf_trainer"),
    ("accelerate", "accelerate"),
    ("plain", "pytorch"),
    ("own loop", "pytorch"),
    ("custom loop", "pytorch"),
    ("pytorch loop", "pytorch"),
    ("pytorch", "pytorch"),
    ("deepspeed", "deepspeed"),
)
DTYPES = (("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16"))
NARROW = (("fp4", "nvfp4"), ("fp8 eager", "float8"))
ATTENTION = (
    ("unfused", "unfused"),
    ("no flash", "unfused"),
    ("local", "unfused"),
    ("eager", "eager"),
    ("cudnn", "cudnn"),
    ("math", "math"),
    ("efficient", "efficient"),
    ("flash", "flash"),
    ("sdpa", "flash"),
    ("te", "flash"),
    ("fused", "flash"),
    ("xformers", "flash"),
)
LOSS = (
    ("megatron vocab-parallel", "vocab_parallel"),
    ("fused te", "fused"),
    ("te fused", "fused"),
    ("fused native", "vocab_parallel_copy"),
    ("native fused", "vocab_parallel_copy"),
    ("fused (megatron", "vocab_parallel"),
    ("fused-linear", "linear"),
    ("flce", "linear"),
    ("cut-cross", "linear"),
    ("cut ce", "linear"),
    ("whole logits", "plain"),
    ("chunked linear", "chunked_linear"),
    ("linear chunked", "chunked_linear"),
    ("liger", "linear"),
    ("unsloth fused", "linear"),
    ("128-token", "chunked_head"),
    ("lm_head whole", "whole_chunked"),
    ("chunkedoutput", "chunked"),
    ("chunked", "chunked_linear"),
    ("compiled", "compiled"),
    ("fused ce", "fused"),
    ("fp32 logits (bs", "plain"),
    ("full logits", "plain"),
    ("fp32 upcast", "plain"),
    ("class head", "none"),
)
# DeepSeek-V3's attention when a report only says that it is latent: query and kv ranks, nope, rope and value widths
LATENT = (1536, 512, 128, 64, 128)
PREFERENCES = ("dpo", "kto", "orpo", "ppo", "grpo", "reward")

# Months of commits of torchtitan of which reports name the year at most: its pull requests 820 and 985.
MERGED = {"2271b6386": "2025.2", "3b39d7ab0": "2025.3"}

_COMMITS = Path(__file__).with_name("titan_commits.json")
_LETTERS = 7


def month_of_commit(text: str) -> str | None:
    """The month of the first of torchtitan's commits that the text names; None where it names none."""
    names = re.findall(r"(?<![0-9a-f])[0-9a-f]{7,40}(?![0-9a-f])", text.lower())
    return next((month for name in names if (month := _months().get(name[:_LETTERS]))), None)


@functools.cache
def _months() -> dict[str, str]:
    table: dict[str, str] = msgspec.json.decode(_COMMITS.read_bytes())
    return {names[i : i + _LETTERS]: month for month, names in table.items() for i in range(0, len(names), _LETTERS)}
