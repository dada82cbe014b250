"""Frameworks by name, what several of them decide alike (versions, sharding, dtypes), and layouts they have no code for."""

import importlib
from collections.abc import Callable

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption
from vramcast.models.inventory import Model
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import Adapters, Dtype, Kernels, Precision, Recipe, Sharding, ShardingKind
from vramcast.workload import Training

Resolver = Callable[[Draft, Training, Model], Overrides]

_MODULES = {
    "accelerate": "hf_trainer",
    "axolotl": "axolotl",
    "colossalai": "colossalai",
    "deepspeed": "hf_trainer",
    "fsdp_qlora": "fsdp_qlora",
    "hf_trainer": "hf_trainer",
    "litgpt": "litgpt",
    "llama_factory": "llama_factory",
    "llama_recipes": "pytorch",
    "llm_foundry": "llm_foundry",
    "megatron": "megatron",
    "megatron_bridge": "megatron",
    "megatron_deepspeed": "megatron_deepspeed",
    "ms_swift": "ms_swift",
    "nanotron": "nanotron",
    "nemo_automodel": "pytorch",
    "nemo_rl": "rl_trainers",
    "openrlhf": "rl_trainers",
    "peft_bench": "pytorch",
    "prime_rl": "rl_trainers",
    "pytorch": "pytorch",
    "qwen_finetune": "qwen_finetune",
    "torchtitan": "torchtitan",
    "torchtune": "torchtune",
    "trl": "trl",
    "unsloth": "unsloth",
    "verl": "rl_trainers",
    "xtuner": "torchtitan",
}
ALIASES = {
    "hf": "hf_trainer", "huggingface": "hf_trainer", "trainer": "hf_trainer", "transformers": "hf_trainer", "peft": "hf_trainer",
    "torch": "pytorch", "megatron_lm": "megatron", "megatron_core": "megatron", "nemo": "megatron", "bridge": "megatron_bridge",
    "llamafactory": "llama_factory", "swift": "ms_swift", "colossal": "colossalai", "composer": "llm_foundry",
    "lit_gpt": "litgpt", "titan": "torchtitan", "tune": "torchtune",
}  # fmt: skip
DEEPSPEED_BUCKET = 500_000_000
"""Elements of a reduction bucket where nobody sets it (DeepSpeed 0.18, runtime/zero/config.py: reduce_bucket_size)."""
DEEPSPEED_FLATTENS = (0, 19)
"""The release since which flat weights are made on the card (stage_1_and_2.py, flatten_on_accelerator: 0.18.6 has none)."""
DEEPSPEED_LATE_BUCKETS = (0, 18, 3)
"""The release since which ZeRO 1 and 2 make their buckets at the first weight's gradient (stage_1_and_2.py, setup_buckets, pull
7665), no longer before the loss's backward (0.18.2: backward)."""
DEEPSPEED_READ = (0, 18)
"""The first release whose life of these buckets was read; an older one has those of its month's Trainer."""
FIRST_YEAR = 2000  # below it a number is a release's, from it on the year of a month


def framework_name(name: str) -> str:
    """The canonical name. Raises QuestionError with the nearest known names."""
    key = name.strip().lower().replace("-", "_")
    found = ALIASES.get(key, key)
    if found not in _MODULES:
        raise unknown_name("framework", name, (*_MODULES, *ALIASES))
    return found


def resolver(name: str) -> Resolver:
    """The generator of that framework's overrides; each may read what the draft holds when its turn comes."""
    module = importlib.import_module(f"vramcast.training.frameworks.{_MODULES[name]}")
    found: Resolver = module.resolve
    return found


def names() -> tuple[str, ...]:
    """Every framework that has rules."""
    return tuple(_MODULES)


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


def is_month(version: tuple[int, ...]) -> bool:
    """Whether what was said of a version is the month of a run (2024.6), not a release."""
    return version[0] >= FIRST_YEAR


