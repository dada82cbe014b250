"""torchtune's own recipe for full fine-tuning on one device, with a model and rows made here."""

import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torchtune
import yaml
from torchtune.models.llama3_2 import llama3_2


def main(*, layers: int, micro_batch: int, seq: int, checkpointing: bool, shape: dict[str, int]) -> None:
    """Run the recipe until somebody stops it."""
    model = {**shape, "num_layers": layers, "max_seq_len": seq}
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "recipe.yaml")
        written.write_text(yaml.safe_dump(configuration(folder, model, micro_batch, seq, checkpointing)))
        sys.argv = ["full_finetune_single_device.py", "--config", str(written)]
        runpy.run_path(
            str(Path(torchtune.__file__).parents[1] / "recipes" / "full_finetune_single_device.py"), run_name="__main__"
        )


def configuration(folder: str, model: dict[str, int], micro_batch: int, seq: int, checkpointing: bool) -> dict[str, Any]:
    """The recipe's YAML, the flags of the published run in it."""
    here = "public.programs.torchtune_full"
    return {
        "output_dir": folder,
        "tokenizer": {"_component_": f"{here}.Tokenizer"},
        "dataset": {"_component_": f"{here}.Packed", "seq": seq, "packed": True},
        "seed": 1,
        "shuffle": False,
        "model": {"_component_": "torchtune.models.llama3_2.llama3_2", **model},
        "checkpointer": {"_component_": f"{here}.Checkpointer", "model": model},
        "resume_from_checkpoint": False,
        "batch_size": micro_batch,
        "epochs": 1,
        "optimizer": {"_component_": "torch.optim.AdamW", "fused": True, "lr": 2e-5},
        "optimizer_in_bwd": False,
        "loss": {"_component_": "torch.nn.CrossEntropyLoss"},
        "max_steps_per_epoch": 20,
        "gradient_accumulation_steps": 1,
        "compile": False,
        "device": "cuda",
        "dtype": "bf16",
        "enable_activation_checkpointing": checkpointing,
        "enable_activation_offloading": False,
        "metric_logger": {"_component_": "torchtune.training.metric_logging.DiskLogger", "log_dir": folder},
        "log_every_n_steps": 1,
        "log_peak_memory_stats": False,
    }


class Tokenizer:
    """Rows need no words."""

    pad_id = 0


class Packed(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Packed rows of one document each."""

    def __init__(self, tokenizer: Tokenizer, seq: int, packed: bool) -> None:
        del tokenizer, packed
        self.seq = seq

    def __len__(self) -> int:
        return 64

    def __getitem__(self, _: int) -> dict[str, torch.Tensor]:
        ids = torch.zeros(self.seq, dtype=torch.long)
        return {"tokens": ids, "labels": ids, "input_pos": torch.arange(self.seq), "seq_lens": torch.tensor([self.seq])}


class Checkpointer:
    """Gives the recipe weights to load; nothing is ever saved."""

    def __init__(self, model: dict[str, int], **_: Any) -> None:
        self.model = model

    def load_checkpoint(self, *_: Any, **__: Any) -> dict[str, Any]:
        """See torchtune's checkpointers."""
        return {"model": llama3_2(**self.model).state_dict()}
