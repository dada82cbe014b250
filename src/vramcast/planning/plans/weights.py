"""The weights a plan may serve: the checkpoint itself, its published quantised uploads, and what engines quantise at load."""

import msgspec

from vramcast.models.inventory import Model, by_identity
from vramcast.models.reading import read_model
from vramcast.serving.weights import storage_of

AT_LOAD = {"vllm": ("fp8",), "sglang": ("fp8",)}
"""Schemes that an engine makes of a 16-bit checkpoint while it loads it (vLLM docs, FP8; SGLang docs, online quantization)."""


GGUF = {"Q8_0": 8.50, "Q6_K": 6.56, "Q4_K_M": 4.89}
"""Types of GGUF files that publishers make of most models, with bits of a weight (llama.cpp, tools/quantize/README.md)."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """``model``: the checkpoint to load; ``quant``: the engine's flag, None for what it holds; ``bits``: mean of a weight."""

    model: Model
    quant: str | None
    name: str
    bits: float
    how: str
    gguf: bool = False

    def loads_in(self, engine: str) -> bool:
        """Whether the engine takes these weights: GGUF files are llama.cpp's, a scheme made at load is not every engine's."""
        if self.gguf or engine == "llama_cpp":
            return self.gguf and engine == "llama_cpp"
        return self.quant is None or self.quant in AT_LOAD.get(engine, ())


def weights_of(model: Model, *, least_bits: float) -> tuple[Weights, ...]:
    """The checkpoint's own first, then its uploads with fewer bits, then what is made at load; none below ``least_bits``."""
    own = _weights(model, None, "as published")
    found = [own]
    for name in published(model):
        upload = _weights(read_model(name), None, "a published upload")
        if upload.bits < own.bits - 1:
            found.append(upload)
    if own.bits > 12 and not any(6 < one.bits < 10 for one in found):
        found.append(_weights(model, "fp8", "made at load"))
    found += [Weights(model=model, quant=name, name=name, bits=bits, how="a GGUF file", gguf=True) for name, bits in GGUF.items()]
    return tuple(one for one in found if one is own or one.bits >= least_bits - 0.5)


def published(model: Model) -> tuple[str, ...]:
    """Ids of the catalogue's uploads of the same model in another quantisation."""
    from vramcast.models.names import take_apart
    from vramcast.models.reading import row_at
    from vramcast.models.reading.by_name import cores

    asked = take_apart(model.id)
    alike = (
        (key, place) for key, name, place in cores().get(asked.key, ())
        if name.variants == asked.variants and name.ending and name.ending != asked.ending and key != model.id.lower()
    )  # fmt: skip
    return tuple(dict.fromkeys(row_at(place).id for _, place in alike))


def _weights(model: Model, quant: str | None, how: str) -> Weights:
    dtype = "bfloat16" if model.dtype == "float32" else model.dtype
    storage = storage_of(model, quant=quant, dtype=dtype)
    return Weights(model=model, quant=quant, name=storage.name, bits=_mean_bits(model, quant, dtype), how=how)


@by_identity(most=64)
def _mean_bits(model: Model, quant: str | None, dtype: str) -> float:
    """Bits of a weight in the decoder's layers, scales included."""
    storage, held, elements = storage_of(model, quant=quant, dtype=dtype), 0.0, 0
    for block in model.blocks:
        for tensor in block.tensors:
            held += block.count * storage.share_bytes(tensor, tensor.elements, block=block)
            elements += block.count * tensor.elements
    return 8 * held / elements if elements else 16.0
