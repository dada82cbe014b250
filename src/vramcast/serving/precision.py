"""What the types of a question mean to an engine: the model's own, the one weights are loaded in, types that carry scales."""

from vramcast.models.inventory import Model


def loaded_dtype(model: Model, asked: str | None) -> str:
    """The type plain weights are loaded in: asked, or the checkpoint's, float32 ones being loaded in 16 bits.

    Source: vllm/config/model.py, sglang/srt/configs/model_config.py and tensorrt_llm/_torch/model_config.py alike.
    """
    if asked and not same_as_model(asked):
        return asked
    return "bfloat16" if model.dtype == "float32" else model.dtype


def same_as_model(dtype: str | None) -> bool:
    """Whether a type that was asked for says "the model's own"."""
    return dtype is None or dtype.lower() == "auto"


def scaled_bytes(name: str) -> float:
    """Bytes of an element with its share of a scale: ``nvfp4`` has one of 8 bits for 16 elements, ``mxfp8`` one for 32."""
    from vramcast.models.quantization.formats import NAMED

    return NAMED[name].per_element
