"""Text Generation Inference's message when its warm-up prefill does not fit.

Text: server/text_generation_server/models/flash_causal_lm.py, ``warmup``.
"""

import re

from vramcast.reading.engine_messages import Figure, Finding, Signature, count


def _prefill(found: re.Match[str]) -> Finding:
    tokens = count(found[1])
    return Finding(
        engine="tgi",
        moment="warming up with a prefill of as many tokens as one batch may hold",
        what=f"a prefill of {tokens:,} tokens does not fit beside the weights",
        figures=(Figure("prefill", tokens, "tokens"),),
        advice=(
            f"--max-batch-prefill-tokens {max(tokens // 2, 1)}, and --max-input-tokens no larger",
            "weights in fewer bits (--quantize), or more cards (--num-shard)",
        ),
    )


SIGNATURES = (Signature(re.compile(r"Not enough memory to handle (\d+) prefill tokens"), _prefill),)