ZERO_STAGES: tuple[ShardingKind, ...] = ("none", "zero1", "zero2", "zero3")


def sharding(question: Training, *, fallback: ShardingKind = "ddp") -> Overrides:
    """The sharding that ``zero``, ``fsdp`` and the data-parallel size ask for.

    torchtitan and torchtune shard over data- and context-parallel ranks together (distributed/parallel_dims.py, dp_shard_cp).
    """
    if question.zero is not None:
        yield because(f"zero={question.zero}", Sharding, kind=ZERO_STAGES[question.zero])
    if question.fsdp is not None:
        yield because(f"fsdp={question.fsdp}", Sharding, kind="fsdp1" if question.fsdp == 1 else "fsdp2")
    if question.parallel.dp > 1:
        yield because("data parallel", Sharding, kind=fallback)
    if question.parallel.cp > 1 and fallback == "fsdp2":
        yield because("context-parallel ranks share the shards", Sharding, kind=fallback)
    yield because("one data-parallel rank", Sharding, kind="none")


def deepspeed_fetches() -> Overrides:
    """How far ZeRO-3 fetches ahead and what it keeps whole where nobody says; an "auto" that no Trainer fills in is dropped.

    Source: DeepSpeed 0.19.8, runtime/zero/config.py (prefetch_bucket_size, param_persistence_threshold), config_utils.py.
    """
    own = Sharding()
    yield because("", Sharding, prefetch_elements=own.prefetch_elements, persistent_elements=own.persistent_elements)


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


def _in_float16(recipe: Recipe) -> Recipe:
    kept = msgspec.structs.asdict(recipe.precision)
    halves = {name: "float16" for name, value in kept.items() if value == "bfloat16"}
    return msgspec.structs.replace(recipe, precision=msgspec.structs.replace(recipe.precision, **halves))


_INSTEAD = "SDPA's efficient kernel, or, where heads share keys, its math kernel, which keeps all scores"


def attention_on(card: Accelerator | None, recipe: Recipe) -> tuple[Recipe, tuple[Assumption, ...]]:
    """The recipe with the attention kernel that this card can run: before Ampere the memory-efficient one instead of flash.

    Unsloth loads float16 on such a card whatever was asked (unsloth/models/loader.py, SUPPORTS_BFLOAT16).
    """
    if card is not None and card.capability is not None and card.capability < FLASH_NEEDS and recipe.framework == "unsloth":
        recipe = _in_float16(recipe)
    if card is None or card.capability is None or card.capability >= FLASH_NEEDS or recipe.kernels.attention != "flash":
        return recipe, ()
    told = Assumption("attention", "efficient", f"{card.name} is older than flash attention 2 needs: {_INSTEAD}")
    kernels = msgspec.structs.replace(recipe.kernels, attention="efficient")
    return msgspec.structs.replace(recipe, kernels=kernels), (told,)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Axes of parallelism a framework has no code for, whether it runs DeepSpeed's ZeRO, and the stages with rules here."""

    lacks: tuple[str, ...] = ()
    zero: bool = True
    stages: tuple[int, ...] = (0, 1, 2, 3)
    source: str


