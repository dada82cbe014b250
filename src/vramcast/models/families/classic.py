"""GPT-2 and the decoders of its time: plain MLP, LayerNorm with bias, learned or ALiBi positions, fused or separate projections.

One row per class. Source of names, shapes and defaults: each class in transformers 5.23; phi-msft, Jais (BTLM's code) and MPT's
remote variants from the modeling file beside their checkpoints.
"""

from collections.abc import Callable

import msgspec

from vramcast.errors import ConfigError
from vramcast.models.config import Config
from vramcast.models.families import parts, spans
from vramcast.models.families.skeleton import Switch, rotary_width, switched
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense
from vramcast.untrusted import shown

_HIDDEN = ("n_embd", "hidden_size", "d_model", "n_embed")
_LAYERS = ("n_layer", "num_hidden_layers", "n_layers", "num_layers")
_HEADS = ("n_head", "num_attention_heads", "n_heads", "attention_heads", "num_heads")
_INNER = ("n_inner", "intermediate_size", "ffn_dim", "ffn_hidden_size", "dff")


class Classic(msgspec.Struct, frozen=True, kw_only=True):
    """Names of one class's tensors. ``qkv`` has one name (fused) or three; ``transposed``: weights are (input, output).

    ``gate`` names the second projection into the MLP where the activation multiplies two (Jais's SwiGLU).
    ``positions`` names the learned position table ("" = none), ``extra_positions`` its rows beyond the context. ``rotary``:
    queries and keys are turned; ``parallel``: attention and MLP read the same stream.
    """

    prefix: str = "transformer."
    layers: str = "h"
    embedding: str = "wte"
    positions: str = "wpe"
    extra_positions: int = 0
    rotary: bool = False
    embedding_norm: str = ""
    qkv: tuple[str, ...] = ("attn.c_attn",)
    out: str = "attn.c_proj"
    mlp: tuple[str, str] = ("mlp.c_fc", "mlp.c_proj")
    gate: str = ""
    qkv_bias: Switch = True
    out_bias: Switch = True
    mlp_bias: Switch = True
    norms: Callable[[Config], tuple[str, ...]] | tuple[str, ...] = ("ln_1", "ln_2")
    norm_bias: Switch = True
    qk_norms: tuple[str, ...] = ()
    final_norm: str = "ln_f"
    head: str = "lm_head"
    head_bias: bool = False
    tied: bool = True
    transposed: bool = False
    parallel: Switch = False
    kv_heads: Callable[[Config, int], int] = lambda config, heads: heads
    span: spans.Rule = spans.full


def read(config: Config, *, prefix: str = "") -> Model:
    """A model of the GPT-2 lineage. ``prefix`` replaces the class's own ("transformer.")."""
    style = STYLES[config.text("model_type")]
    base = prefix or style.prefix
    hidden, count = config.size(*_HIDDEN), config.size(*_LAYERS)
    bias, width = switched(config, style.norm_bias), config.size("word_embed_proj_dim", default=hidden)
    return parts.decoder(
        config,
        hidden=hidden,
        blocks=parts.stack(spans.of(config, count, style.span), lambda span: _block(config, style, span, base)),
        embedding=f"{base}{style.embedding}.weight",
        embedding_width=width,
        extra=(*_around(config, style, base, hidden), *_projected(base, hidden, width)),
        norm=parts.norms(hidden, f"{base}{style.final_norm}", bias=bias) if _ends_with_norm(config, style) else (),
        head=f"{style.head}.weight",
        head_bias=style.head_bias,
        tied=style.tied,
    )


def _projected(base: str, hidden: int, width: int) -> tuple[Tensor, ...]:
    """OPT-350M's embeddings are narrower than its layers: one projection into them, one out."""
    if width == hidden:
        return ()
    into = parts.linear(f"{base}project_in", hidden, width, "projector", shard=None)
    return (*into, *parts.linear(f"{base}project_out", width, hidden, "projector", shard=None))


