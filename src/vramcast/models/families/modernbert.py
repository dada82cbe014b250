"""ModernBERT: a rotary encoder, one layer in three sees everything, the others a window around each token.

Source of names and shapes: transformers 5.23, modeling_modernbert.py.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense


class _Layer(msgspec.Struct, frozen=True):
    """How far a layer sees, and whether it normalises its input: the embedding is normalised already before the first."""

    window: int
    first: bool


def read(config: Config) -> Model:
    """A ModernBERT model with the head that ``architectures`` names."""
    hidden, task = config.size("hidden_size"), config.architecture
    prefix = "" if task == "ModernBertModel" else "model."
    every, window = config.size("global_attn_every_n_layers", default=3), config.size("local_attention", default=128)
    count = config.size("num_hidden_layers")
    layers = [_Layer(0 if i % every == 0 else window, i == 0) for i in range(count)]
    return parts.decoder(
        Config({**config.raw, "tie_word_embeddings": True}, config.path),
        hidden=hidden,
        blocks=parts.stack(layers, lambda layer: _block(config, hidden, layer, f"{prefix}layers.{{}}.")),
        embedding=f"{prefix}embeddings.tok_embeddings.weight",
        norm=norms(config, hidden, f"{prefix}embeddings.norm", f"{prefix}final_norm"),
        extra=_head(config, hidden, task),
    )


def norms(config: Config, hidden: int, *names: str) -> tuple[Tensor, ...]:
    """Layer norms, with a bias where the config says so."""
    return parts.norms(hidden, *names, bias=config.flag("norm_bias", default=False))


def feed_forward(config: Config, hidden: int) -> tuple[Dense, tuple[Tensor, ...]]:
    """ModernBERT's gated MLP, its two inputs one matrix."""
    kind = Dense(intermediate=config.size("intermediate_size"), activation=config.text("hidden_activation", default="gelu"))
    bias = config.flag("mlp_bias", default=False)
    return kind, (
        *parts.linear("mlp.Wi", 2 * kind.intermediate, hidden, "gate_up", shard=0, bias=bias),
        *parts.linear("mlp.Wo", hidden, kind.intermediate, "down", shard=1, bias=bias),
    )


def _block(config: Config, hidden: int, layer: _Layer, name: str) -> Block:
    heads = config.size("num_attention_heads")
    kind = Attention(heads=heads, kv_heads=heads, head_dim=max(1, hidden // heads), window=layer.window, causal=False)
    mlp, mlp_tensors = feed_forward(config, hidden)
    bias = config.flag("attention_bias", default=False)
    return Block(
        name=name,
        indices=(),
        mixers=(kind,),
        feedforward=mlp,
        tensors=(
            *parts.fused_attention(kind, hidden, qkv="attn.Wqkv", out="attn.Wo", bias=bias),
            *mlp_tensors,
            *norms(config, hidden, *(() if layer.first else ("attn_norm",)), "mlp_norm"),
        ),
    )


def _head(config: Config, hidden: int, task: str) -> tuple[Tensor, ...]:
    if task == "ModernBertModel":
        return ()
    bias = config.flag("classifier_bias", default=False)
    dense = (*parts.linear("head.dense", hidden, hidden, "head", shard=None, bias=bias), *norms(config, hidden, "head.norm"))
    if task.endswith("MaskedLM"):
        decoder = Tensor(name="decoder.bias", shape=(config.size("vocab_size"),), role="bias")
        tied = config.flag("tie_word_embeddings", default=True)
        matrix = () if tied else (Tensor(name="decoder.weight", shape=(config.size("vocab_size"), hidden), role="head", shard=0),)
        return (*dense, *matrix, *((decoder,) if config.flag("decoder_bias", default=True) else ()))
    named = config.raw.get("id2label")
    labels = len(named) if isinstance(named, dict) and named else config.size("num_labels", default=2)
    return (*dense, *parts.linear("classifier", labels, hidden, "head", shard=None, bias=True))
