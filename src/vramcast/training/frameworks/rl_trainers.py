"""OpenRLHF, verl, NeMo RL and prime-rl: the loop that updates a policy, around transformers' own models.

Sources: OpenRLHF at 3c3be623, utils/deepspeed/deepspeed_utils.py and deepspeed.py (ZeRO-2, FusedAdam, buckets of DeepSpeed's own
size, no overlap), models/actor.py (logits.to(float32), labels rolled instead of logits cut) and models/utils.py,
log_probs_from_logits (flash-attention's Triton cross entropy, its gradient in a tensor of its own).
verl at 004c88800, workers/fsdp_workers.py (an actor in float32, MixedPrecision bf16 with float32 reduction, torch's AdamW,
non-reentrant checkpointing) and trainer/config (strategy fsdp, enable_gradient_checkpointing True); workers/actor/dp_actor.py
at 0081137b (autocast in bf16; flash-attention's cross entropy with inplace_backward, unless an entropy is asked).
NeMo RL at 7ea279abf, models/policy/workers/dtensor_policy_worker.py (always loaded in float32; autocast around the forward) and
models/dtensor/parallelize.py (fully_shard of each layer, reduce_dtype and output_dtype float32, the root unit not resharded);
examples' configs (foreach and fused off).
prime-rl at 008cbefc9, trainer/model.py (FSDP2, the last block not resharded, logits.float()) and configs trainer.py
(optimization_dtype and reduce_dtype float32, no activation checkpointing); at 559b44772 of August 2026 the same config with ac,
ac_offloading, compile and optim_cpu_offload on (#2868 of 26 June: c5afcaa2e) and a head in blocks of tokens and vocabulary (#1525
of 5 January for policies, #3044 of 16 July for SFT too), whose states trainer/optim/state_offload.py moves for each step.
"""

import msgspec

from vramcast.models.inventory import Model
from vramcast.training.frameworks import hf_trainer
from vramcast.training.frameworks.common import DEEPSPEED_BUCKET, deepspeed_fetches, is_month, version_of
from vramcast.training.recipe.draft import Draft, Overrides, because, dtype_of
from vramcast.training.recipe.parts import Kernels, Loss, Policy, Precision, Recomputation, Sharding, Update
from vramcast.workload import Training

SAVING_DEFAULTS, FUSED_HEAD, FUSED_SFT = (2026, 7), (2026, 2), (2026, 8)  # prime-rl, the month after each change
FUSED_UPDATE = (2026, 9)  # prime-rl #3234 of 15 August


def resolve(draft: Draft, question: Training, model: Model) -> Overrides:
    """The framework's own decisions, then those of transformers' classes at their newest release, or of the month asked."""
    own = {"openrlhf": _openrlhf, "verl": _verl, "nemo_rl": _nemo_rl, "prime_rl": _prime_rl}[draft.framework]
    asked = _of_its_time(question, draft.framework)
    yield from own(draft, asked)
    yield because("the optimizer is made outside the Trainer", Update, wide_ends=False)
    yield from hf_trainer.resolve(draft, asked, model)


def _of_its_time(question: Training, framework: str) -> Training:
    """The question with the default way to divide a model, and without a release that is none of transformers'."""
    dated = is_month(version_of(question, "0"))
    alone = question.zero is None and question.fsdp is None and question.parallel.shards > 1
    default = {"openrlhf": {"zero": 2}, "verl": {"fsdp": 1}, "nemo_rl": {"fsdp": 2}, "prime_rl": {"fsdp": 2}}[framework]
    return msgspec.structs.replace(
        question, framework_version=question.framework_version if dated else None, **(default if alone else {})
    )


def _openrlhf(_draft: Draft, question: Training) -> Overrides:
    sharded = question.zero is not None
    yield because("get_train_ds_config: reduce_bucket_size", Sharding, reduce_bucket=DEEPSPEED_BUCKET if sharded else 0)
    yield because("get_train_ds_config: no overlap_comm", Sharding, overlaps=False)
    yield from deepspeed_fetches()
    yield because("--gradient_checkpointing is off", Recomputation, policy=Policy("none"))
    yield because("create_optimizer: FusedAdam", Update, implementation="fused")
    yield because("log_probs_from_logits: flash-attention's cross entropy of float logits", Loss, kind="fused", logits_kept=False)


def _verl(draft: Draft, question: Training) -> Overrides:
    compute = draft.get("compute") or dtype_of(question.param_dtype or "bfloat16")
    yield because("fsdp_workers.py: an actor is loaded in float32", Precision, weights="float32", compute=compute, autocast=True)
    yield because("MixedPrecision(reduce_dtype=fp32)", Precision, backward_gradients=compute, reduce="float32")
    yield because("every micro-batch is reduced", Sharding, whole_accumulation="none")
    yield because("enable_gradient_checkpointing: True", Recomputation, policy=Policy("full"), reentrant=False)
    yield because("optim.AdamW picks foreach", Update, implementation="foreach")
    yield because("logprobs_from_logits(inplace_backward=True)", Loss, kind="overwritten")


def _nemo_rl(_draft: Draft, _question: Training) -> Overrides:
    yield because("dtensor_policy_worker.py: master weights in float32", Precision, weights="float32", compute="bfloat16")
    yield because("MixedPrecisionPolicy(reduce_dtype=float32)", Precision, backward_gradients="bfloat16", reduce="float32")
    yield because("every micro-batch is reduced", Sharding, whole_accumulation="none")
    yield because("activation_checkpointing: false", Recomputation, policy=Policy("none"))
    yield because("examples: foreach and fused off with DTensor", Update, implementation="loop")
    yield because("output_dtype float32, held by the loop", Loss, kind="plain", holds_logits="float32", logits_kept=False)


def _prime_rl(draft: Draft, question: Training) -> Overrides:
    month = version_of(question, "9999.1")
    if month >= SAVING_DEFAULTS:
        yield from _prime_rl_defaults(draft, question)
    fused = month >= (FUSED_SFT if draft.get("task", "sft") in ("sft", "pretrain") else FUSED_HEAD)
    yield because(
        "fused_lm_head_token_chunk_size" if fused else "forward returns logits.float()", Loss, kind="blocks" if fused else "plain"
    )
    yield because("optimization_dtype float32", Precision, weights="float32", compute="bfloat16", autocast=False)
    yield because("reduce_dtype float32", Precision, backward_gradients="bfloat16", reduce="float32")
    yield because("every micro-batch is reduced", Sharding, whole_accumulation="none")
    yield because("setup_fsdp: the last block is not resharded after forward", Sharding, last_at_loss="whole")
    yield because("model.ac is None", Recomputation, policy=Policy("none"))
    fused_update = month >= FUSED_UPDATE and not (draft.get("visits") or question.offload)
    yield because(
        "optim/__init__.py: fused_adamw, unless states are moved" if fused_update else "torch.optim.AdamW picks foreach",
        Update,
        implementation="fused" if fused_update else "foreach",
    )
    if not fused:
        yield because("forward returns logits.float()", Loss, holds_logits="float32", logits_kept=False)


def _prime_rl_defaults(draft: Draft, question: Training) -> Overrides:
    """What a run saves memory with unless it says otherwise, since June 2026."""
    if question.compile is None:
        yield because("model.compile", Kernels, compiled=True)
    if draft.get("checkpointing") is None:
        yield because("model.ac, model.ac_offloading", Recomputation, policy=Policy("offloaded"))
    visits = not question.offload and draft.get("visits") is None
    yield because("optim_cpu_offload: states visit the card for the step", Update, visits=visits)
