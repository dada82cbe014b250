"""Classes that compute what Llama computes under other names: Baichuan, Qwen 1, ChatGLM, InternLM2, EXAONE 3, TeleChat, MiniMind.

Most are remote code: the source of names and shapes is the modeling file beside each checkpoint on the hub, checked
against their published weight indexes (Qwen-72B, ChatGLM3-6B, InternLM2.5-7B, TeleChat-7B and 12B) or element counts.
"""

import msgspec

from vramcast.errors import ConfigError
from vramcast.models.config import Config
from vramcast.models.families import parts, qwen_senses
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """What a class calls its tensors. ``qkv`` has one name, two (keys and values joined) or three, ``mlp`` two or three."""

    prefix: str = "transformer."
    layers: str = "layers"
    embedding: str
    qkv: tuple[str, ...]
    out: str
    mlp: tuple[str, ...]
    norms: tuple[str, str] = ("input_layernorm", "post_attention_layernorm")
    final_norm: str
    head: str = "lm_head"


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one config."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    down_bias: bool = False
    norm_bias: bool = False
    tied: bool = False
    gated: bool = True


def read(config: Config, *, prefix: str = "") -> Model:
    """A model of one of these classes. ``prefix`` replaces the class's own."""
    kind = config.text("model_type")
    older = {new: config.raw[old] for new, old in _OLDER.get(kind, ()) if config.has(old)}
    config = Config({**_ABSENT.get(kind, {}), **older, **config.raw}, config.path)
    sizes, names, extra = _READERS[kind](config)
    model = _built(config, sizes, msgspec.structs.replace(names, prefix=prefix or names.prefix), extra)
    return qwen_senses.with_tower(config, model) if any(config.has(sense) for sense in qwen_senses.FIELDS) else model


def _built(config: Config, sizes: Sizes, names: Names, extra: tuple[Tensor, ...]) -> Model:
    kind = Attention(heads=sizes.heads, kv_heads=sizes.kv_heads, head_dim=sizes.head_dim)
    mlp = Dense(intermediate=sizes.intermediate, gated=sizes.gated)
    layer, outer = (tuple(t for t in extra if ("{}" in t.name) == inside) for inside in (True, False))
    base = f"{names.prefix}{names.layers}.{{}}."
    block = Block(
        name=base,
        indices=tuple(range(sizes.layers)),
        mixers=(kind,),
        feedforward=mlp,
        tensors=(
            *_attention(sizes, names, kind),
            *_mlp(sizes, names, mlp),
            *parts.norms(sizes.hidden, *names.norms, bias=sizes.norm_bias),
            *(msgspec.structs.replace(t, name=t.name.removeprefix("{}.")) for t in layer),
        ),
    )
    return parts.decoder(
        config,
        hidden=sizes.hidden,
        vocab=sizes.vocab,
        blocks=(block,),
        embedding=f"{names.prefix}{names.embedding}.weight",
        norm=parts.norms(sizes.hidden, f"{names.prefix}{names.final_norm}", bias=sizes.norm_bias),
        head=f"{names.head}.weight",
        tied=sizes.tied,
        extra=outer,
    )


def _attention(sizes: Sizes, names: Names, kind: Attention) -> tuple[Tensor, ...]:
    bias, out_bias = sizes.qkv_bias, sizes.out_bias
    if len(names.qkv) == 1:
        return parts.fused_attention(kind, sizes.hidden, qkv=names.qkv[0], out=names.out, bias=bias, out_bias=out_bias)
    if len(names.qkv) == 2:
        query, joined = names.qkv
        rows, pieces = 2 * kind.kv_heads * kind.head_dim, ((kind.kv_heads * kind.head_dim, kind.kv_heads),) * 2
        both = parts.linear(joined, rows, sizes.hidden, "k", shard=0, groups=kind.kv_heads, bias=bias)
        return (
            *parts.linear(query, kind.heads * kind.head_dim, sizes.hidden, "q", shard=0, groups=kind.heads, bias=bias),
            *(msgspec.structs.replace(tensor, pieces=pieces) for tensor in both),
            *parts.output(kind, sizes.hidden, names.out, bias=out_bias),
        )
    heads = (kind.heads, kind.kv_heads, kind.kv_heads)
    three = (
        parts.linear(name, count * kind.head_dim, sizes.hidden, role, shard=0, groups=count, bias=bias)
        for name, role, count in zip(names.qkv, "qkv", heads, strict=True)
    )
    return (*(t for one in three for t in one), *parts.output(kind, sizes.hidden, names.out, bias=out_bias))


