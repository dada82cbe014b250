"""Hugging Face Trainer, TRL and accelerate.

Sources: transformers/training_args.py, modeling_utils.py (dtype "auto" since 5), loss/loss_utils.py (since 4.46 the model's
16-bit logits stay beside the float copy), accelerate/accelerator.py (FSDP upcasts of trained parameters), peft/mapping.py
(autocast_adapter_dtype), torch/optim (foreach by default, fused when asked).
"""

from typing import Literal

import msgspec

from vramcast.models.classes import Layer, model_class, norms_embedding
from vramcast.models.inventory import Model
from vramcast.training.frameworks.common import compiled_layers, is_month, sharding, version_of
from vramcast.training.frameworks.releases import RELEASED, is_transformers, released
from vramcast.training.recipe.draft import Draft, Overrides, because, dtype_of
from vramcast.training.recipe.parts import (
    Adapters,
    Kernels,
    Loss,
    Policy,
    Precision,
    Process,
    Quantization,
    Recomputation,
    Sharding,
    Update,
    width,
)
from vramcast.workload import Training

NEWEST = "5.23"
LOSS_FUNCTION = (4, 46)  # the float copy moved out of the model: the 16-bit logits are kept
LAZY_MODULES = (4, 26)  # of the time when torch 1.13 with CUDA 11.7 became usual
SETS_TO_NONE = (4, 27)  # of the time of torch 2.0, whose zero_grad gives gradients back and whose optimizers run foreach
ONE_LIST = (4, 34)  # of the time of torch 2.1, whose foreach AdamW adds epsilon in place (pytorch pull 104898)
NO_SHIFT_COPY = (4, 50)  # labels are shifted instead of logits
ONE_LOSS = (4, 49)  # loss_function for the classes that had kept a loss of their own
FUSED_DEFAULT = (4, 55)  # fused where torch is 2.8, which came out between 4.54 and 4.55 (training_args.py: default_optim)
FUSED_EXPERTS = (5, 0)
LATE_BUCKETS = (5, 0)  # of the time of DEEPSPEED_LATE_BUCKETS, December 2025
FLATTENS_BESIDE = (5, 23)  # of the time of DEEPSPEED_FLATTENS
SEPARATE_ENDS = (5, 23)  # of accelerate 1.15's time, whose fsdp2_prepare_model shards untied ends by themselves
# accelerate 0.24, get_mixed_precision_context_manager: FSDP joins the layouts that run under autocast (0.23 left it out)
FSDP_AUTOCAST = (4, 35)  # transformers of that month
NOT_REENTRANT = (5, 0)  # modeling_utils.py, gradient_checkpointing_enable: True in 4.57.1, False in 5.0.0
UPCASTS = {"fsdp1": (4, 41), "fsdp2": (4, 51)}  # transformers of accelerate's releases
ATTENTION_INTERFACE = (4, 48)  # one attention interface for all models: flash no longer repeats keys and values

OWN_LOOPS = (
    "pytorch",
    "llama_recipes",
    "nemo_automodel",
    "peft_bench",
    "verl",
    "nemo_rl",
    "prime_rl",
)  # which call fully_shard without accelerate


def under(question: Training, transformers: str) -> Training:
    """The question with the transformers version that a framework's releases ran on, unless it states one."""
    return question if question.framework_version else msgspec.structs.replace(question, framework_version=transformers)


