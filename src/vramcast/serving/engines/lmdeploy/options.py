"""LMDeploy's flags that decide memory (lmdeploy/messages.py TurbomindEngineConfig)."""

from vramcast.serving.engines.options import Option

_ARGS = "lmdeploy/messages.py TurbomindEngineConfig"

OPTIONS = (
    Option(
        name="cache_max_entry_count", kind="fraction", most=0.999, source=_ARGS,
        about="share of what is free once weights are loaded that becomes cache",
    ),
    Option(name="cache_block_seq_len", kind="positive", most=2**20, about="tokens per cache block", source=_ARGS),
    Option(name="quant_policy", kind="int", most=8, about="bits of a quantised cache: 0, 4 or 8", source=_ARGS),
    Option(name="max_batch_size", kind="positive", about="requests of one batch, at most", source=_ARGS),
    Option(name="max_prefill_token_num", kind="count", about="tokens of one prefill", source=_ARGS),
    Option(name="backend", kind="text", about="which of its two engines runs", choices=("turbomind", "pytorch"), source=_ARGS),
)  # fmt: skip
