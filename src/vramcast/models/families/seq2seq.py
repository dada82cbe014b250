"""BART, Marian, NLLB, Whisper and their kin: an encoder, and a decoder that attends to it, with absolute positions.

Source of names and shapes: transformers 5.23, the modeling file of each class.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts, vit
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention

TEXT = vit.Style(mlp=("fc1", "fc2"), norms=("self_attn_layer_norm", "final_layer_norm"))
SPEECH = msgspec.structs.replace(TEXT, key_bias=False)
"""Whisper's keys have no bias."""


class Class(msgspec.Struct, frozen=True, kw_only=True):
    """What a class has outside its layers. ``norms``: of the embeddings, at the end; ``rows`` beyond the longest text.

    ``positions`` is "learned", "frozen" (sinusoidal, kept with the weights) or "" (computed).
    """

    norms: tuple[str, ...] = ()
    positions: str = "learned"
    rows: int = 0
    biased: bool = True


_BOTH = ("layernorm_embedding", "layer_norm")
_BART = Class(norms=_BOTH[:1], rows=2)
CLASSES: dict[str, Class] = {
    "bart": _BART,
    "mvp": _BART,
    "plbart": _BART,
    "mbart": Class(norms=_BOTH, rows=2),
    "marian": Class(positions="frozen"),
    "pegasus": Class(norms=_BOTH[1:], positions="frozen"),
    "m2m_100": Class(norms=_BOTH[1:], positions="", biased=False),
    "blenderbot": Class(norms=_BOTH[1:]),
    "blenderbot-small": Class(norms=_BOTH[:1]),
    "whisper": Class(norms=_BOTH[1:], biased=False),
}


def read(config: Config) -> Model:
    """An encoder-decoder, or its decoder alone; the encoder is a tower."""
    whisper, hidden = config.text("model_type") == "whisper", config.size("d_model")
    task = config.architecture
    alone = task.endswith("ForCausalLM")
    style = SPEECH if whisper else TEXT
    encoder = speech_encoder(config, "model.encoder.") if whisper else _text_encoder(config, hidden)
    count, heads = config.size("decoder_layers"), config.size("decoder_attention_heads")
    block = vit.block(
        "model.decoder.layers.{}.", count, hidden, heads, intermediate=config.size("decoder_ffn_dim"), style=style,
        extra=_cross(hidden, heads, style),
    )  # fmt: skip
    places = {"max_position_embeddings": config.size("max_target_positions", default=448)} if whisper else {}
    return parts.decoder(
        Config({**config.raw, **places}, config.path),
        hidden=hidden,
        vocab=config.size("decoder_vocab_size", "vocab_size"),
        blocks=(_decoding(block, heads, hidden),),
        embedding="model.decoder.embed_tokens.weight" if whisper or alone else "model.shared.weight",
        norm=_norms(config, hidden, "model.decoder."),
        head="proj_out.weight" if whisper else "lm_head.weight",
        tied=True,
        towers=() if alone else (encoder,),
        extra=(*_places(config, hidden), *_scores(config, hidden, task)),
    )


def _scores(config: Config, hidden: int, task: str) -> tuple[Tensor, ...]:
    """BART's classifier, of three labels unless it names its own (entailment); the ends of an answer."""
    if task.endswith("ForQuestionAnswering"):
        return parts.linear("qa_outputs", 2, hidden, "head", shard=None, bias=True)
    if not task.endswith("ForSequenceClassification"):
        return ()
    named = config.optional_child("id2label")
    labels = len(named.raw) if named else config.size("num_labels", default=3)
    dense = parts.linear("classification_head.dense", hidden, hidden, "head", shard=None, bias=True)
    return (*dense, *parts.linear("classification_head.out_proj", labels, hidden, "head", shard=None, bias=True))


def _decoding(block: Block, heads: int, hidden: int) -> Block:
    """That block made causal, with attention to the encoder."""
    kind = Attention(heads=heads, kv_heads=heads, head_dim=max(1, hidden // heads), rope_dim=0)
    return msgspec.structs.replace(block, mixers=(kind,), cross=msgspec.structs.replace(kind, causal=False))


def _cross(hidden: int, heads: int, style: vit.Style) -> tuple[Tensor, ...]:
    kind = Attention(heads=heads, kv_heads=heads, head_dim=max(1, hidden // heads))
    across = msgspec.structs.replace(style, attention="encoder_attn.")
    return (*vit.projections(kind, hidden, across), *parts.norms(hidden, "encoder_attn_layer_norm", bias=True))


def speech_encoder(config: Config, name: str) -> Tower:
    """Whisper's encoder: two convolutions over the spectrogram, frozen sinusoidal positions, equal layers."""
    hidden, bands = config.size("d_model"), config.size("num_mel_bins", default=80)
    places = config.size("max_source_positions", default=1500)
    return Tower(
        name=name,
        kind="audio",
        hidden=hidden,
        blocks=(encoder_layers(config, name, SPEECH),),
        tensors=(
            *vit.patches(f"{name}conv1", hidden, bands, 3, bias=True),
            *vit.patches(f"{name}conv2", hidden, hidden, 3, bias=True),
            Tensor(name=f"{name}embed_positions.weight", shape=(places, hidden), role="position", kind="frozen"),
            *parts.norms(hidden, f"{name}layer_norm", bias=True),
        ),
        facts={"positions": places},
    )


def encoder_layers(config: Config, name: str, style: vit.Style) -> Block:
    """The encoder's layers, bidirectional."""
    hidden, heads = config.size("d_model"), config.size("encoder_attention_heads")
    inner = config.size("encoder_ffn_dim")
    return vit.block(f"{name}layers.{{}}.", config.size("encoder_layers"), hidden, heads, intermediate=inner, style=style)


def _text_encoder(config: Config, hidden: int) -> Tower:
    name = "model.encoder."
    return Tower(
        name=name,
        kind="encoder",
        hidden=hidden,
        blocks=(encoder_layers(config, name, TEXT),),
        tensors=(*_text_places(config, hidden, name), *_norms(config, hidden, name)),
    )


def _class(config: Config) -> Class:
    return CLASSES[config.text("model_type")]


def _norms(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    return parts.norms(hidden, *(f"{name}{norm}" for norm in _class(config).norms), bias=True)


def _places(config: Config, hidden: int) -> tuple[Tensor, ...]:
    if config.text("model_type") == "whisper":
        return (vit.table("model.decoder.embed_positions.weight", config.size("max_target_positions", default=448), hidden),)
    bias = Tensor(name="final_logits_bias", shape=(1, config.size("vocab_size")), role="bias", kind="buffer")
    return (*_text_places(config, hidden, "model.decoder."), *((bias,) if _class(config).biased else ()))


def _text_places(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    """Learned positions, in BART two more than the longest text; Marian's and Pegasus's are sinusoidal and frozen."""
    kind = _class(config)
    rows, table = config.size("max_position_embeddings", default=1024) + kind.rows, f"{name}embed_positions.weight"
    if not kind.positions:
        return ()
    return (
        Tensor(name=table, shape=(rows, hidden), role="position", kind="frozen" if kind.positions == "frozen" else "parameter"),
    )
