"""Qwen's finetune.py of 2023: the HF Trainer with DeepSpeed, over modeling_qwen.py (packed qkv, flash-attention, eager norms).

Source: QwenLM/Qwen at 00dceebba, finetune.py (adamw_torch, LoRA of rank 64 on c_attn, c_proj, w1 and w2, wte and lm_head saved
unless the model is a chat one; 4 bits by GPTQConfig, whose rest prepare_model_for_kbit_training leaves in 16 bits).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import (
    Adapters,
    Loss,
    Policy,
    Precision,
    Process,
    Quantization,
    Recomputation,
    Sharding,
    Update,
)
from vramcast.workload import Training

TRANSFORMERS = "4.32"


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """Loaded in bf16; LoRA adds trained embeddings when the base model is used."""
    engine = question.zero is not None
    yield because(
        "DeepSpeed casts the model, autocast is off" if engine else "finetune.py: --bf16", Loss, logits_upcast=not engine
    )
    yield because(
        "DeepSpeed casts the model, autocast is off" if engine else "finetune.py: --bf16",
        Precision,
        weights=draft.get("compute", "bfloat16"),
        autocast=not engine,
    )
    if engine:
        yield because("DeepSpeed keeps fp32 masters of the trained parameters", Update, master="float32", states="float32")
        yield because(
            "DeepSpeed keeps fp32 masters of the trained parameters", Adapters, adapter_dtype=draft.get("compute", "bfloat16")
        )
        if question.zero != 3:
            yield because(
                "ds_config_zero2.json: reduce_bucket_size, overlap_comm", Sharding, reduce_bucket=200_000_000, overlaps=True
            )
        yield because("ds_config_zero2.json: AdamW, which is DeepSpeed's FusedAdam", Update, implementation="fused")
    yield because("kernels of 2023 were loaded eagerly", Process, lazy_modules=False)
    yield because("finetune_*.sh: --gradient_checkpointing", Recomputation, policy=Policy("full"))
    yield because("modeling_qwen.py returns 16-bit logits and converts them for the loss", Loss, logits_kept=True)
    yield because(
        "AutoGPTQ trains through its unpacking kernel", Quantization, unpacks=str(draft.get("quant", "")).startswith("gptq")
    )
    yield from hf_trainer.resolve(draft, hf_trainer.under(question, TRANSFORMERS), model)
