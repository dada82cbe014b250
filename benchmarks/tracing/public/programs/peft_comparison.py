"""The loop of PEFT's method comparison: plain bf16, AdamW over fp32 adapters, the model's output named until the next one."""

from typing import Any

import peft
import torch

from public.programs.loading import load


def main(
    *, config: dict[str, Any], layers: int, adapter: dict[str, Any] | None, optimizer: str, micro_batch: int, lengths: list[int]
) -> None:
    """One step per length; the cache is emptied before the longest, where a bucket of samples begins."""
    model = load(config, layers=layers, dtype=torch.bfloat16, device_map="cuda")
    if adapter is not None:
        model = peft.get_peft_model(model, peft.get_peft_config(adapter), autocast_adapter_dtype=True)
    update = _optimizer(optimizer, model)
    if adapter is not None:
        with model.disable_adapter():
            pass  # the loss without the adapter; afterwards every adapter weight is trained, LoRA-FA's frozen half as well
    model.train()
    for seq in lengths:
        if seq == max(lengths):
            torch.cuda.empty_cache()
        batch = {name: tensor.to("cuda") for name, tensor in padded(micro_batch, seq).items()}
        batch["labels"] = batch["input_ids"].clone()
        update.zero_grad()
        outputs = model(**batch, num_items_in_batch=micro_batch * seq)
        loss = outputs.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()


def padded(micro_batch: int, seq: int) -> dict[str, torch.Tensor]:
    """A batch of which every sample but the longest is shorter, so that attention gets a mask."""
    mask = torch.ones(micro_batch, seq, dtype=torch.long)
    mask[1:, -1] = 0
    return {"input_ids": torch.zeros_like(mask), "attention_mask": mask}


def _optimizer(kind: str, model: Any) -> torch.optim.Optimizer:
    if kind == "lora-fa":
        from peft.optimizers import create_lorafa_optimizer

        return create_lorafa_optimizer(model, r=32, lora_alpha=64, lr=1e-4, weight_decay=0.1)
    return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
