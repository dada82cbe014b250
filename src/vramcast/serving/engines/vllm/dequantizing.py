"""The 16-bit copy that bitsandbytes makes of each 4-bit matrix slice before it multiplies more than one row by it.

Source: vllm/model_executor/layers/quantization/bitsandbytes.py apply_bnb_4bit: fused matrices are multiplied slice by slice
(q, k, v; gate, up), each dequantised whole by bitsandbytes' MatMul4Bit; a single row takes a kernel that reads 4 bits.
"""

from vramcast.models.inventory import Model
from vramcast.models.sharding import cut, share_shape
from vramcast.models.stages import Stage

_SCHEMES = ("nf4", "fp4", "bnb", "bitsandbytes")
_UNQUANTIZED = frozenset({"embedding", "head"})


def dequantizes(model: Model, quant: str | None) -> bool:
    """Whether the weights are bitsandbytes' 4 bits."""
    config = model.quantization or {}
    if quant is None:
        return config.get("quant_method") == "bitsandbytes" and bool(config.get("load_in_4bit", True))
    return quant.lower().startswith(_SCHEMES)


def widest_slice(stage: Stage, tp: int) -> int:
    """Elements of the largest slice of a layer's matrices on one rank."""
    shapes = (
        share_shape(tensor, cut(tp))
        for block, _ in stage.blocks
        for tensor in block.tensors
        if len(tensor.shape) == 2 and tensor.role not in _UNQUANTIZED
    )
    return max((rows * columns for rows, columns in shapes), default=0)
