"""litgpt's fine-tuning loops: bf16 throughout; adapters' heads are applied to 128 tokens at a time."""

import importlib
from typing import Any

import lightning
import torch
from lightning.fabric.plugins import BitsandbytesPrecision
from lightning.fabric.strategies import FSDPStrategy
from litgpt.utils import chunked_cross_entropy

TARGETS = ("query", "key", "value", "projection", "mlp", "head")


def main(
    *, name: str, layers: int, micro_batch: int, accumulate: int, seq: int, ranks: int, quant: str, adapter: dict[str, Any] | None
) -> None:
    """Train on zeros until somebody stops it: memory does not depend on the words."""
    code: Any = importlib.import_module("litgpt.lora" if adapter else "litgpt.model")
    fabric = lightning.Fabric(accelerator="cuda", devices=ranks, strategy=_strategy(code, ranks), **_precision(quant))
    fabric.launch()
    config = code.Config.from_name(name, n_layer=layers, **_lora(adapter))
    with fabric.init_module(empty_init=ranks > 1):
        model = code.GPT(config)
    if adapter:
        code.mark_only_lora_as_trainable(model)
    model = fabric.setup_module(model)
    optimizer = fabric.setup_optimizers(_optimizer(model, quant))
    model.max_seq_length = seq
    ids = torch.zeros(micro_batch, seq, dtype=torch.long, device=fabric.device)
    while True:
        for iteration in range(accumulate):
            with fabric.no_backward_sync(model, enabled=iteration + 1 < accumulate):
                if adapter:
                    logits = model(ids, lm_head_chunk_size=128)
                    logits[-1] = logits[-1][..., :-1, :]
                else:
                    logits = model(ids)[..., :-1, :]
                fabric.backward(chunked_cross_entropy(logits, ids[..., 1:].clone()) / accumulate)
        optimizer.step()
        optimizer.zero_grad()


def _strategy(code: Any, ranks: int) -> Any:
    if ranks == 1:
        return "auto"
    return FSDPStrategy(
        auto_wrap_policy={code.Block},
        activation_checkpointing_policy={code.Block},
        state_dict_type="full",
        limit_all_gathers=True,
    )


def _precision(quant: str) -> dict[str, Any]:
    return {"plugins": BitsandbytesPrecision(quant, torch.bfloat16)} if quant else {"precision": "bf16-true"}


def _lora(adapter: dict[str, Any] | None) -> dict[str, Any]:
    if adapter is None:
        return {}
    targets = {f"lora_{target}": target in adapter["targets"] for target in TARGETS}
    return {"lora_r": adapter["rank"], "lora_alpha": 16, "lora_dropout": adapter["dropout"], **targets}


def _optimizer(model: torch.nn.Module, quant: str) -> torch.optim.Optimizer:
    if quant:
        import bitsandbytes.optim

        return bitsandbytes.optim.PagedAdamW(model.parameters())
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trained, lr=3e-4, weight_decay=0.02)
