"""TensorRT-LLM's rules by the version they hold from (tensorrt_llm/llmapi/llm_args.py, _torch/pyexecutor)."""

from vramcast.serving.engines.base import Table, Version, at

VERSIONS = ("0.11.0", "0.20.0", "1.0.0")

FREE_FRACTION = 0.9
MAX_NUM_TOKENS = 8192
# the PyTorch backend became the default in 0.20
TOKENS_PER_BLOCK: Table[int] = (((0,), 64), ((0, 20), 32))
MAX_BATCH_SIZE: Table[int] = (((0,), 256), ((0, 20), 2048))
# fp32 logits beside the model's own, and the sampler's probabilities, which greedy requests such as the dummy ones need no longer
LOGIT_BYTES: Table[int] = (((0,), 8), ((1,), 4))


def defaults(version: Version) -> dict[str, float]:
    """Defaults of that release by option."""
    return {
        "free_gpu_memory_fraction": FREE_FRACTION,
        "tokens_per_block": at(version, TOKENS_PER_BLOCK),
        "max_batch_size": at(version, MAX_BATCH_SIZE),
        "max_num_tokens": MAX_NUM_TOKENS,
    }
