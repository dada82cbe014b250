"""torchtitan's own trainer: its model, parallelisms, loss and optimizer, on rows of zeros."""

import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torchtitan.config_manager import ConfigManager
from torchtitan.models.llama3 import TransformerModelArgs
from torchtitan.protocols.train_spec import get_train_spec
from torchtitan.train import Trainer


def main(*, layers: int, shape: dict[str, Any], vocab: int, flags: dict[str, str], keeps_logits: bool = False) -> None:
    """Train until somebody stops it, as under the torch of 2024 that these runs had."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # torch preferred FlashAttention then
    torch.nn.functional.rms_norm = torch.rms_norm = _rms_norm
    spec: Any = get_train_spec("llama3")
    spec.config["traced"] = TransformerModelArgs(**shape, n_layers=layers)
    spec.parallelize_fn = _with_kept_root(spec.parallelize_fn)
    spec.build_tokenizer_fn = lambda _: Tokenizer(vocab)
    spec.build_dataloader_fn = lambda **_: Rows(int(flags["training.local_batch_size"]), int(flags["training.seq_len"]))
    if keeps_logits:
        spec.build_loss_fn = lambda _: KeepingLoss()
    with tempfile.TemporaryDirectory() as folder:
        given = {"model.name": "llama3", "model.flavor": "traced", "job.dump_folder": folder, "metrics.log_freq": "1", **flags}
        Trainer(ConfigManager().parse_args([f"--{name}={value}".removesuffix("=on") for name, value in given.items()])).train()


class Tokenizer:
    """Rows need no words."""

    eos_id = 0

    def __init__(self, words: int) -> None:
        self.n_words = words


class Rows:
    """Batches without end."""

    def __init__(self, batch: int, seq: int) -> None:
        self.ids = torch.zeros(batch, seq, dtype=torch.long)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            yield {"input": self.ids}, self.ids


class KeepingLoss:
    """Before May 2024 the model gave float logits, which the loop held through the backward pass."""

    __name__ = "keeping_loss"
    logits: torch.Tensor

    def __call__(self, pred: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.logits = pred.float()
        return torch.nn.functional.cross_entropy(self.logits.flatten(0, 1), labels.flatten(0, 1))


def _with_kept_root(parallelize: Any) -> Any:
    """Before torch 2.8 the weights of FSDP's root stood from the forward pass to the backward one, whatever was asked."""

    def run(*args: Any) -> Any:
        model = parallelize(*args)
        model.set_reshard_after_forward(False, recurse=False)
        return model

    return run


def _rms_norm(source: torch.Tensor, shape: Any, weight: Any = None, eps: Any = None) -> torch.Tensor:
    """Before torch 2.9 RMSNorm was composed (aten/src/ATen/native/layer_norm.cpp, rms_norm_symint)."""
    del shape
    wide = source.float()
    scaled = wide.mul(torch.rsqrt(wide.pow(2).mean(-1, keepdim=True).add_(eps))).type_as(source)
    return scaled if weight is None else scaled.mul(weight)
