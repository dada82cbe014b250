"""ms-swift's ``megatron sft`` and ``megatron rlhf``: Megatron's own arguments, with the model, length and adapters of ms-swift.

Keys and defaults: ms-swift 4.6.0, swift/megatron/arguments; bf16 and the distributed optimizer are on where nothing is said.
The loss is fused (docs, Megatron-SWIFT, Command-line-parameters: cross_entropy_loss_fusion True, cross_entropy_fusion_impl
None, which is "te" on CUDA; in 3.x it was not, and early 4.0 took "native").
"""

from vramcast.reading.training import megatron, ms_swift
from vramcast.reading.training.keys import Rule
from vramcast.reading.training.settings import Settings

NAME = "ms-swift's Megatron arguments"
SIGNATURE: frozenset[str] = frozenset()  # known by its command alone
_SWIFT = (
    "model", "max_length", "lora_rank", "target_modules", "lora_dropout", "modules_to_save", "use_dora", "tuner_type",
    "train_type", "rlhf_type", "torch_dtype", "packing", "freeze_vit", "attn_impl",
)  # fmt: skip
RULES: dict[str, Rule] = {**{name: ms_swift.RULES[name] for name in _SWIFT}, **megatron.RULES}
IDLE = (
    *ms_swift.IDLE, *megatron.IDLE, "split_dataset_ratio", "finetune", "freeze_llm", "freeze_aligner", "num_train_epochs",
    "merge_lora",
    "no_save_optim", "no_save_rng", "save_safetensors", "dataset_num_proc", "model_author", "model_name", "load_safetensors",
)  # fmt: skip


def finish(settings: Settings) -> None:
    """ms-swift's defaults under Megatron: bf16, distributed optimizer, LoRA of rank 8 where adapters are asked for."""
    because = "ms-swift's Megatron: its default"
    settings.put("compute_dtype", "bfloat16", because)
    settings.put("optimizer.distributed", True, because)
    settings.put("loss.fused", True, "ms-swift's Megatron: cross_entropy_loss_fusion True")
    settings.put("loss.by", "te", "ms-swift's Megatron: cross_entropy_fusion_impl te on CUDA")
    if settings.get("method") == "lora":
        settings.put("adapter.rank", 8, "ms-swift: lora_rank 8")
        settings.put("adapter.targets", ("all-linear",), "ms-swift: every linear layer")
    megatron.finish(settings)