def _ends_with_norm(config: Config, style: Classic) -> bool:
    """OPT has no final norm where the layers normalise afterwards."""
    before, removed = config.flag("do_layer_norm_before", default=True), config.flag("_remove_final_layer_norm", default=False)
    return bool(style.final_norm) and before and not removed


def _block(config: Config, style: Classic, span: spans.Span, base: str) -> Block:
    hidden, heads = config.size(*_HIDDEN), config.size(*_HEADS)
    head_dim = config.size("head_dim", default=max(1, hidden // heads))
    kind = Attention(
        heads=heads,
        kv_heads=style.kv_heads(config, heads),
        head_dim=head_dim,
        rope_dim=rotary_width(config, head_dim) if style.rotary and not config.flag("alibi", default=False) else 0,
        window=span.window,
        qk_norm=bool(style.qk_norms) and config.flag("qk_layernorm", default=False),
    )
    mlp = Dense(
        intermediate=config.size(*_INNER, default=hidden * _ratio(config)),
        gated=bool(style.gate) and config.text("activation_function", default="").endswith("glu"),
        activation=config.text("activation_function", "hidden_act", "activation", "afn", default="gelu"),
    )
    bias = switched(config, style.mlp_bias)
    tensors = (
        *_projections(config, style, kind, hidden),
        *parts.plain_mlp(mlp, hidden, *style.mlp, bias=bias),
        *(parts.linear(style.gate, mlp.intermediate, hidden, "gate", shard=0, bias=bias) if mlp.gated else ()),
    )
    norms = style.norms if isinstance(style.norms, tuple) else style.norms(config)
    return Block(
        name=f"{base}{style.layers}.{{}}.",
        parallel=switched(config, style.parallel),
        indices=(),
        mixers=(kind,),
        feedforward=mlp,
        tensors=(
            *(_transposed(tensors) if style.transposed else tensors),
            *parts.norms(hidden, *norms, bias=switched(config, style.norm_bias)),
            *(parts.norms(kind.head_dim, *style.qk_norms, bias=True) if kind.qk_norm else ()),
        ),
    )


def _ratio(config: Config) -> int:
    """The MLP's width over the hidden size when the config gives no width; 4, as in GPT."""
    return config.size("expansion_ratio", default=4)


def _projections(config: Config, style: Classic, kind: Attention, hidden: int) -> tuple[Tensor, ...]:
    bias, out_bias = switched(config, style.qkv_bias), switched(config, style.out_bias)
    if len(style.qkv) == 1:
        return parts.fused_attention(kind, hidden, qkv=style.qkv[0], out=style.out, bias=bias, out_bias=out_bias)
    width = kind.heads * kind.head_dim
    three = (
        parts.linear(name, width, hidden, role, shard=0, groups=kind.heads, bias=bias)
        for name, role in zip(style.qkv, "qkv", strict=True)
    )
    return (*(t for one in three for t in one), *parts.output(kind, hidden, style.out, bias=out_bias))


def _transposed(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """GPT-2's Conv1D keeps weights as (input, output)."""
    return tuple(
        msgspec.structs.replace(t, shape=t.shape[::-1], shard=None if t.shard is None else 1 - t.shard)
        if len(t.shape) == 2
        else t
        for t in tensors
    )


def _around(config: Config, style: Classic, base: str, hidden: int) -> tuple[Tensor, ...]:
    """What stands beside the embedding: learned positions, a norm."""
    tensors: tuple[Tensor, ...] = ()
    if style.positions:
        rows = parts.positions_of(config) + style.extra_positions
        tensors += (Tensor(name=f"{base}{style.positions}.weight", shape=(rows, hidden), role="position"),)
    return tensors + (parts.norms(hidden, f"{base}{style.embedding_norm}", bias=True) if style.embedding_norm else ())


def _bigcode_heads(config: Config, heads: int) -> int:
    return 1 if config.flag("multi_query", default=True) else heads


def _falcon_heads(config: Config, heads: int) -> int:
    """Falcon-7B has one KV head, the new architecture ``num_kv_heads``, the oldest as many as query heads."""
    if config.flag("new_decoder_architecture", default=False):
        return config.size("num_kv_heads", "n_head_kv", default=heads)
    return 1 if config.flag("multi_query", default=True) else heads


def _falcon_norms(config: Config) -> tuple[str, ...]:
    """One norm for both halves of a parallel layer, or one each under other names in the new architecture."""
    if not config.flag("parallel_attn", default=True):
        return ("input_layernorm", "post_attention_layernorm")
    new = config.flag("new_decoder_architecture", default=False)
    two = config.integer("num_ln_in_parallel_attn", default=2 if new else 1) == 2
    return ("ln_attn", "ln_mlp") if two else ("input_layernorm",)


def _mpt_heads(config: Config, heads: int) -> int:
    inner = config.optional_child("attn_config")
    kind = inner.text("attn_type", default="multihead_attention") if inner else "multihead_attention"
    if inner and kind == "grouped_query_attention":
        return inner.size("kv_n_heads")
    return 1 if kind == "multiquery_attention" else heads


def _codeshell_heads(config: Config, heads: int) -> int:
    """CodeShell groups its queries unless it says otherwise."""
    grouped = config.flag("group_query_attention", default=True)
    return config.size("num_query_groups", default=heads) if grouped else heads


def _neo_spans(config: Config, count: int) -> list[spans.Span]:
    """``attention_types``: [[["global", "local"], 12]] repeats a pattern; a local layer sees ``window_size`` tokens (GPT-Neo)."""
    window = spans.Span(window=config.size("window_size", default=256))
    names = config.per_layer("attention_layers", count) or _repeated(config, count)
    return [window if name == "local" else spans.FULL for name in names]


def _repeated(config: Config, count: int) -> list[str]:
    """The names of the layers from runs of a pattern and how often it comes."""
    names: list[str] = []
    for run in config.list("attention_types", default=[[["global", "local"], -(-count // 2)]]):
        match run:
            case [[*pattern], int(times)] if 0 <= times <= count:
                names += pattern * times
            case _:
                raise ConfigError(f"{config.path}: attention_types holds {shown(run)}, expected a pattern and a number")
    if len(names) < count:
        raise ConfigError(f"{config.path}: attention_types describes {len(names)} layers of {count}")
    return names[:count]


_NEOX = Classic(
    prefix="gpt_neox.", layers="layers", embedding="embed_in", positions="", rotary=True,
    parallel="use_parallel_residual", qkv=("attention.query_key_value",),
    out="attention.dense", mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), qkv_bias="attention_bias", out_bias="attention_bias",
    norms=("input_layernorm", "post_attention_layernorm"), final_norm="final_layer_norm", head="embed_out", tied=False,
)  # fmt: skip

STYLES: dict[str, Classic] = {
    "gpt2": Classic(transposed=True),
    "jais": Classic(transposed=True, positions="", gate="mlp.c_fc2"),
    "openai-gpt": Classic(embedding="tokens_embed", positions="positions_embed", transposed=True, final_norm=""),
    "gpt_bigcode": Classic(kv_heads=_bigcode_heads),
    "gpt_neo": Classic(
        qkv=("attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"), out="attn.attention.out_proj",
        qkv_bias=False, span=_neo_spans,
    ),
    "gptj": Classic(
        positions="", rotary=True, qkv=("attn.q_proj", "attn.k_proj", "attn.v_proj"), out="attn.out_proj",
        mlp=("mlp.fc_in", "mlp.fc_out"),
        qkv_bias=False, out_bias=False, norms=("ln_1",), head_bias=True, tied=False,
    ),
    "codegen": Classic(
        positions="", rotary=True, qkv=("attn.qkv_proj",), out="attn.out_proj", mlp=("mlp.fc_in", "mlp.fc_out"), qkv_bias=False,
        out_bias=False, norms=("ln_1",), head_bias=True, tied=False,
    ),
    "gpt_neox": _NEOX,
    "opt": Classic(
        prefix="model.decoder.", layers="layers", embedding="embed_tokens", positions="embed_positions", extra_positions=2,
        qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), out="self_attn.out_proj", mlp=("fc1", "fc2"),
        qkv_bias="enable_bias", out_bias="enable_bias", mlp_bias="enable_bias",
        norms=("self_attn_layer_norm", "final_layer_norm"), final_norm="final_layer_norm",
    ),
    "xglm": Classic(
        prefix="model.", layers="layers", embedding="embed_tokens", positions="",
        qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), out="self_attn.out_proj", mlp=("fc1", "fc2"),
        norms=("self_attn_layer_norm", "final_layer_norm"), final_norm="layer_norm",
    ),
    "biogpt": Classic(
        prefix="biogpt.", layers="layers", embedding="embed_tokens", positions="embed_positions", extra_positions=2,
        qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), out="self_attn.out_proj", mlp=("fc1", "fc2"),
        norms=("self_attn_layer_norm", "final_layer_norm"), final_norm="layer_norm", head="output_projection",
    ),
    "bloom": Classic(
        embedding="word_embeddings", positions="", embedding_norm="word_embeddings_layernorm",
        qkv=("self_attention.query_key_value",), out="self_attention.dense", mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        norms=("input_layernorm", "post_attention_layernorm"),
    ),
    "mpt": Classic(
        layers="blocks", positions="", qkv=("attn.Wqkv",), out="attn.out_proj", mlp=("ffn.up_proj", "ffn.down_proj"),
        qkv_bias=False, out_bias=False, mlp_bias=False, norms=("norm_1", "norm_2"), norm_bias=False, final_norm="norm_f",
        kv_heads=_mpt_heads,
    ),
    "falcon": Classic(
        embedding="word_embeddings", positions="", rotary=True, qkv=("self_attention.query_key_value",),
        out="self_attention.dense",
        mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), qkv_bias="bias", out_bias="bias", mlp_bias="bias", norms=_falcon_norms,
        kv_heads=_falcon_heads,
    ),
    "phi-msft": Classic(
        prefix="", layers="transformer.h", embedding="transformer.embd.wte", positions="", rotary=True, qkv=("mixer.Wqkv",),
        out="mixer.out_proj", mlp=("mlp.fc1", "mlp.fc2"), norms=("ln",), final_norm="lm_head.ln",
        head="lm_head.linear", head_bias=True, tied=False,
    ),
    "rugpt3xl": Classic(
        prefix="model.", layers="layers", embedding="embed_tokens", positions="embed_positions",
        qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), out="self_attn.o_proj",
        mlp=("mlp.up_proj", "mlp.down_proj"), norms=("input_layernorm", "post_attention_layernorm"), final_norm="norm", tied=True,
    ),
    "persimmon": Classic(
        prefix="model.", layers="layers", embedding="embed_tokens", positions="", rotary=True, qkv=("self_attn.query_key_value",),
        out="self_attn.dense", mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        norms=("input_layernorm", "post_attention_layernorm"), qk_norms=("self_attn.q_layernorm", "self_attn.k_layernorm"),
        final_norm="final_layernorm", tied=False,
    ),
    "kclgpt": Classic(positions="", rotary=True, kv_heads=_codeshell_heads, tied=False),
    "ctrl": Classic(
        embedding="w", positions="", qkv=("multi_head_attention.Wq", "multi_head_attention.Wk", "multi_head_attention.Wv"),
        out="multi_head_attention.dense", mlp=("ffn.0", "ffn.2"), norms=("layernorm1", "layernorm2"), final_norm="layernorm",
        head_bias=True,
    ),
}  # fmt: skip
# Phi-1.5 and Phi-2 in their first code: the same layers, numbered from the embedding on.
STYLES["mixformer-sequential"] = STYLES["phi-msft"]