def _mlp(sizes: Sizes, names: Names, kind: Dense) -> tuple[Tensor, ...]:
    if len(names.mlp) == 3:
        gate, up, down = names.mlp
        into = parts.gated_mlp(kind, sizes.hidden, prefix="", bias=sizes.mlp_bias, names=(gate, up, down))
        last = Tensor(name=f"{down}.bias", shape=(sizes.hidden,), role="bias")
        return (*into, last) if sizes.down_bias and not sizes.mlp_bias else into
    up, down = names.mlp
    if not kind.gated:
        return parts.plain_mlp(kind, sizes.hidden, up, down, bias=sizes.mlp_bias)
    return (
        *parts.linear(up, 2 * kind.intermediate, sizes.hidden, "gate_up", shard=0, bias=sizes.mlp_bias),
        *parts.linear(down, sizes.hidden, kind.intermediate, "down", shard=1, bias=sizes.mlp_bias),
    )


Read = tuple[Sizes, Names, tuple[Tensor, ...]]

_BAICHUAN = Names(
    prefix="model.", embedding="embed_tokens", qkv=("self_attn.W_pack",), out="self_attn.o_proj",
    mlp=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), final_norm="norm",
)  # fmt: skip
_QWEN = Names(
    layers="h", embedding="wte", qkv=("attn.c_attn",), out="attn.c_proj", mlp=("mlp.w2", "mlp.w1", "mlp.c_proj"),
    norms=("ln_1", "ln_2"), final_norm="ln_f",
)  # fmt: skip
_CHATGLM = Names(
    layers="encoder.layers", embedding="embedding.word_embeddings", qkv=("self_attention.query_key_value",),
    out="self_attention.dense", mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), final_norm="encoder.final_layernorm",
    head="transformer.output_layer",
)  # fmt: skip
_CHATGLM1 = Names(
    embedding="word_embeddings", qkv=("attention.query_key_value",), out="attention.dense",
    mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), final_norm="final_layernorm",
)  # fmt: skip
_INTERNLM2 = Names(
    prefix="model.", embedding="tok_embeddings", qkv=("attention.wqkv",), out="attention.wo",
    mlp=("feed_forward.w1", "feed_forward.w3", "feed_forward.w2"), norms=("attention_norm", "ffn_norm"), final_norm="norm",
    head="output",
)  # fmt: skip
_EXAONE = Names(
    layers="h", embedding="wte", qkv=("attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"),
    out="attn.attention.out_proj", mlp=("mlp.c_fc_0", "mlp.c_fc_1", "mlp.c_proj"), norms=("ln_1", "ln_2"), final_norm="ln_f",
)  # fmt: skip
_PHI3SMALL = Names(
    prefix="model.", embedding="embed_tokens", qkv=("self_attn.query_key_value",), out="self_attn.dense",
    mlp=("mlp.up_proj", "mlp.down_proj"), final_norm="final_layernorm",
)  # fmt: skip
_TELECHAT_52B = Names(
    prefix="transformer.", layers="h", embedding="wte", qkv=("attn.c_attn",), out="attn.c_proj", mlp=("mlp.c_fc", "mlp.c_proj"),
    norms=("ln_1", "ln_2"), final_norm="ln_f",
)  # fmt: skip
_TELECHAT = Names(
    layers="h", embedding="word_embeddings", qkv=("self_attention.query", "self_attention.key_value"),
    out="self_attention.dense", mlp=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), final_norm="ln_f",
)  # fmt: skip
_MINIMIND = Names(
    prefix="", embedding="tok_embeddings", qkv=("attention.wq", "attention.wk", "attention.wv"), out="attention.wo",
    mlp=("feed_forward.w1", "feed_forward.w3", "feed_forward.w2"), norms=("attention_norm", "ffn_norm"), final_norm="norm",
    head="output",
)  # fmt: skip