_TRAINER = "transformers/trainer.py: data parallel, accelerate's tp and cp; no pipeline schedule"
_ALONE = ("tp", "pp", "cp", "ep")
LIMITS = {
    "accelerate": Limits(lacks=("pp",), source="accelerate 1.15, parallelism_config.py: dp_replicate, dp_shard, tp, cp, sp"),
    "axolotl": Limits(lacks=("pp",), source=_TRAINER),
    "fsdp_qlora": Limits(lacks=_ALONE, zero=False, source="fsdp_qlora/train.py: FSDP or DDP"),
    "hf_trainer": Limits(lacks=("pp",), source=_TRAINER),
    "litgpt": Limits(lacks=_ALONE, zero=False, source="litgpt/finetune: Fabric with FSDPStrategy"),
    "llama_factory": Limits(lacks=("pp",), source=_TRAINER),
    "llm_foundry": Limits(lacks=("pp", "cp"), zero=False, source="composer/trainer: parallelism_config takes fsdp and tp"),
    "megatron": Limits(zero=False, source="Megatron-LM, training/arguments.py: --use-distributed-optimizer, --use-megatron-fsdp"),
    "megatron_bridge": Limits(
        zero=False, source="Megatron-Bridge, training/config.py: the distributed optimizer or Megatron FSDP"
    ),
    "megatron_deepspeed": Limits(
        stages=(1, 2),
        source="DeepSpeed 0.6.0, runtime/pipe/engine.py: no ZeRO-3 under a pipeline; stage 0's FP16_Optimizer has no rules here",
    ),
    "ms_swift": Limits(lacks=("pp",), source=_TRAINER),
    "nemo_rl": Limits(lacks=("pp",), zero=False, source="NeMo RL, dtensor_policy_worker.py: FSDP2 with tp and cp"),
    "openrlhf": Limits(lacks=("pp", "ep"), source="OpenRLHF, utils/deepspeed/deepspeed.py: ZeRO with tp and ring attention"),
    "peft_bench": Limits(lacks=_ALONE, zero=False, source="peft/method_comparison: one card"),
    "prime_rl": Limits(lacks=("pp",), zero=False, source="prime-rl, configs trainer.py: FSDP2 with tp, cp and ep"),
    "qwen_finetune": Limits(lacks=_ALONE, source="Qwen/finetune.py: the Trainer with DeepSpeed"),
    "torchtitan": Limits(zero=False, source="torchtitan 0.3, distributed/fsdp.py: FSDP2 only"),
    "torchtune": Limits(
        lacks=("pp", "ep"),
        zero=False,
        source="torchtune 0.6.1, recipes/full_finetune_distributed.py: tensor_parallel_dim, the rest is FSDP2",
    ),
    "trl": Limits(lacks=("pp",), source=_TRAINER),
    "unsloth": Limits(lacks=_ALONE, zero=False, source="unsloth: one process per card, DDP at most"),
    "verl": Limits(
        lacks=_ALONE, zero=False, source="verl, workers/fsdp_workers.py: FSDP with Ulysses; its Megatron path: megatron"
    ),
    "xtuner": Limits(lacks=("pp",), zero=False, source="xtuner/v1: FSDP2, tp and ep"),
}
_WORDS = {"tp": "tensor parallelism", "pp": "pipeline parallelism", "cp": "context parallelism", "ep": "expert parallelism"}


def check_framework(question: Training, recipe: Recipe) -> None:
    """Raises QuestionError for a version without a number, and for a layout or an engine that this framework does not have."""
    version_of(question, "0")
    if question.zero is not None and question.fsdp is not None:
        raise QuestionError(f"zero {question.zero} and fsdp {question.fsdp} both shard the model: give one of them")
    limits = LIMITS.get(recipe.framework)
    if limits is None:
        return
    if question.zero and not limits.zero:
        raise QuestionError(f"{recipe.framework} does not run DeepSpeed ZeRO: use --fsdp, or --framework hf_trainer")
    if question.zero is not None and question.zero not in limits.stages and "sharding" not in question.options:
        known = " or ".join(map(str, limits.stages))
        raise QuestionError(f"{recipe.framework} has no rules for ZeRO stage {question.zero}: use --zero {known}")
    for axis in limits.lacks:
        if getattr(question.parallel, axis) > 1 and not (axis == "pp" and recipe.model_parallel.spread):
            raise QuestionError(_refusal(recipe.framework, axis))


def _refusal(framework: str, axis: str) -> str:
    other = "--framework megatron or torchtitan"
    spread = ", or --set spread=true for layers that device_map spreads over the cards" if axis == "pp" else ""
    return f"{framework} has no {_WORDS[axis]}: use {other}{spread}"