def transformers_version(question: Training, framework: str = "hf_trainer") -> tuple[int, ...]:
    """The transformers version: as asked, or the one of the date asked, or of the month of the framework's own release.

    The newest where a framework whose releases have no months here names a release of its own.
    """
    asked = version_of(question, NEWEST)
    if framework == "hf_trainer" or not question.framework_version or is_transformers(asked):
        month = asked
    else:
        month = released(framework, asked)
        if framework not in RELEASED and not is_month(month):
            month = version_of(msgspec.structs.replace(question, framework_version=None), NEWEST)
    if not is_month(month):
        return month
    known = RELEASED["transformers"]
    return max((release for release, since in known if since <= month), default=known[0][0])


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """Fill what the Trainer of that version does."""
    version = transformers_version(question, draft.framework)
    yield from sharding(question)
    if question.zero is not None or draft.framework == "deepspeed":
        yield from _deepspeed(draft, question, model, version)
    yield from _dtypes(draft, question, model, version)
    yield from _sharded_dtypes(draft)
    yield from compiled_layers(draft)
    yield from _modules(model)
    if draft.get("quant"):
        yield because("prepare_model_for_kbit_training turns checkpointing on", Recomputation, policy=Policy("full"))
    yield because("Trainer default", Recomputation, policy=Policy("none"))
    yield because("gradient checkpointing's use_reentrant of transformers", Recomputation, reentrant=version < NOT_REENTRANT)
    yield from _update(version)
    yield from _attention(draft, model, version)
    yield from _loss(model, version)
    yield because(
        "a quantised model is loaded on every card before FSDP cuts it",
        Quantization,
        loads_whole=bool(draft.get("quant")) and "parameters" not in question.offload,
    )
    yield because("CUDA 11.7 and later load kernels when they are used", Process, lazy_modules=version >= LAZY_MODULES)
    yield from _experts(draft, model, version)
    yield because("prefetch of the next block", Sharding, live_gathers=2)
    if draft.get("sharding") == "fsdp2":
        yield from _fsdp2_units(draft, model, version)


def _update(version: tuple[int, ...]) -> Overrides:
    """The Trainer's optimizer, and what becomes of gradients after it."""
    yield because("Trainer default", Update, optimizer="adamw")
    yield because("trainer.py: bitsandbytes keeps 32-bit states for embeddings", Update, wide_ends=True)
    yield because(
        "Trainer default optim",
        Update,
        implementation="fused" if version >= FUSED_DEFAULT else "foreach" if version >= SETS_TO_NONE else "loop",
    )
    yield because("foreach AdamW of torch 2.0", Update, foreach_twice=SETS_TO_NONE <= version < ONE_LIST)
    freed = version >= SETS_TO_NONE
    yield because(
        "zero_grad sets gradients to None" if freed else "zero_grad of torch 1 fills gradients with zeros",
        Update,
        frees_gradients=freed,
    )


def _fsdp2_units(draft: Draft, model: Model, version: tuple[int, ...]) -> Overrides:
    """Which modules accelerate shards by themselves; loops that call fully_shard on their own leave the ends to the root."""
    apart = version >= SEPARATE_ENDS and draft.framework not in OWN_LOOPS
    if apart and not model.tied:
        yield because("accelerate 1.15: embedding and head are groups of their own", Sharding, separate_ends=True)
    yield because("accelerate 1.15: the root unit is empty" if apart else "", Sharding, last_at_loss="" if apart else "backward")


def _modules(model: Model) -> Overrides:
    yield because("transformers' eager modules", Kernels, norm="eager", rope="eager", glu="eager")
    facts = model_class(model.text_class)
    layer = facts.layer or Layer()
    by_numbers = model.family == "shape"  # no class stands behind it: the plain layer
    yield because("", Kernels, modules="" if by_numbers else model.text_class)
    yield because("the class's own modules", Kernels, float_router=layer.float_router, clamped_glu=layer.clamped_glu)
    yield because("the class's final_logit_softcapping", Loss, logits_softcap=facts.whole.capped_logits)
    yield because("the class's own RMSNorm", Kernels, norm_form=layer.norm_form)


def _attention(draft: Draft, model: Model, version: tuple[int, ...]) -> Overrides:
    chosen = draft.get("attention") is None and version >= ATTENTION_INTERFACE
    yield because("torch's scaled_dot_product_attention picks the kernel" if chosen else "given", Kernels, sdpa=chosen)
    yield because("sdpa picks flash", Kernels, attention="flash")
    whole = model_class(model.text_class).whole
    expands = version < ATTENTION_INTERFACE and whole.repeats_kv
    yield because(
        "the model's own flash class repeats keys and values" if expands else "grouped kernel", Kernels, repeats_kv=expands
    )
    yield because(
        "the class's configuration", Kernels, hidden_dropout=whole.hidden_dropout, attention_dropout=whole.attention_dropout
    )


