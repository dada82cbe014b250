"""NeMo and Megatron-Bridge YAML: Megatron's arguments in sections (model, train, dataset, ddp, optimizer, trainer.strategy).

Source: Megatron-Bridge, src/megatron/bridge/training/config.py (ConfigContainer); NeMo, collections/llm/recipes.
"""

from vramcast.reading.training import megatron
from vramcast.reading.training.keys import Rule, text, whole
from vramcast.reading.training.settings import Settings

NAME = "NeMo or Megatron-Bridge YAML"
SIGNATURE = frozenset({"model.tensor_model_parallel_size", "train.micro_batch_size", "train.global_batch_size",
                       "trainer.strategy.tensor_model_parallel_size", "model.num_layers", "model.micro_batch_size",
                       "model.data.train_ds.micro_batch_size", "model.encoder_seq_length"})  # fmt: skip
_SECTIONS = ("model", "train", "dataset", "data", "ddp", "optimizer", "trainer.strategy", "model.config", "model.optim", "")
_MORE: dict[str, Rule] = {
    "trainer.devices": ("gpus", whole),
    "trainer.num_nodes": ("nodes", whole),
    "trainer.precision": megatron.RULES["precision"],
    "model.data.train_ds.global_batch_size": ("global_batch", whole),  # NeMo-Aligner's; the model's own point to them
    "model.data.train_ds.micro_batch_size": ("micro_batch", whole),
    "model.hf_model_id": ("model", text),
    "checkpoint.hf_model_id": ("model", text),
    "checkpoint.pretrained_checkpoint": ("model", text),
}
RULES: dict[str, Rule] = _MORE | {
    f"{section}.{name}".lstrip("."): rule for section in _SECTIONS for name, rule in megatron.RULES.items()
}
IDLE = (
    *(f"{section}.{name}".lstrip(".") for section in _SECTIONS for name in megatron.IDLE), "trainer.*", "exp_manager*",
    "logger*", "log.*", "resume*", "checkpoint.*", "rng*", "scheduler*", "tokenizer*", "profiling*", "dist.*", "nvrx*",
    "straggler*", "rerun*", "ft*", "comm_overlap*", "dataset.*", "data.*", "train.*", "ddp.*", "optimizer.*", "model.optim.*",
    "name", "run*", "defaults", "hydra*", "model.data.*", "model.tokenizer.*",
)  # fmt: skip


def finish(settings: Settings) -> None:
    """Recipes use the distributed optimizer unless they say otherwise."""
    if settings.get("gpus") or settings.get("nodes"):
        settings.replace("gpus", settings.get("gpus", 1) * settings.get("nodes", 1))
    settings.put("optimizer.distributed", True, "NeMo's recipes: use_distributed_optimizer")
    megatron.finish(settings)
