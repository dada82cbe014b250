"""The configs of models whose class is code beside the weights, as far as a decoder can stand for them in a trace."""

from functools import cache
from typing import Any

from vramcast.models.classes import model_class
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention, Dense
from vramcast.models.reading import load

MODEL_TYPE = "remote_decoder_stand_in"
_NORMS = 2  # before attention and before the MLP


@cache
def remote_config(name: str) -> dict[str, Any] | None:
    """The config of a stand-in for a model of that id; None where it is not catalogued, or a decoder cannot stand for it."""
    model = load(name)
    mixer = None if model is None else _plain(model)
    if model is None or mixer is None:
        return None
    sizes = {
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_layers": model.layers,
        "vocab_size": model.vocab,
    }
    heads = {"num_attention_heads": mixer.heads, "num_key_value_heads": mixer.kv_heads}
    lengths = dict.fromkeys(("max_position_embeddings", "seq_length", "model_max_length"), model.positions)
    own = {"model_type": MODEL_TYPE, "remote_type": model.text_class, "stands_for": name, "torch_dtype": model.dtype}
    return own | sizes | heads | lengths | {"tie_word_embeddings": False}


def _plain(model: Model) -> Attention | None:
    """The attention of a model of equal layers, full attention and a gated MLP in 16 bits, with nothing beside them."""
    remote = model_class(model.text_class).remote
    if remote is None or remote.alibi_width == model.hidden:
        return None
    if model.towers or len(model.blocks) != 1 or model.quantization is not None:
        return None
    block = model.blocks[0]
    mixer, mlp = block.mixers[0], block.feedforward
    usual = isinstance(mlp, Dense) and mlp.gated and mlp.activation == "silu"
    norms = sum(each.role == "norm" for each in block.tensors)
    if not usual or norms != _NORMS or len(block.mixers) > 1 or not isinstance(mixer, Attention):
        return None
    return mixer if mixer.causal and not (mixer.window or mixer.chunk or mixer.qk_norm) else None
