"""text-generation-launcher's flags that decide memory (launcher/src/main.rs)."""

from vramcast.serving.engines.options import Option

_ARGS = "text-generation-inference launcher/src/main.rs"

OPTIONS = (
    Option(
        name="max_batch_prefill_tokens", kind="count", about="tokens of one prefill; length of the warm-up", source=_ARGS,
    ),
    Option(
        name="max_input_tokens", kind="count", about="longest prompt", flags=("--max-input-length",), source=_ARGS,
    ),
    Option(name="max_batch_total_tokens", kind="count", about="tokens of all requests at once, at most", source=_ARGS),
    Option(name="max_batch_size", kind="positive", about="requests of one batch, at most", source=_ARGS),
    Option(name="cuda_memory_fraction", kind="fraction", about="share of the card that it may take", source=_ARGS),
)  # fmt: skip
