"""Hugging Face Trainer, TRL and accelerate.

Sources: transformers/training_args.py, modeling_utils.py (dtype "auto" since 5), loss/loss_utils.py (since 4.46 the model's
16-bit logits stay beside the float copy), accelerate/accelerator.py (FSDP upcasts of trained parameters), peft/mapping.py
(autocast_adapter_dtype), torch/optim (foreach by default, fused when asked).
"""

import msgspec

from vramcast.models.classes import Layer, model_class
from vramcast.models.inventory import Model
from vramcast.training.compiled import compiled_layers
from vramcast.training.frameworks.common import sharding, version_of
from vramcast.training.frameworks.releases import RELEASED, is_transformers, released
from vramcast.training.recipe.recipe import Draft, dtype_name, width
from vramcast.workload import Training

NEWEST = "5.23"
LOSS_FUNCTION = (4, 46)  # the float copy moved out of the model: the 16-bit logits are kept
LAZY_MODULES = (4, 26)  # of the time when torch 1.13 with CUDA 11.7 became usual
SETS_TO_NONE = (4, 27)  # of the time of torch 2.0, whose zero_grad gives gradients back and whose optimizers run foreach
ONE_LIST = (4, 34)  # of the time of torch 2.1, whose foreach AdamW adds epsilon in place (pytorch pull 104898)
NO_SHIFT_COPY = (4, 50)  # labels are shifted instead of logits
FUSED_DEFAULT = (4, 55)  # fused where torch is 2.8, which came out between 4.54 and 4.55 (training_args.py: default_optim)
FIRST_YEAR = 2000
FUSED_EXPERTS = (5, 0)
SEPARATE_ENDS = (5, 23)  # of accelerate 1.15's time, whose fsdp2_prepare_model shards untied ends by themselves
NOT_REENTRANT = (5, 0)  # modeling_utils.py, gradient_checkpointing_enable: True in 4.57.1, False in 5.0.0
UPCASTS = {"fsdp1": (4, 41), "fsdp2": (4, 51)}  # transformers of accelerate's releases
ATTENTION_INTERFACE = (4, 48)  # one attention interface for all models: flash no longer repeats keys and values

OWN_LOOPS = ("pytorch", "llama_recipes", "nemo_automodel", "peft_bench")  # which call fully_shard without accelerate


def under(question: Training, transformers: str) -> Training:
    """The question with the transformers version that a framework's releases ran on, unless it states one."""
    return question if question.framework_version else msgspec.structs.replace(question, framework_version=transformers)


def transformers_version(question: Training, framework: str = "hf_trainer") -> tuple[int, ...]:
    """The transformers version: as asked, or the one of the date asked, or of the month of the framework's own release."""
    asked = version_of(question, NEWEST)
    if framework not in RELEASED or not question.framework_version or is_transformers(asked):
        month = asked
    else:
        month = released(framework, asked)
    if month[0] < FIRST_YEAR:
        return month
    known = RELEASED["transformers"]
    return max((release for release, since in known if since <= month), default=known[0][0])


