"""Decisions several frameworks share: versions, sharding from the question, adapters' dtypes."""

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import Adapters, Dtype, Kernels, Precision, Recipe, Sharding, ShardingKind
from vramcast.workload import Training


def version_of(question: Training, default: str) -> tuple[int, ...]:
    """The numeric version asked for, or the framework's newest known one. Raises QuestionError for one without a number."""
    text = question.framework_version or default
    parts = []
    for piece in text.lstrip("v").split("."):
        digits = "".join(ch for ch in piece if ch.isdigit())
        if not digits:
            break
        parts.append(int(digits))
    if not parts:
        raise QuestionError(f"framework version {text!r} is no release: write its number or its month, as 0.9 or 2025.6")
    return tuple(parts)


ZERO_STAGES: tuple[ShardingKind, ...] = ("none", "zero1", "zero2", "zero3")


def sharding(question: Training, *, fallback: ShardingKind = "ddp") -> Overrides:
    """The sharding that ``zero``, ``fsdp`` and the data-parallel size ask for."""
    if question.zero is not None:
        yield because(f"zero={question.zero}", Sharding, kind=ZERO_STAGES[question.zero])
    if question.fsdp is not None:
        yield because(f"fsdp={question.fsdp}", Sharding, kind="fsdp1" if question.fsdp == 1 else "fsdp2")
    if question.parallel.dp > 1:
        yield because("data parallel", Sharding, kind=fallback)
    yield because("one data-parallel rank", Sharding, kind="none")


def fsdp_offload(draft: Draft) -> None:
    """FSDP that keeps shards on the host keeps their gradients and steps there too.

    Sources: torch/distributed/fsdp/api.py, CPUOffload, and _fully_shard/_fsdp_api.py, CPUOffloadPolicy.
    """
    kept = tuple(draft.get("offload") or ())
    if draft.get("sharding") in ("fsdp1", "fsdp2") and "parameters" in kept and "gradients" not in kept:
        draft.extend("FSDP's gradients and optimizer follow its parameters to the host", "offload", ("gradients", "optimizer"))


def everything_in(dtype: Dtype, reason: str) -> Overrides:
    """Weights, gradients, the hidden stream and adapters all in one dtype."""
    yield because(reason, Precision, weights=dtype, frozen=dtype, compute=dtype, residual=dtype, norm_weight=dtype)
    yield because(reason, Precision, gradients=dtype, backward_gradients=dtype, reduce=dtype)
    yield because(reason, Adapters, adapter_dtype=dtype)


def compiled_layers(draft: Draft) -> Overrides:
    """The parts of a compiled layer of transformers, where nothing else was asked for.

    Source: torch 2.13, _functorch/partitioners.py, min_cut_rematerialization_partition: what is elementwise is computed again
    from the nearest matmul, so a norm leaves its input, rotary embeddings nothing of their own, a gated MLP its two projections.
    One Llama layer cut by that function keeps 1 % more than the tape says (``vramcast trace --compile``).
    """
    if draft.get("compiled"):
        why = "torch.compile: the min-cut partitioner saves inputs of matmuls"
        yield because(why, Kernels, norm="fused", rope="fused", glu="recomputed")


TORCHAO = ("torchtitan", "torchtune", "xtuner")  # whose 8-bit matmuls are torchao's


def is_narrow(question: Training) -> bool:
    """Whether matmuls run in 8 or 4 bits; their outputs and the hidden stream stay in bf16."""
    return any(word in str(question.compute_dtype) for word in ("fp8", "float8", "fp4"))


def narrow_inputs(question: Training, framework: str) -> Overrides:
    """What an 8-bit matmul keeps of its input: Transformer Engine its 8-bit copy, torchao the 16-bit tensor itself.

    A 4-bit one keeps 4-bit copies of its input and of its weight in both. Sources: transformer_engine/pytorch/module/linear.py;
    torchao/float8/float8_linear.py (matmul_with_hp_or_float8_args), prototype/mx_formats/mx_linear.py (mx_mm:
    save_for_backward(input_hp, weight_hp)) and prototype/moe_training/nvfp4_training/nvfp4_linear.py.
    """
    if not is_narrow(question):
        return
    if "fp4" in str(question.compute_dtype):
        yield because("a 4-bit matmul saves 4-bit codes and their scales", Precision, saved_inputs="nvfp4")
    elif framework in TORCHAO:
        yield because("torchao saves the 16-bit input and casts it again in backward", Precision, saved_inputs="")
    else:
        yield because("Transformer Engine saves its 8-bit copy of the input", Precision, saved_inputs="float8")


FLASH_NEEDS = (8, 0)  # compute capability (flash-attention's README; aten/native/transformers/cuda/sdp_utils.cpp)


def attention_on(card: Accelerator | None, recipe: Recipe) -> tuple[Recipe, tuple[Assumption, ...]]:
    """The recipe with the attention kernel that this card can run: before Ampere the memory-efficient one instead of flash."""
    if card is None or card.capability is None or card.capability >= FLASH_NEEDS or recipe.kernels.attention != "flash":
        return recipe, ()
    told = Assumption("attention", "efficient", f"{card.name} is older than flash attention 2 needs")
    kernels = msgspec.structs.replace(recipe.kernels, attention="efficient")
    return msgspec.structs.replace(recipe, kernels=kernels), (told,)
