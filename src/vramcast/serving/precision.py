"""Bytes of one element by the names people and engines use for types."""

from vramcast.errors import unknown_name
from vramcast.models.inventory import Model

_BYTES = {
    "float32": 4.0, "fp32": 4.0, "float": 4.0,
    "bfloat16": 2.0, "bf16": 2.0, "float16": 2.0, "fp16": 2.0, "half": 2.0, "f16": 2.0,
    "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "float8_e4m3fn": 1.0, "float8_e5m2": 1.0, "int8": 1.0,
}  # fmt: skip


def element_bytes(dtype: str) -> float:
    """Bytes of one element; raises QuestionError for an unknown type, naming the nearest."""
    size = _BYTES.get(dtype.lower().removeprefix("torch."))
    if size is None:
        raise unknown_name("dtype", dtype, _BYTES)
    return size


# fp4 elements with one 8-bit scale for each 16 of them, and 8-bit ones with a scale for each 32
NVFP4_BYTES = 0.5 + 1 / 16
MXFP8_BYTES = 1 + 1 / 32


def loaded_dtype(model: Model, asked: str | None) -> str:
    """The type plain weights are loaded in: asked, or the checkpoint's, float32 ones being loaded in 16 bits.

    Source: vllm/config/model.py, sglang/srt/configs/model_config.py and tensorrt_llm/_torch/model_config.py alike.
    """
    if asked and not same_as_model(asked):
        return asked
    return "bfloat16" if model.dtype == "float32" else model.dtype


def same_as_model(dtype: str | None) -> bool:
    """Whether a cache type says "the model's own"."""
    return dtype is None or dtype.lower() == "auto"
