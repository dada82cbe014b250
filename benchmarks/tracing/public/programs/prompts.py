"""Inference with transformers: a batch of prompts is read and goes on by two tokens."""

from typing import Any

import torch

from public.programs.loading import load


@torch.inference_mode()
def main(*, config: dict[str, Any], layers: int, dtype: str, batch: int, seq: int) -> None:
    """The first token comes of the prompt's pass, the second of the first step that grows the cache."""
    model = load(config, layers=layers, torch_dtype=getattr(torch, dtype), device_map="cuda")
    ids = torch.zeros(batch, seq, dtype=torch.long, device="cuda")
    model.generate(ids, max_new_tokens=2, min_new_tokens=2, do_sample=False, pad_token_id=1)