def _sizes(config: Config, *, layers: str = "num_hidden_layers", inner: int = 0, **more: bool | int) -> Sizes:
    """The sizes under their usual names; ``inner`` and ``more`` replace what a class computes otherwise."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    usual = {
        "hidden": hidden,
        "layers": config.size(layers, "num_hidden_layers"),
        "heads": heads,
        "kv_heads": config.size("num_key_value_heads", default=heads),
        "head_dim": config.size("kv_channels", "head_dim", default=max(1, hidden // heads)),
        "intermediate": inner or config.size("intermediate_size"),
        "vocab": config.size("padded_vocab_size", "vocab_size"),
    }
    return msgspec.convert({**usual, **more}, Sizes)


def _baichuan(config: Config) -> Read:
    """Versions 1 and 2, rotary (7B) or ALiBi (13B): the same tensors."""
    return _sizes(config), _BAICHUAN, ()


def _qwen(config: Config) -> Read:
    """Each half of the gated MLP is ``intermediate_size`` / 2 wide; qkv has a bias whatever ``no_bias`` says."""
    plain = config.flag("no_bias", default=True)
    inner = config.size("intermediate_size") // 2
    return _sizes(config, inner=inner, qkv_bias=True, out_bias=not plain, mlp_bias=not plain), _QWEN, ()


def _chatglm(config: Config) -> Read:
    """ChatGLM2, 3 and GLM-4-9B; half of each head is rotated, its frequencies are stored."""
    if config.has("inner_hidden_size"):
        return _first_chatglm(config)
    if not config.has("ffn_hidden_size"):
        raise ConfigError(f"{config.path} has neither ffn_hidden_size (ChatGLM 2 and 3) nor inner_hidden_size (ChatGLM 1)")
    heads = config.size("num_attention_heads")
    grouped = config.flag("multi_query_attention", default=False)
    bias = config.flag("add_bias_linear", default=False)
    sizes = _sizes(
        config,
        layers="num_layers",
        inner=config.size("ffn_hidden_size"),
        kv_heads=config.size("multi_query_group_num") if grouped else heads,
        qkv_bias=bias or config.flag("add_qkv_bias", default=False),
        out_bias=bias,
        mlp_bias=bias,
    )
    frequencies = Tensor(name="transformer.rotary_pos_emb.inv_freq", shape=(sizes.head_dim // 4,), role="position", kind="buffer")
    return sizes, _CHATGLM, (frequencies,)


def _first_chatglm(config: Config) -> Read:
    """ChatGLM-6B: a plain MLP, biases everywhere, a tied head."""
    sizes = _sizes(
        config,
        layers="num_layers",
        inner=config.size("inner_hidden_size"),
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        norm_bias=True,
        tied=True,
        gated=False,
    )
    return sizes, _CHATGLM1, ()


def _internlm2(config: Config) -> Read:
    bias = config.flag("bias", default=False)
    return _sizes(config, qkv_bias=bias, out_bias=bias), _INTERNLM2, ()


def _exaone(config: Config) -> Read:
    return _sizes(config, layers="num_layers"), _EXAONE, ()


def _phi3small(config: Config) -> Read:
    """Biases everywhere, a tied head, and rotary frequencies stored with each layer."""
    sizes = _sizes(
        config,
        inner=config.size("ff_intermediate_size"),
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        norm_bias=True,
        tied=True,
    )
    frequencies = Tensor(
        name="{}.self_attn.rotary_emb.inv_freq", shape=(sizes.head_dim // 2,), role="position", kind="buffer", dtype="float32"
    )
    return sizes, _PHI3SMALL, (frequencies,)


def _telechat(config: Config) -> Read:
    """TeleChat and TeleChat2: keys and values in one tensor, biases on what leaves attention and MLP.

    TeleChat-52B has GPT-2's names and fields, no biases and a head of its own (its weight index, 105,665,020,032 bytes).
    """
    if config.has("n_embd"):
        sizes = _sizes(config, inner=config.size("n_inner"), tied=config.flag("tie_word_embeddings", default=False))
        mask = Tensor(name="{}.attn.masked_bias", shape=(1,), role="state", kind="buffer")
        return sizes, _TELECHAT_52B, (mask,)
    normed = config.flag("embed_layernorm", default=False)
    extra = parts.norms(config.size("hidden_size"), "transformer.word_embeddings_layernorm") if normed else ()
    tied = config.flag("tie_word_embeddings", default=True)
    return _sizes(config, out_bias=True, down_bias=True, tied=tied), _TELECHAT, extra


def _minimind(config: Config) -> Read:
    """MiniMind's first form: Llama's own names, a tied head, an MLP of 8/3 the width where the config gives none."""
    if config.flag("use_moe", default=False):
        raise ConfigError(f"{config.path}: use_moe is true; MiniMind's experts have no rule")
    step, hidden = config.size("multiple_of", default=64), config.size("hidden_size")
    inner = config.size("hidden_dim", default=-(-(8 * hidden // 3) // step) * step)
    return _sizes(config, inner=inner, tied=True), _MINIMIND, ()


# What a class takes where its config says nothing: Qwen 1 loads in bfloat16.
# Qwen's first configs (CodeFuse-DevOps) have GPT-2's names
_OLDER = {
    "qwen": (
        ("hidden_size", "n_embd"), ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"),
        ("intermediate_size", "ffn_hidden_size"), ("max_position_embeddings", "n_positions"),
    ),
    "telechat": (
        ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"), ("intermediate_size", "ffn_hidden_size"),
        ("hidden_size", "n_embd"), ("max_position_embeddings", "n_positions"),
    ),
    "minimind": (
        ("hidden_size", "dim"), ("num_hidden_layers", "n_layers"), ("num_attention_heads", "n_heads"),
        ("num_key_value_heads", "n_kv_heads"),
    ),
}  # fmt: skip
_ABSENT = {"qwen": {"torch_dtype": "bfloat16"}}

_READERS = {
    "baichuan": _baichuan,
    "qwen": _qwen,
    "chatglm": _chatglm,
    "internlm2": _internlm2,
    "exaone": _exaone,
    "phi3small": _phi3small,
    "telechat": _telechat,
    "minimind": _minimind,
}
