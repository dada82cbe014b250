"""A LoRA fine-tuning loop as a litgpt user writes it: ``litgpt_lora.py MODEL MICRO_BATCH SEQ RANK TARGET,...`` (needs litgpt)."""

import sys

import lightning
import torch
from litgpt.lora import GPT, Config, mark_only_lora_as_trainable
from litgpt.utils import chunked_cross_entropy

TARGETS = ("query", "key", "value", "projection", "mlp", "head")


def main(name: str, micro_batch: int, seq: int, rank: int, targets: set[str]) -> None:
    """Train on zeros until somebody stops it: memory does not depend on the words."""
    fabric = lightning.Fabric(devices=1, precision="bf16-true", accelerator="cuda")
    fabric.launch()
    lora = {f"lora_{target}": target in targets for target in TARGETS}
    config = Config.from_name(name, lora_r=rank, lora_alpha=16, lora_dropout=0.05, **lora)
    with fabric.init_module(empty_init=True):
        model = GPT(config)
    mark_only_lora_as_trainable(model)
    model = fabric.setup_module(model)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(trained, lr=3e-4, weight_decay=0.02))
    model.max_seq_length = seq
    while True:
        ids = torch.zeros(micro_batch, seq, dtype=torch.long, device=fabric.device)
        logits = model(ids, lm_head_chunk_size=128)
        logits[-1] = logits[-1][..., :-1, :]
        fabric.backward(chunked_cross_entropy(logits, ids[..., 1:].clone()))
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), set(sys.argv[5].split(",")))
