"""fms-hf-tuning as its acceleration benchmark runs it: TRL's SFTTrainer, with the plugins of fms-acceleration that are on."""

import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import BitsAndBytesConfig, TrainerCallback, default_data_collator
from trl import SFTConfig, SFTTrainer

from public.programs.loading import Rows, load, tokenizer


def main(
    *,
    config: dict[str, Any],
    layers: int,
    seq: int,
    micro_batch: int,
    dtype: str,
    autocast: bool,
    quant: bool,
    lora: dict[str, Any] | None,
    plugins: dict[str, Any],
) -> None:
    """Train until somebody stops it. ``plugins``: the body of the acceleration framework's configuration."""
    settings = SFTConfig(
        tempfile.mkdtemp(),
        per_device_train_batch_size=micro_batch,
        gradient_checkpointing=True,
        bf16=autocast and dtype == "bfloat16",
        fp16=autocast and dtype == "float16",
        weight_decay=0.01,
        max_steps=20,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        max_seq_length=seq,
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    adapter = _adapter(lora)
    framework = _framework(plugins) if plugins else None
    by = framework.model_loader if framework is not None and framework.requires_custom_loading else None
    options = {"torch_dtype": getattr(torch, dtype), "attn_implementation": "flash_attention_2"}
    if quant and by is None:
        options["quantization_config"] = _four_bit(options["torch_dtype"])
    model = load(config, layers=layers, by=by, **options)
    if framework is not None:
        model, (adapter,) = framework.augmentation(model, settings, modifiable_args=(adapter,))
    trainer = SFTTrainer(
        model=model, args=settings, train_dataset=Rows(seq), peft_config=adapter, tokenizer=tokenizer(),
        data_collator=default_data_collator,
    )  # fmt: skip
    for callback in _callbacks(framework, model, trainer):
        trainer.add_callback(callback)
    trainer.train()


def _adapter(lora: dict[str, Any] | None) -> Any:
    import peft

    return None if lora is None else peft.LoraConfig(task_type="CAUSAL_LM", **lora)


def _four_bit(kind: torch.dtype) -> BitsAndBytesConfig:
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_use_double_quant=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=kind
    )


def _framework(plugins: dict[str, Any]) -> Any:
    from fms_acceleration import AccelerationFramework

    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "plugins.yaml")
        written.write_text(yaml.safe_dump({"plugins": plugins}))
        return AccelerationFramework(str(written))


def _callbacks(framework: Any, model: Any, trainer: Any) -> list[TrainerCallback]:
    return framework.get_callbacks_and_ready_for_train(model, trainer.accelerator) if framework is not None else []