def resolve(draft: Draft, question: Training, model: Model) -> None:
    """Fill what the Trainer of that version does."""
    version = transformers_version(question, draft.get("framework"))
    sharding(draft, question)
    if question.zero is not None or draft.get("framework") == "deepspeed":
        _deepspeed(draft, question, model)
    _dtypes(draft, question, model, version)
    _sharded_dtypes(draft)
    compiled_layers(draft)
    _modules(draft, model)
    if draft.get("quant"):
        draft.default("prepare_model_for_kbit_training turns checkpointing on", checkpointing="full")
    draft.default("Trainer default", checkpointing="none", optimizer="adamw")
    draft.default("trainer.py: bitsandbytes keeps 32-bit states for embeddings", wide_ends=True)
    draft.default(
        "Trainer default optim", update="fused" if version >= FUSED_DEFAULT else "foreach" if version >= SETS_TO_NONE else "loop"
    )
    draft.default("foreach AdamW of torch 2.0", foreach_twice=SETS_TO_NONE <= version < ONE_LIST)
    _attention(draft, model, version)
    draft.default("gradient checkpointing's use_reentrant of transformers", reentrant=version < NOT_REENTRANT)
    _loss(draft, model, version)
    draft.default(
        "a quantised model is loaded on every card before FSDP cuts it",
        loads_whole=bool(draft.get("quant")) and "parameters" not in question.offload,
    )
    draft.default("CUDA 11.7 and later load kernels when they are used", lazy_modules=version >= LAZY_MODULES)
    _experts(draft, model, version)
    freed = version >= SETS_TO_NONE
    draft.default("zero_grad sets gradients to None" if freed else "zero_grad of torch 1 fills gradients with zeros",
                  frees_gradients=freed)  # fmt: skip
    draft.default("prefetch of the next block", live_gathers=2)
    apart = version >= SEPARATE_ENDS and draft.get("framework") not in OWN_LOOPS and not model.tied
    if draft.get("sharding") == "fsdp2" and apart:
        draft.default("accelerate 1.15: embedding and head are groups of their own", separate_ends=True)


def _modules(draft: Draft, model: Model) -> None:
    draft.default("transformers' eager modules", norm="eager", rope="eager", glu="eager")
    facts = model_class(model.text_class)
    layer = facts.layer or Layer()
    draft.default("", modules=model.text_class)
    draft.default("the class's own modules", float_router=layer.float_router, clamped_glu=layer.clamped_glu)
    draft.default("the class's final_logit_softcapping", logits_softcap=facts.whole.capped_logits)
    draft.default("the class's own RMSNorm", norm_form=layer.norm_form)


def _attention(draft: Draft, model: Model, version: tuple[int, ...]) -> None:
    chosen = draft.get("attention") is None and version >= ATTENTION_INTERFACE
    draft.default("torch's scaled_dot_product_attention picks the kernel" if chosen else "given", sdpa=chosen)
    draft.default("sdpa picks flash", attention="flash")
    whole = model_class(model.text_class).whole
    expands = version < ATTENTION_INTERFACE and whole.repeats_kv
    draft.default("the model's own flash class repeats keys and values" if expands else "grouped kernel", repeats_kv=expands)
    draft.default("the class's configuration", hidden_dropout=whole.dropout, attention_dropout=whole.dropout)


def _experts(draft: Draft, model: Model, version: tuple[int, ...]) -> None:
    fused = version >= FUSED_EXPERTS and not draft.get("splits_experts")
    draft.default("experts are fused tensors since transformers 5" if fused else "experts are layers", fused_experts=fused)
    draft.default("grouped matmuls since transformers 5" if fused else "one expert after another",
                  experts="grouped" if fused else "loop")  # fmt: skip
    reached = model_class(model.text_class).whole.converts_experts or not fused
    draft.default("PEFT's all-linear reaches routers", adapts_router=reached and not draft.get("splits_experts"))
    draft.default("PEFT reaches experts that are one tensor in the families it converts" if fused else "",
                  adapts_experts="layers" if not fused else "tensors" if reached else "none")  # fmt: skip


def _deepspeed(draft: Draft, question: Training, model: Model) -> None:
    """The engine casts the whole model and keeps fp32 masters and states of its partition (deepspeed/runtime/bf16_optimizer.py).

    The Trainer's "auto" makes the reduce and gather buckets h^2 elements each (transformers/integrations/deepspeed.py).
    """
    compute = question.compute_dtype or draft.get("compute") or question.param_dtype or "bfloat16"
    draft.default("DeepSpeed casts the model", compute=compute, weights=compute, adapter_dtype=compute, autocast=False)
    draft.default("DeepSpeed keeps fp32 masters", master="float32", states="float32")
    draft.default("stage_1_and_2.py, step: gradients flattened, then copied to fp32", flattens=True)
    if question.zero == 3 and "optimizer" not in question.offload:
        draft.default("stage3.py: grad_partitions_flat_buffer is made once", frees_gradients=False)
    draft.default('"auto" buckets of hidden size squared', bucket_elements=2 * model.hidden**2)


