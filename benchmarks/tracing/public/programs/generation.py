"""Generation with transformers: the prompt and its first token, then the last tokens of the reply."""

from typing import Any

import torch
from transformers import DynamicCache

from public.programs.loading import load

LAST = 2  # tokens generated at the end; those between the first and these hold less


@torch.inference_mode()
def main(*, config: dict[str, Any], layers: int, dtype: str, attention: str, prompt: int, output: int, prefill: bool) -> None:
    """Generate greedily, batch 1; ``prefill``: whether the counter saw the prompt."""
    model = load(config, layers=layers, torch_dtype=getattr(torch, dtype), attn_implementation=attention, device_map="cuda")
    if prefill:
        model.generate(torch.zeros(1, prompt, dtype=torch.long, device="cuda"), **exactly(1))
    known = prompt + output - LAST
    cache: Any = filled_cache(model.config, known - 1, model.dtype)
    if isinstance(first_cache(model), tuple):
        cache = cache.to_legacy_cache()
    model.generate(torch.zeros(1, known, dtype=torch.long, device="cuda"), past_key_values=cache, **exactly(LAST))


def first_cache(model: Any) -> Any:
    """The cache that this version of transformers makes: before 4.42 tuples, of which each step makes new ones."""
    return model(torch.zeros(1, 1, dtype=torch.long, device="cuda"), use_cache=True).past_key_values


def exactly(tokens: int) -> dict[str, Any]:
    """The options that make a reply that long."""
    return {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "pad_token_id": 1, "use_cache": True}


def filled_cache(config: Any, tokens: int, dtype: torch.dtype) -> DynamicCache:
    """The cache as it stands after so many tokens."""
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = (1, config.num_key_value_heads, tokens, width)
    cache = DynamicCache()
    for layer in range(config.num_hidden_layers):
        keys, values = (torch.zeros(shape, dtype=dtype, device="cuda") for _ in range(2))
        cache.update(keys, values, layer)
    return cache
