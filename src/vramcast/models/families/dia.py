"""Dia: a text encoder and a decoder of several codebooks at once, both gated, with grouped attention.

Source of names and shapes: transformers 5.23, modeling_dia.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense

_ATTENTION = "self_attention."


def read(config: Config) -> Model:
    """A Dia model; its vocabulary is the codes of all channels."""
    heard = wrapper.part(config, "encoder_config", "dia_encoder")
    spoken = wrapper.part(config, "decoder_config", "dia_decoder")
    hidden, codes = spoken.size("hidden_size"), spoken.size("num_channels") * spoken.size("vocab_size")
    return parts.decoder(
        Config({**spoken.raw, **{k: config.raw[k] for k in ("architectures", "dtype", "torch_dtype") if config.has(k)},
                "model_type": "dia", "tie_word_embeddings": False}, config.path),
        hidden=hidden,
        vocab=codes,
        blocks=(_block(spoken, "model.decoder.layers.{}.", seen=heard.size("hidden_size")),),
        embedding="model.decoder.embeddings.embed.weight",
        norm=parts.norms(hidden, "model.decoder.norm"),
        head="logits_dense.weight",
        towers=(_encoder(heard),),
    )  # fmt: skip


def _encoder(config: Config) -> Tower:
    hidden, name = config.size("hidden_size"), "model.encoder."
    words = Tensor(name=f"{name}embedding.weight", shape=(config.size("vocab_size"), hidden), role="embedding")
    tensors = (words, *parts.norms(hidden, f"{name}norm"))
    return Tower(name=name, kind="encoder", hidden=hidden, blocks=(_block(config, f"{name}layers.{{}}."),), tensors=tensors)


def _block(config: Config, name: str, *, seen: int = 0) -> Block:
    """``seen``: how wide the encoder is that a decoder's layer attends to, 0 = this is the encoder's."""
    hidden, mlp = config.size("hidden_size"), Dense(intermediate=config.size("intermediate_size"))
    kind = _kind(config, "", causal=bool(seen))
    across = _kind(config, "cross_", causal=False) if seen else None
    normed = ("pre_sa_norm", "pre_ca_norm", "pre_mlp_norm") if seen else ("pre_sa_norm", "post_sa_norm")
    return Block(
        name=name,
        indices=tuple(range(config.size("num_hidden_layers"))),
        mixers=(kind,),
        cross=across,
        feedforward=mlp,
        tensors=(
            *parts.attention(kind, hidden, prefix=_ATTENTION),
            *(_cross(across, hidden, seen) if across else ()),
            *parts.fused_mlp(mlp, hidden),
            *parts.norms(hidden, *normed),
        ),
    )


def _kind(config: Config, which: str, *, causal: bool) -> Attention:
    return Attention(
        heads=config.size(f"{which}num_attention_heads"),
        kv_heads=config.size(f"{which}num_key_value_heads"),
        head_dim=config.size(f"{which}head_dim"),
        causal=causal,
    )


def _cross(kind: Attention, hidden: int, seen: int) -> tuple[Tensor, ...]:
    keys = kind.kv_heads * kind.head_dim
    return (
        *parts.linear("cross_attention.q_proj", kind.heads * kind.head_dim, hidden, "q", shard=0, groups=kind.heads),
        *(t for x in "kv" for t in parts.linear(f"cross_attention.{x}_proj", keys, seen, x, shard=0, groups=kind.kv_heads)),
        *parts.output(kind, hidden, "cross_attention.o_proj"),
    )
