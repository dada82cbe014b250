"""What is trained and beside what: adapters, parts of the model, quantised weights, and what preference training adds.

The bytes are those of ``models/quantization``, tensor by tensor; bitsandbytes, GPTQ and AWQ take their block from the recipe.
Whether a scheme can be trained beside is the quantiser's own word in transformers 5.23, src/transformers/quantizers
(``is_trainable``); Trainer refuses the others (trainer_utils.py, validate_quantization_for_training).
"""

from functools import cache
from math import prod
from typing import Literal

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.models.quantization.formats import ALIASES, NAMED, awq, bnb4, gptq
from vramcast.models.quantization.plan import Format
from vramcast.models.sharding import Stage
from vramcast.training.adapters.kinds import KINDS
from vramcast.training.adapters.prompts import PROMPT_KINDS
from vramcast.training.recipe.parts import Dtype, Recipe
from vramcast.workload import Adapter, Training

LOW_RANK = ("qlora", *KINDS)
PROMPTS = tuple(PROMPT_KINDS)


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """Training of some layers: how many by default, whether embedding and head too, and how deep backward reaches.

    ``spread``: every n-th layer instead of the last ones or of any; ``master``: dtype of a copy of the trained layers that the
    optimizer updates.
    """

    layers: int
    ends: bool
    whole_backward: bool
    spread: bool = False
    master: Literal[Dtype, ""] = ""
    source: str


PARTIALS = {
    "freeze": Partial(layers=2, ends=False, whole_backward=False, source="LLaMA-Factory: freeze_trainable_layers, the last ones"),
    "llama_pro": Partial(
        layers=8,
        ends=False,
        whole_backward=False,
        spread=True,
        source="arXiv 2401.02415; LLaMA-Factory, model/adapter.py: use_llama_pro trains every n-th layer of the expanded model",
    ),
    "lisa": Partial(layers=2, ends=True, whole_backward=True, source="arXiv 2403.17919: random layers and both ends"),
    "badam": Partial(
        layers=1,
        ends=False,
        whole_backward=True,
        master="float32",
        source="arXiv 2404.02827: one block at a time; badam 1.4, block_optim.py: updated through float32 copies",
    ),
}


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of training: sequences that one sample becomes, and further copies of the model beside the trained one.

    ``frozen``: copies only run forward (with an adapter, the reference is the same model with the adapter off);
    ``trained``: copies that are trained too; ``tenant``: share of the card that a co-located engine claims.
    """

    sequences: int = 1
    frozen: int = 0
    trained: int = 0
    tenant: float = 0.0
    source: str = ""


TASKS = {
    "sft": Task(source="one sequence, one model"),
    "pretrain": Task(source="one sequence, one model"),
    "dpo": Task(sequences=2, frozen=1, source="trl/trainer/dpo_trainer.py: chosen with rejected, a reference model"),
    "kto": Task(sequences=2, frozen=1, source="trl/trainer/kto_trainer.py: the KL batch beside the batch, a reference model"),
    "orpo": Task(sequences=2, source="trl/trainer/orpo_trainer.py: no reference model"),
    "reward": Task(sequences=2, source="trl/trainer/reward_trainer.py: chosen and rejected"),
    "ppo": Task(frozen=2, trained=1, source="trl/trainer/ppo_trainer.py: reference and reward models, a trained value model"),
    "grpo": Task(source="trl/trainer/grpo_config.py: beta 0, no reference model"),
    "grpo_colocated": Task(tenant=0.3, source="trl/trainer/grpo_config.py: vllm_mode colocate, vllm_gpu_memory_utilization 0.3"),
}


def kind_of(method: str) -> str:
    """full, frozen, partial or adapter. Raises QuestionError with the nearest names for a method without rules."""
    if method in ("full", "frozen"):
        return method
    if method in PARTIALS:
        return "partial"
    if method in LOW_RANK or method in PROMPTS:
        return "adapter"
    raise unknown_name("method", method, ("full", *PARTIALS, *LOW_RANK, *PROMPTS, *TASKS))


def named_by_task(question: Training) -> Training:
    """A task given as the method (dpo, grpo) trains everything, or the adapter that is given."""
    if question.method not in TASKS:
        return question
    method = "lora" if question.adapter else "full"
    return msgspec.structs.replace(question, method=method, options={"task": question.method} | question.options)


def adapter_of(question: Training) -> Adapter | None:
    """The adapter asked for, of the kind that the method names; None where the method trains none."""
    if kind_of(question.method) != "adapter":
        return None
    kind = question.method if question.method != "qlora" else "lora"
    rank = KINDS[kind].sizes.get("r") or 1 if kind in KINDS else 1
    given = question.adapter or Adapter(kind=kind, rank=rank)
    return msgspec.structs.replace(
        given, kind=kind if given.kind == "lora" != kind else given.kind, dora=given.dora or kind == "dora"
    )


def task_of(name: str) -> Task:
    """The row of a task. Raises QuestionError with the nearest names."""
    found = TASKS.get(name)
    if found is None:
        raise unknown_name("task", name, TASKS)
    return found


def last_layers(stage: Stage, wanted: int) -> Stage:
    """The stage cut to its last ``wanted`` layers."""
    kept: list[tuple[object, int]] = []
    for block, n in sorted(stage.blocks, key=lambda pair: -pair[0].indices[-1]):
        taken = min(n, wanted)
        wanted -= taken
        if taken:
            kept.append((block, taken))
    return msgspec.structs.replace(stage, blocks=tuple(kept))


BITSANDBYTES = ("nf4", "fp4", "int8")
LAYERS_ALONE = ("gptq", "gptq8", "gptq-int3", "gptq-int2", "awq")
"""Schemes of checkpoints that pack matrices of the decoder's layers and nothing beside them: towers stay in 16 bits.

