"""Fish Audio S2: a Qwen3 that writes one code of sound a step, and a small decoder that writes the other codes after it.

Source of fields and names: config.json and weight index of fishaudio/s2-pro, which this equals (9,123,704,832 bytes).
"""

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts, vit, wrapper
from vramcast.models.inventory import Block, Model, Tower
from vramcast.models.layers import Attention, Dense

_FIELDS = {
    "dim": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_local_heads": "num_key_value_heads",
    "max_seq_len": "max_position_embeddings",
}  # fmt: skip


def read(config: Config) -> Model:
    """A Fish Audio S2 model."""
    said, small = config.child("text_config"), config.child("audio_decoder_config")
    for each in (said, small):
        if each.flag("use_moe", default=False):
            raise UnmodelledError(f"{each.path}: use_moe is true; Fish Audio's experts have no rule")
    renamed = {new: said.raw[old] for old, new in _FIELDS.items() if said.has(old)}
    text = Config({**said.raw, **renamed, "model_type": "qwen3"}, said.path)
    tied = said.flag("tie_word_embeddings", default=True)
    return wrapper.wrap(config, text, prefix="text_model.model.", towers=(_codes(small),), tied=tied)


def _codes(config: Config) -> Tower:
    """The decoder of codes: one table for all codebooks, one of its own, a head."""
    name, width, words = "audio_decoder.", config.size("dim"), config.size("vocab_size")
    heads, inner = config.size("n_head"), config.size("intermediate_size")
    kind = Attention(heads=heads, kv_heads=config.size("n_local_heads", default=heads), head_dim=config.size("head_dim"))
    feed = Dense(intermediate=inner)
    normed = config.flag("attention_qk_norm", default=False)
    block = Block(
        name=f"{name}layers.{{}}.",
        indices=tuple(range(config.size("n_layer"))),
        mixers=(kind,),
        feedforward=feed,
        tensors=(
            *parts.fused_attention(kind, width, qkv="attention.wqkv", out="attention.wo"),
            *(parts.norms(kind.head_dim, "attention.q_norm", "attention.k_norm") if normed else ()),
            *parts.gated_mlp(feed, width, prefix="feed_forward.", names=("w1", "w3", "w2")),
            *parts.norms(width, "attention_norm", "ffn_norm"),
        ),
    )
    tensors = (
        vit.table(f"{name}codebook_embeddings.weight", config.size("num_codebooks") * words, config.size("text_dim")),
        vit.table(f"{name}embeddings.weight", words, width),
        *parts.norms(width, f"{name}norm"),
        *parts.linear(f"{name}output", words, width, "head", shard=0),
    )
    return Tower(name=name, kind="audio", hidden=width, blocks=(block,), tensors=tensors)
