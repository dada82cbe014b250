"""What a model does before its first layer, as its tensors and its class tell it."""

from vramcast.models.classes import Layer, model_class
from vramcast.models.inventory import Model


def norms_embedding(model: Model) -> bool:
    """Whether a LayerNorm of the embeddings is where the stream begins (BERT, BART, bloom); autocast returns it in float32.

    Source: aten/autocast_mode.h: layer_norm is on the float32 list, and a sum of float32 and 16 bits is float32.
    """
    normed = [t.name for t in model.tensors if t.role == "norm" and "embed" in t.name]
    row = model_class(model.text_class).layer or Layer()
    return any(name.endswith("bias") for name in normed) or (bool(normed) and row.layer_norm)
