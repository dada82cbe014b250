"""TensorRT-LLM's flags that decide memory, and their defaults (tensorrt_llm/llmapi/llm_args.py)."""

from vramcast.serving.engines.options import Option

_ARGS = "tensorrt_llm/llmapi/llm_args.py"

OPTIONS = (
    Option(
        name="free_gpu_memory_fraction",
        kind="fraction",
        about="share of what is free after the peak that becomes cache",
        source=_ARGS,
    ),
    Option(name="tokens_per_block", kind="positive", most=2**20, about="tokens per cache block", source=_ARGS),
    Option(name="max_batch_size", kind="positive", about="sequences of one step", source=_ARGS),
    Option(
        name="max_num_tokens",
        kind="count",
        about="tokens of one step; length of the profile run",
        source=_ARGS,
    ),
    Option(name="max_tokens", kind="count", about="cache tokens at most", source=_ARGS),
    Option(name="enable_expert_parallel", kind="bool", about="experts spread over ranks", source=_ARGS),
    Option(
        name="free_gpu_bytes",
        kind="bytes",
        least=1,
        about="memory that is free for the cache once the engine has loaded and run",
    ),
    Option(
        name="gpu_total_bytes",
        kind="bytes",
        least=1,
        about="memory the card shows, when it differs from the catalogue's",
    ),
)