def _experts(draft: Draft, model: Model, version: tuple[int, ...]) -> Overrides:
    fused = version >= FUSED_EXPERTS and not draft.get("splits_experts")
    yield because(
        "experts are fused tensors since transformers 5" if fused else "experts are layers", Kernels, fused_experts=fused
    )
    yield because(
        "grouped matmuls since transformers 5" if fused else "one expert after another",
        Kernels,
        experts="grouped" if fused else "loop",
    )
    reached = model_class(model.family).whole.converts_experts or not fused
    yield because("PEFT's all-linear reaches routers", Adapters, adapts_router=reached and not draft.get("splits_experts"))
    yield because(
        "PEFT reaches experts that are one tensor in the families it converts" if fused else "",
        Adapters,
        adapts_experts="layers" if not fused else "tensors" if reached else "none",
    )


def _deepspeed(draft: Draft, question: Training, model: Model, version: tuple[int, ...]) -> Overrides:
    """The engine casts the whole model and keeps fp32 masters and states of its partition (deepspeed/runtime/bf16_optimizer.py).

    The Trainer's "auto" makes a bucket h^2 elements (transformers/integrations/deepspeed.py); only stages 1 and 2 have a second,
    where overlap_comm asks for it, which is off there by default (DeepSpeed 0.19.8, stage_1_and_2.py: setup_buckets, stage3.py:
    bucket.buffer, zero/config.py: overlap_comm_valid).
    """
    compute = draft.get("compute") or dtype_of(question.param_dtype or "bfloat16")
    yield because("DeepSpeed casts the model", Precision, compute=compute, weights=compute, autocast=False)
    yield because("DeepSpeed casts the model", Adapters, adapter_dtype=compute)
    if question.zero == 0 and compute == "float32":
        yield because("stage 0 in float32: the optimizer as it was given (engine.py, _configure_optimizer)", Update, master="")
    yield because("DeepSpeed keeps fp32 masters", Update, master="float32", states="float32")
    yield because("stage_1_and_2.py, step: gradients flattened, then copied to fp32", Update, flattens=True)
    if question.zero == 3 and "optimizer" not in question.offload:
        yield because("stage3.py: grad_partitions_flat_buffer is made once", Update, frees_gradients=False)
    yield from _buckets(question, model, version)
    beside = version >= FLATTENS_BESIDE
    yield because("" if beside else "stage_1_and_2.py: weights went over the host", Sharding, flattens_beside=beside)
    yield because("overlap_comm of transformers' docs", Sharding, overlaps=draft.framework != "deepspeed")


def _buckets(question: Training, model: Model, version: tuple[int, ...]) -> Overrides:
    """The Trainer's "auto" sizes (integrations/deepspeed.py, trainer_config_finalize), and when stages 1 and 2 hold buckets."""
    yield because('"auto" bucket of hidden size squared', Sharding, reduce_bucket=model.hidden**2)
    yield because(
        'the Trainer\'s "auto"' if question.zero == 3 else "",
        Sharding,
        prefetch_elements=int(0.9 * model.hidden**2),
        persistent_elements=10 * model.hidden,
    )
    if question.zero in (1, 2):
        since: Literal["loss", "gradients"] = "gradients" if version >= LATE_BUCKETS else "loss"
        yield because("stage_1_and_2.py: buckets are released when backward is over", Sharding, buckets_from=since)


