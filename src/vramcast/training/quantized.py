"""Weights that stay quantised while something beside them is trained: which storage rows can be, and what they take.

The bytes are those of ``models/quantization``, tensor by tensor; bitsandbytes, GPTQ and AWQ take their block from the recipe.
Whether a scheme can be trained beside is the quantiser's own word in transformers 5.23, src/transformers/quantizers
(``is_trainable``); Trainer refuses the others (trainer_utils.py, validate_quantization_for_training).
"""

from functools import cache
from math import prod

from vramcast.errors import QuestionError, unknown_name
from vramcast.models.quantization.formats import ALIASES, NAMED, awq, bnb4, gptq
from vramcast.models.quantization.scheme import Format
from vramcast.training.recipe.parts import Recipe

BITSANDBYTES = ("nf4", "fp4", "int8")
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
_THROUGH_TRANSFORMERS = frozenset({
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
    if name not in _EVERYWHERE and recipe.framework not in _THROUGH_TRANSFORMERS:
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
