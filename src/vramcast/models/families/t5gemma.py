"""T5Gemma and T5Gemma 2: Gemma's layers as an encoder and a decoder; the second sees, and attends to both in one attention.

Source of names and shapes: transformers 5.23, modeling_t5gemma.py and modeling_t5gemma2.py.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import parts, spans, vit, wrapper
from vramcast.models.families.class_defaults import completed
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense

_NORMS = ("pre_self_attn_layernorm", "post_self_attn_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
_CROSS = ("pre_cross_attn_layernorm", "post_cross_attn_layernorm")


def read(config: Config) -> Model:
    """A T5Gemma model; the encoder is a tower."""
    second = config.text("model_type") == "t5gemma2"
    decoder = _part(config, "decoder", "t5gemma2_decoder" if second else "t5_gemma_module")
    sent = _sent(config, second=second)
    blocks = _blocks(decoder, "model.decoder.", second=second, across=0 if second else sent.size("hidden_size"))
    hidden, tied = decoder.size("hidden_size"), config.flag("tie_word_embeddings", default=True)
    whole = {
        name: config.raw[name] for name in ("architectures", "dtype", "torch_dtype", "quantization_config") if config.has(name)
    }
    said = {**decoder.raw, **whole, "model_type": config.text("model_type"), "tie_word_embeddings": tied}
    model = parts.decoder(
        Config(said, config.path),
        hidden=hidden,
        blocks=blocks,
        embedding="model.decoder.embed_tokens.weight",
        norm=parts.norms(hidden, "model.decoder.norm"),
        head="lm_head.out_proj.weight",
        towers=_encoder(config, sent, second=second),
    )
    return _marked(model, hidden) if second else model


def _part(config: Config, name: str, kind: str) -> Config:
    return completed(config.optional_child(name) or Config({}, f"{config.path}: {name}"), kind, nested=True)


def _sent(config: Config, *, second: bool) -> Config:
    if not second:
        return _part(config, "encoder", "t5_gemma_module")
    outer = config.optional_child("encoder") or Config({}, f"{config.path}: encoder")
    return _part(outer, "text_config", "t5gemma2_text")


def _marked(model: Model, hidden: int) -> Model:
    """In T5Gemma 2 a vector marks the end of an image, one for each table of embeddings."""
    sides = ("model.encoder.text_model.",) if model.tied else ("model.encoder.text_model.", "model.decoder.")
    marks = (Tensor(name=f"{side}embed_tokens.eoi_embedding", shape=(hidden,), role="embedding") for side in sides)
    return msgspec.structs.replace(model, tensors=(*model.tensors, *marks))


def _encoder(config: Config, sent: Config, *, second: bool) -> tuple[Tower, ...]:
    name = "model.encoder.text_model." if second else "model.encoder."
    hidden = sent.size("hidden_size")
    table = Tensor(name=f"{name}embed_tokens.weight", shape=(sent.size("vocab_size"), hidden), role="embedding", shard=0)
    norm = parts.norms(hidden, f"{name}norm")
    blocks = _blocks(sent, name, second=second)
    shares = second and config.flag("tie_word_embeddings", default=True)
    tower = Tower(name=name, kind="encoder", hidden=hidden, blocks=blocks, tensors=norm if shares else (table, *norm))
    return (tower, *_eyes(config, hidden)) if second else (tower,)


def _eyes(config: Config, hidden: int) -> tuple[Tower, ...]:
    outer, name = config.optional_child("encoder") or Config({}, config.path), "model.encoder."
    seen = vit.tower(wrapper.part(outer, "vision_config", "siglip_vision_model"), f"{name}vision_tower.")
    projector = (
        Tensor(name=f"{name}multi_modal_projector.mm_input_projection_weight", shape=(seen.hidden, hidden), role="projector"),
        *parts.norms(seen.hidden, f"{name}multi_modal_projector.mm_soft_emb_norm"),
    )
    return seen, Tower(name=f"{name}multi_modal_projector.", kind="projector", tensors=projector)


def _blocks(config: Config, name: str, *, second: bool, across: int = 0) -> tuple[Block, ...]:
    reach = spans.of(config, config.size("num_hidden_layers"), spans.every(6 if second else 2))
    causal = "decoder" in name
    return parts.stack(
        reach, lambda span: _layer(config, span, f"{name}layers.{{}}.", normed=second, causal=causal, across=across)
    )


def _layer(config: Config, span: spans.Span, name: str, *, normed: bool, causal: bool, across: int) -> Block:
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    kind = Attention(
        heads=heads,
        kv_heads=config.size("num_key_value_heads", default=heads),
        head_dim=config.size("head_dim", default=256),
        window=span.window,
        causal=causal,
        qk_norm=normed,
        softcap=not normed,
    )
    cross = msgspec.structs.replace(kind, window=0, causal=False) if across else None
    feed = Dense(intermediate=config.size("intermediate_size"), activation="gelu_pytorch_tanh")
    bias = config.flag("attention_bias", default=False)
    return Block(
        name=name,
        indices=(),
        mixers=(kind,),
        feedforward=feed,
        cross=cross,
        tensors=(
            *parts.attention(kind, hidden, bias=bias),
            *(parts.norms(kind.head_dim, "self_attn.q_norm", "self_attn.k_norm") if normed else ()),
            *(_crossing(cross, hidden, across, bias=bias) if cross else ()),
            *parts.gated_mlp(feed, hidden),
            *parts.norms(hidden, *_NORMS, *(_CROSS if cross else ())),
        ),
    )


def _crossing(kind: Attention, hidden: int, across: int, *, bias: bool) -> tuple[Tensor, ...]:
    """Attention to the encoder, whose width may be another."""
    name, width, keys = "cross_attn.", kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
    return (
        *parts.linear(f"{name}q_proj", width, hidden, "q", shard=0, groups=kind.heads, bias=bias),
        *parts.linear(f"{name}k_proj", keys, across, "k", shard=0, groups=kind.kv_heads, bias=bias),
        *parts.linear(f"{name}v_proj", keys, across, "v", shard=0, groups=kind.kv_heads, bias=bias),
        *parts.output(kind, hidden, f"{name}o_proj", bias=bias),
    )