def _dtypes(draft: Draft, question: Training, model: Model, version: tuple[int, ...]) -> Overrides:
    held = dtype_of("float32" if version < (5,) else model.dtype)
    plain = question.options.get("autocast") is False  # said so: layers multiply in the type of their weights
    compute = draft.get("compute") or dtype_of(question.param_dtype or (held if plain else "bfloat16"))
    if _upcasts(draft, question, version):
        yield because("accelerate upcasts what FSDP trains under mixed precision", Precision, weights="float32")
    yield because(f"from_pretrained of transformers {version[0]}", Precision, weights=held)
    yield because("as loaded: no autocast" if plain else "bf16=True", Precision, compute=compute)
    weights = draft.get("weights")
    yield because("as loaded", Precision, frozen=weights)
    whole = draft.get("sharding") not in ("fsdp1", "fsdp2", "zero3")
    narrower = width(weights) > width(draft.get("compute"))
    opened = whole or (draft.get("sharding") != "zero3" and version >= FSDP_AUTOCAST)
    yield because(
        "bf16 or fp16 opens autocast around the model" if opened else "FSDP hands layers weights in the compute dtype",
        Precision,
        autocast=narrower or (opened and draft.get("compute") != "float32"),
    )
    if draft.get("quant") and whole and not str(draft.get("quant")).startswith("gptq"):
        yield because(
            "prepare_model_for_kbit_training casts what is not quantised to float32", Quantization, unquantized="float32"
        )
    sharded = draft.get("compute") if not whole and width(weights) > width(draft.get("compute")) else weights
    yield because(
        "layers see the compute dtype" if not whole else "as the weights",
        Precision,
        norm_weight=draft.get("unquantized") or sharded,
    )
    layer = model_class(model.text_class).layer
    if draft.get("autocast") and (norms_embedding(model) or (layer and layer.norms == "sum")):
        yield because("autocast's LayerNorm of the stream itself returns float32", Precision, residual="float32")
    yield because("norms return the dtype of their weight", Precision, residual=draft.get("norm_weight"))
    yield because("PEFT autocast_adapter_dtype", Adapters, adapter_dtype="float32")


def _upcasts(draft: Draft, question: Training, version: tuple[int, ...]) -> bool:
    """Whether accelerate turns trained 16-bit shards to float32: of FSDP1 since 0.34 at the latest, of FSDP2 since 1.6.

    Source: accelerator.py, prepare_model (0.27.2 has none, 0.34.2 has); utils/fsdp_utils.py, fsdp2_prepare_model (1.6.0, 1.15).
    """
    since = UPCASTS.get(draft.get("sharding"))
    mixed = draft.get("compute", "bfloat16") != "float32" and draft.get("autocast") is not False
    return since is not None and version >= since and mixed and question.method == "full"


def _sharded_dtypes(draft: Draft) -> Overrides:
    weights = draft.get("weights")
    yield because("as the weights", Precision, gradients=weights)
    mixed = draft.get("sharding") in ("fsdp1", "fsdp2") and width(weights) > width(draft.get("compute"))
    yield because(
        "FSDP MixedPrecision" if mixed else "as the weights",
        Precision,
        backward_gradients=draft.get("compute") if mixed else weights,
        reduce=draft.get("compute") if mixed else weights,
    )
    # trainer.py, _inner_training_loop: every micro-batch but the last runs under accelerator.no_sync (transformers 4.46 to 5.23;
    # accelerator.accumulate did the same before), unless gradient_accumulation_kwargs sets sync_each_batch.
    if draft.get("sharding") in ("fsdp1", "fsdp2"):
        why = "accelerator.no_sync keeps whole gradients while accumulating; none: sync_each_batch"
        yield because(why, Sharding, whole_accumulation="trained")
    yield because("DDP keeps gradients in buckets of their own", Sharding, ddp_buckets=draft.get("sharding") == "ddp")


def _loss(model: Model, version: tuple[int, ...]) -> Overrides:
    kind = model_class(model.family)
    yield because("the class's own loss", Loss, direct_loss=kind.whole.own_loss)
    if kind.remote is not None and not kind.whole.narrow_loss:
        yield because("the class's own loss, of float logits", Loss, kind="eager", logits_upcast=True, logits_kept=False)
    elif kind.whole.narrow_loss and (kind.remote is not None or version < ONE_LOSS):
        yield because("the class's own loss, of its 16-bit logits", Loss, kind="eager", logits_upcast=False, logits_kept=True)
    yield because("ForCausalLMLoss", Loss, kind="eager" if version < NO_SHIFT_COPY else "plain")
    yield because(
        "loss_function since 4.46" if version >= LOSS_FUNCTION else "the model returned float logits",
        Loss,
        logits_kept=version >= LOSS_FUNCTION,
    )