def _dtypes(draft: Draft, question: Training, model: Model, version: tuple[int, ...]) -> None:
    compute = dtype_name(question.compute_dtype or question.param_dtype or "bfloat16")
    held = "float32" if version < (5,) else model.dtype
    if _upcasts(draft, question, version):
        draft.default("accelerate upcasts what FSDP trains under mixed precision", weights="float32")
    draft.default(f"from_pretrained of transformers {version[0]}", weights=held)
    draft.default("bf16=True", compute=compute)
    weights = draft.get("weights")
    draft.default("as loaded", frozen=weights)
    whole = draft.get("sharding") not in ("fsdp1", "fsdp2", "zero3")
    narrower = width(weights) > width(draft.get("compute"))
    draft.default(
        "bf16 or fp16 opens autocast around the model" if whole else "FSDP hands layers weights in the compute dtype",
        autocast=narrower or (whole and draft.get("compute") != "float32"),
    )
    if draft.get("quant") and whole and not str(draft.get("quant")).startswith("gptq"):
        draft.default("prepare_model_for_kbit_training casts what is not quantised to float32", unquantized="float32")
    sharded = draft.get("compute") if not whole and width(weights) > width(draft.get("compute")) else weights
    draft.default("layers see the compute dtype" if not whole else "as the weights",
                  norm_weight=draft.get("unquantized") or sharded)  # fmt: skip
    draft.default("norms return the dtype of their weight", residual=draft.get("norm_weight"))
    draft.default("PEFT autocast_adapter_dtype", adapter_dtype="float32")


def _upcasts(draft: Draft, question: Training, version: tuple[int, ...]) -> bool:
    """Whether accelerate turns trained 16-bit shards to float32: of FSDP1 since 0.34 at the latest, of FSDP2 since 1.6.

    Source: accelerator.py, prepare_model (0.27.2 has none, 0.34.2 has); utils/fsdp_utils.py, fsdp2_prepare_model (1.6.0, 1.15).
    """
    since = UPCASTS.get(draft.get("sharding"))
    mixed = (question.compute_dtype or "bfloat16") != "float32" and draft.get("autocast") is not False
    return since is not None and version >= since and mixed and question.method == "full"


def _sharded_dtypes(draft: Draft) -> None:
    weights = draft.get("weights")
    draft.default("as the weights", gradients=weights)
    mixed = draft.get("sharding") in ("fsdp1", "fsdp2") and width(weights) > width(draft.get("compute"))
    draft.default("FSDP MixedPrecision" if mixed else "as the weights",
                  backward_gradients=draft.get("compute") if mixed else weights,
                  reduce=draft.get("compute") if mixed else weights)  # fmt: skip
    # trainer.py, _inner_training_loop: every micro-batch but the last runs under accelerator.no_sync (transformers 4.46 to 5.23;
    # accelerator.accumulate did the same before), unless gradient_accumulation_kwargs sets sync_each_batch.
    if draft.get("sharding") in ("fsdp1", "fsdp2"):
        why = "accelerator.no_sync keeps whole gradients while accumulating; none: sync_each_batch"
        draft.default(why, whole_accumulation="trained")
    draft.default("DDP keeps gradients in buckets of their own", ddp_buckets=draft.get("sharding") == "ddp")


def _loss(draft: Draft, model: Model, version: tuple[int, ...]) -> None:
    draft.default("the class's own loss", direct_loss=model_class(model.family).whole.own_loss)
    draft.default("ForCausalLMLoss", loss="eager" if version < NO_SHIFT_COPY else "plain")
    draft.default("loss_function since 4.46" if version >= LOSS_FUNCTION else "the model returned float logits",
                  logits_kept=version >= LOSS_FUNCTION)  # fmt: skip
