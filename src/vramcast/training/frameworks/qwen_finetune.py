"""Qwen's finetune.py of 2023: the HF Trainer with DeepSpeed, over modeling_qwen.py (packed qkv, flash-attention, eager norms).

Source: QwenLM/Qwen at 00dceebba, finetune.py (adamw_torch, LoRA of rank 64 on c_attn, c_proj, w1 and w2, wte and lm_head saved
unless the model is a chat one; 4 bits by GPTQConfig, whose rest prepare_model_for_kbit_training leaves in 16 bits).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.recipe.recipe import Draft
from vramcast.workload import Training

TRANSFORMERS = "4.32"


def resolve(draft: Draft, question: Training, model: Model) -> None:
    """Loaded in bf16; LoRA adds trained embeddings when the base model is used."""
    engine = question.zero is not None
    draft.default("DeepSpeed casts the model, autocast is off" if engine else "finetune.py: --bf16", logits_upcast=not engine,
                  weights=draft.get("compute", "bfloat16"), autocast=not engine)  # fmt: skip
    if engine:
        draft.default("DeepSpeed keeps fp32 masters of the trained parameters", master="float32", states="float32",
                      adapter_dtype=draft.get("compute", "bfloat16"), bucket_elements=400_000_000)  # fmt: skip
        draft.default("ds_config_zero2.json: AdamW, which is DeepSpeed's FusedAdam", update="fused")
    draft.default("kernels of 2023 were loaded eagerly", lazy_modules=False)
    draft.default("finetune_*.sh: --gradient_checkpointing", checkpointing="full")
    draft.default("modeling_qwen.py returns 16-bit logits and converts them for the loss", logits_kept=True)
    draft.default("AutoGPTQ trains through its unpacking kernel", unpacks=str(draft.get("quant", "")).startswith("gptq"))
    hf_trainer.resolve(draft, hf_trainer.under(question, TRANSFORMERS), model)
