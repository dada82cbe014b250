"""TRL's trainers: the HF Trainer with defaults of their own, by release.

Sources, each opened at the releases on both sides of a change: trl/trainer/sft_config.py (gradient_checkpointing: none in
0.21.0, True in 0.22.2; loss_type: nll in 1.6.0, chunked_nll over chunks of 256 rows in 1.8.0); trainer/utils.py,
create_model_from_path (0.26.2 leaves the dtype to transformers, 0.27.0 says float32) and add_fused_lm_head (1.16.0, for all
trainers); models/utils.py, prepare_peft_model, in sft_trainer.py before 0.22 (prepare_model_for_kbit_training up to 0.25.1,
then peft_module_casting_to_bf16: ends back to bf16 and norms to fp32; neither in 0.26.2, which casts QLoRA's adapters to bf16);
trainer/grpo_config.py (beta 0.04 in 0.16.1, 0.0 in 0.19.1), grpo_trainer.py (a copy of the logits over the temperature in 0.24.0,
divided in place in 1.0.0).
"""

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.frameworks.releases import month_of
from vramcast.training.recipe.draft import Draft, Overrides, Translation, because, dtype_of
from vramcast.training.recipe.parts import Adapters, Loss, Policy, Precision, Quantization, Recomputation
from vramcast.workload import Training

CHECKPOINTS = (2025, 9)  # 0.22
NO_KBIT = (2025, 12)  # 0.26
LOADS_FLOAT = (2026, 1)  # 0.27
BETA_ZERO = (2025, 5)  # 0.18
SUPERVISED_CHUNKS = (2026, 7)  # 1.8, of supervised training; since 1.16 of the others too
FUSED_HEAD = (2026, 10)
DIVIDES_IN_PLACE = (2026, 3)  # 1.0, GRPO's temperature
FOUR_BIT = ("nf4", "fp4")
SUPERVISED = ("sft", "pretrain")


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """TRL's own defaults first, then the Trainer's."""
    month = month_of(question, "trl")
    if month < BETA_ZERO and str(draft.get("task")).startswith("grpo") and question.method == "full":
        yield Translation("GRPO's beta was 0.04 until 0.17, so a reference model stands by", "frozen_copies", {0: 1})
    if month >= CHECKPOINTS:
        yield because("TRL: gradient_checkpointing=True since 0.22", Recomputation, policy=Policy("full"))
    if month >= LOADS_FLOAT and not draft.get("given_loaded"):
        yield because("TRL loads a model given by name in float32 since 0.27", Precision, weights="float32")
    if draft.get("quant"):
        yield from _quantized(draft, question, model, since=month >= NO_KBIT)
    if month >= (SUPERVISED_CHUNKS if draft.get("task", "sft") in SUPERVISED else FUSED_HEAD):
        yield because("TRL: the head runs on chunks of rows since 1.8", Loss, kind="row_chunks")
    elif str(draft.get("task")).startswith("grpo"):
        yield because(
            "TRL: GRPO takes log-probabilities of tokens, sequence by sequence",
            Loss,
            kind="token_logps" if month >= DIVIDES_IN_PLACE else "token_logps_copied",
        )
    yield from hf_trainer.resolve(draft, question, model)


def _quantized(draft: Draft, question: Training, model: Model, *, since: bool) -> Overrides:
    """What is not quantised: as loaded ``since`` 0.26, with adapters in bf16; before, ends in bf16 beside norms in fp32.

    Under FSDP and ZeRO-3 nothing was cast; float norms make 4-bit layers return float, and the residual stream with them.
    """
    if since:
        yield because(
            "TRL calls no prepare_model_for_kbit_training since 0.26",
            Quantization,
            unquantized=draft.get("weights") or dtype_of(model.dtype),
        )
        yield because("TRL: QLoRA adapters are cast to bf16 since 0.26", Adapters, adapter_dtype="bfloat16")
        return
    whole = question.zero != 3 and question.fsdp is None and draft.get("unquantized") is None
    if whole and draft.get("quant") in FOUR_BIT and draft.get("compute", "bfloat16") == "bfloat16":
        yield because("TRL: peft_module_casting_to_bf16", Quantization, unquantized="bfloat16")
        yield because("TRL: peft_module_casting_to_bf16", Precision, norm_weight="float32", residual="float32")
