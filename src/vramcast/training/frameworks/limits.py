"""What a framework cannot be asked for: layouts and engines it has no code for. One row per framework that lacks something."""

import msgspec

from vramcast.errors import QuestionError
from vramcast.training.frameworks.common import version_of
from vramcast.training.recipe.parts import Recipe
from vramcast.workload import Training


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Axes of parallelism a framework has no code for, and whether it runs DeepSpeed's ZeRO."""

    lacks: tuple[str, ...] = ()
    zero: bool = True
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
    "ms_swift": Limits(lacks=("pp",), source=_TRAINER),
    "peft_bench": Limits(lacks=_ALONE, zero=False, source="peft/method_comparison: one card"),
    "qwen_finetune": Limits(lacks=_ALONE, source="Qwen/finetune.py: the Trainer with DeepSpeed"),
    "torchtitan": Limits(zero=False, source="torchtitan 0.3, distributed/fsdp.py: FSDP2 only"),
    "torchtune": Limits(
        lacks=("pp", "ep"),
        zero=False,
        source="torchtune 0.6.1, recipes/full_finetune_distributed.py: tensor_parallel_dim, the rest is FSDP2",
    ),
    "trl": Limits(lacks=("pp",), source=_TRAINER),
    "unsloth": Limits(lacks=_ALONE, zero=False, source="unsloth: one process per card, DDP at most"),
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
    for axis in limits.lacks:
        if getattr(question.parallel, axis) > 1 and not (axis == "pp" and recipe.model_parallel.spread):
            raise QuestionError(_refusal(recipe.framework, axis))


def _refusal(framework: str, axis: str) -> str:
    other = "--framework megatron or torchtitan"
    spread = ", or --set spread=true for layers that device_map spreads over the cards" if axis == "pp" else ""
    return f"{framework} has no {_WORDS[axis]}: use {other}{spread}"
