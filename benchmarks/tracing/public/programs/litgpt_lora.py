"""litgpt's LoRA fine-tuning loop: bf16 throughout, the head applied to 128 tokens at a time."""

import lightning
import torch
from litgpt.lora import GPT, Config, mark_only_lora_as_trainable
from litgpt.utils import chunked_cross_entropy

TARGETS = ("query", "key", "value", "projection", "mlp", "head")


def main(*, name: str, layers: int, micro_batch: int, seq: int, rank: int, dropout: float, targets: list[str]) -> None:
    """Train on zeros until somebody stops it: memory does not depend on the words."""
    fabric = lightning.Fabric(devices=1, precision="bf16-true", accelerator="cuda")
    fabric.launch()
    lora = {f"lora_{target}": target in targets for target in TARGETS}
    config = Config.from_name(name, n_layer=layers, lora_r=rank, lora_alpha=16, lora_dropout=dropout, **lora)
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