Sources: AutoGPTQ 0.7.1, modeling/_base.py (layers_block_name; modeling/qwen.py: transformer.h); AutoAWQ 0.2.9, models/base.py
(get_model_layers; models/llava.py: language_model.model.layers).
"""
_SIZED = ("nf4", "fp4", "gptq", "gptq8", "awq")  # blocks as the recipe says
_NAMED = (
    "gptq-int3", "gptq-int2", "hqq", "hqq-int8", "hqq-int3", "hqq-int2", "eetq", "quanto-int8", "quanto-int4", "quanto-int2",
    "aqlm", "aqlm-2x8", "torchao-int8", "torchao-fp8", "fp8-block",
)  # fmt: skip
HELD = (*_SIZED, "int8", *_NAMED)
# What these words mean in training, where they differ from the names of storage rows.
_MEANINGS = {
    "llm.int8": "int8", "8bit": "int8", "bnb-8bit": "int8", "load-in-8bit": "int8", "gptq-int8": "gptq8", "gptq-8bit": "gptq8",
    "fp8": "fp8-tensor", "4bit": "nf4", "bnb-4bit": "nf4", "bnb-nf4": "nf4", "bitsandbytes": "nf4", "load-in-4bit": "nf4",
}  # fmt: skip
_NOT_TRAINED = "its quantiser in transformers does not support training: use nf4, int8 or hqq"
_IN_16_BITS = "count it in 16 bits: leave --quant out"
REFUSED = {
    **dict.fromkeys(
        ("mxfp4", "mxfp6", "mxfp8"), f"its kernels have no backward, so Mxfp4Config(dequantize=True) loads it; {_IN_16_BITS}"
    ),
    **dict.fromkeys(
        ("fp8-tensor", "fp8-channel", "fp8-static"),
        "the fp8 kernels of FBGEMM and compressed-tensors are for inference only: use fp8-block (FineGrainedFP8Config)",
    ),
    **dict.fromkeys(
        ("w4a16", "w4a16-asym", "w8a16"),
        f"compressed-tensors unpacks a layer at its first forward and keeps it so; {_IN_16_BITS}",
    ),
    **dict.fromkeys(("nvfp4", "auto-round", "quip#", "vptq", "bitnet"), _NOT_TRAINED),
    "torchao-int4": "torchao trains beside its 8-bit weights alone: use torchao-int8",
    **dict.fromkeys(("mlx-4bit", "mlx-8bit"), "MLX runs on Apple's GPUs: use nf4"),
}
# Frameworks that load a model through transformers, and so through any of its quantisers.
THROUGH_TRANSFORMERS = frozenset({
    "accelerate", "axolotl", "deepspeed", "hf_trainer", "llama_factory", "llama_recipes", "ms_swift", "nemo_automodel",
    "peft_bench", "pytorch", "qwen_finetune", "trl", "unsloth",
})  # fmt: skip
_EVERYWHERE = (*BITSANDBYTES, "gptq", "gptq8", "awq")


def word_of(name: str) -> tuple[str, bool]:
    """The recipe's word for a scheme as it was typed, and whether its scales are quantised too (``nf4-dq``)."""
    typed = name.strip().lower().replace("_", "-")
    found = _MEANINGS.get(typed) or (typed if typed in HELD else ALIASES.get(typed, typed))
    return found.removesuffix("-dq"), found.endswith("-dq")


def check_quantized(recipe: Recipe) -> None:
    """Raises QuestionError for a scheme that is none, or that this framework cannot train beside, with its reason."""
    name = recipe.quantization.scheme
    if not name:
        return
    if name in REFUSED:
        raise QuestionError(f"weights in {name} cannot be trained beside: {REFUSED[name]}")
    if name not in HELD:
        raise unknown_name("quant", name, (*HELD, *REFUSED))
    if name not in _EVERYWHERE and recipe.framework not in THROUGH_TRANSFORMERS:
        known = ", ".join(_EVERYWHERE)
        raise QuestionError(f"{recipe.framework} has no loader for {name}: use {known}, or --framework hf_trainer")


def storage_of(recipe: Recipe) -> Format:
    """The storage row of the recipe's frozen matrices; the recipe is checked and quantises."""
    return _row(recipe.quantization.scheme, recipe.quantization.quant_block, recipe.quantization.double_quant)


@cache
def _row(name: str, block: int, double: bool) -> Format:
    if name in ("nf4", "fp4"):
        return bnb4(name, double=double, block=block)
    if name in ("gptq", "gptq8"):
        return gptq(4 if name == "gptq" else 8, block)
    return awq(4, block) if name == "awq" else NAMED["llm.int8" if name == "int8" else name]


def code_width(recipe: Recipe) -> float:
    """Bytes of one element without its scales."""
    return storage_of(recipe).bits / 8 if recipe.quantization.scheme else 0.0


def scale_bytes(recipe: Recipe, shape: tuple[int, ...]) -> float:
    """Bytes of scales, zero points, indices and code books beside one matrix of that shape."""
    form = storage_of(recipe)
    return form.bytes_of(shape) - prod(shape) * form.bits / 8
