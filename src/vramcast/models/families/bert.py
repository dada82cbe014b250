"""BERT, RoBERTa and their kin: bidirectional encoders, one row of names each.

Source of names and shapes: transformers 5.23, the modeling file of each class.
"""

from collections.abc import Callable

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import encoder_heads, parts, vit
from vramcast.models.families.encoder_heads import Heads
from vramcast.models.inventory import Block, Model, Tensor

_BERT = vit.Style(
    attention="attention.", separate=("self.query", "self.key", "self.value"), out="output.dense",
    mlp=("intermediate.dense", "output.dense"), norms=("attention.output.LayerNorm", "output.LayerNorm"), rope=False,
)  # fmt: skip
_DISTIL = vit.Style(
    attention="attention.", separate=("q_lin", "k_lin", "v_lin"), out="out_lin", mlp=("ffn.lin1", "ffn.lin2"),
    norms=("sa_layer_norm", "output_layer_norm"), rope=False,
)  # fmt: skip
_MPNET = msgspec.structs.replace(
    _BERT, separate=("attn.q", "attn.k", "attn.v"), out="attn.o", norms=("attention.LayerNorm", "output.LayerNorm")
)
_MEGATRON = msgspec.structs.replace(_BERT, norms=("attention.ln", "ln"))
_ALBERT = vit.Style(
    attention="attention.", separate=("query", "key", "value"), out="dense", mlp=("ffn", "ffn_output"),
    norms=("full_layer_layer_norm", "attention.LayerNorm"), rope=False,
)  # fmt: skip
_ROTARY = vit.Style(
    out="o_proj", bias=False, out_bias=False, mlp=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), mlp_bias=False,
    norms=("post_attention_layernorm", "post_mlp_layernorm"),
)  # fmt: skip

Parts = Callable[[Config, int, str], tuple[Tensor, ...]]


class Encoder(msgspec.Struct, frozen=True, kw_only=True):
    """How one class names its layers and what stands beside them.

    ``narrow``: embeddings may be ``embedding_size`` wide and are then projected by the layer of that name.
    ``extra`` adds to a layer, ``beside`` to the encoder.
    """

    stem: str
    heads: Heads
    layers: str = "encoder.layer."
    style: vit.Style = _BERT
    positions: bool = True
    types: bool = True
    embedding_norm: bool = True
    narrow: str = ""
    extra: Parts | None = None
    beside: Parts | None = None


def read(config: Config) -> Model:
    """An encoder with the head that ``architectures`` names."""
    row = ENCODERS["jina_bert" if _is_jina(config) else config.text("model_type")]
    hidden = config.size("hidden_size", "dim", "n_embd")
    width = config.size("embedding_size", default=hidden) if row.narrow else hidden
    task = config.architecture
    name = "" if encoder_heads.is_bare(task) else f"{row.stem}."
    return parts.decoder(
        Config({**config.raw, "tie_word_embeddings": True}, config.path),
        hidden=hidden,
        blocks=_blocks(config, row, hidden, name),
        embedding=f"{name}embeddings.word_embeddings.weight",
        norm=_embedding_norm(row, hidden if _is_deberta(row) else width, name),
        extra=(
            *_around(config, row, (hidden, width), name),
            *(row.beside(config, hidden, name) if row.beside else ()),
            *encoder_heads.tensors(config, row.heads, task, hidden=hidden, width=width, name=name),
        ),
        embedding_width=width,
    )


def _embedding_norm(row: Encoder, width: int, name: str) -> tuple[Tensor, ...]:
    return parts.norms(width, f"{name}embeddings.LayerNorm", bias=True) if row.embedding_norm else ()


def _blocks(config: Config, row: Encoder, hidden: int, name: str) -> tuple[Block, ...]:
    """The layers; ALBERT has the weights of few and runs them over and over."""
    count = config.size("num_hidden_layers", "n_layers", "n_layer")
    if row.stem != "albert":
        return (_block(config, row, hidden, name, count),)
    own = min(count, config.size("num_hidden_groups", default=1) * config.size("inner_group_num", default=1))
    block = _block(config, row, hidden, name, own)
    again = msgspec.structs.replace(block, indices=tuple(range(own, count)), tensors=())
    return (block, again) if own < count else (block,)


def _block(config: Config, row: Encoder, hidden: int, name: str, count: int) -> Block:
    return vit.block(
        f"{name}{row.layers}{{}}.",
        count,
        hidden,
        config.size("num_attention_heads", "n_heads", "n_head"),
        intermediate=config.size("intermediate_size", "hidden_dim", "n_inner", default=4 * hidden),
        style=row.style,
        head_dim=config.integer("head_dim", default=0) if row.style.separate == _ROTARY.separate else 0,
        extra=row.extra(config, hidden, name) if row.extra else (),
    )


def _around(config: Config, row: Encoder, widths: tuple[int, int], name: str) -> tuple[Tensor, ...]:
    """Learned positions, token types, the projection of narrow embeddings."""
    hidden, width = widths
    inner = f"{name}embeddings."
    places, types = config.size("max_position_embeddings", default=512), config.integer("type_vocab_size", default=2)
    placed = row.positions and config.flag("position_biased_input", default=True)
    projected = parts.linear(f"{name}{row.narrow}", hidden, width, "projector", shard=None, bias=not _is_deberta(row))
    return (
        *((vit.table(f"{inner}position_embeddings.weight", places, width),) if placed else ()),
        *((vit.table(f"{inner}token_type_embeddings.weight", types, width),) if row.types and types else ()),
        *(projected if width != hidden else ()),
    )


def _is_jina(config: Config) -> bool:
    """Jina's BERT says it is a BERT: ALiBi for positions and a gated MLP tell it apart (modeling_bert.py of jina-bert-v2)."""
    return config.text("model_type") == "bert" and config.text("feed_forward_type", default="original") != "original"


def _jina(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    return (Tensor(name="mlp.wo.bias", shape=(hidden,), role="bias"),)


def _is_deberta(row: Encoder) -> bool:
    return row.stem == "deberta"


def _longformer(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    """Longformer's second projections for the tokens that see everything."""
    heads = config.size("num_attention_heads")
    names = ((f"attention.self.{each}_global", role) for each, role in (("query", "q"), ("key", "k"), ("value", "v")))
    return tuple(t for n, r in names for t in parts.linear(n, hidden, hidden, r, shard=0, groups=heads, bias=True))


def _gte(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    return (Tensor(name="mlp.down_proj.bias", shape=(hidden,), role="bias"),)


def _tasks(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    """ERNIE's embedding of the task it was trained for."""
    rows = config.size("task_type_vocab_size", default=3)
    told = config.flag("use_task_id", default=False)
    return (vit.table(f"{name}embeddings.task_type_embeddings.weight", rows, hidden),) if told else ()


def _last_norm(norm: str) -> Parts:
    return lambda config, hidden, name: parts.norms(hidden, f"{name}{norm}", bias=True)


def _boxes(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    """LayoutLM's positions of a word's box on the page."""
    rows = config.size("max_2d_position_embeddings", default=1024)
    return tuple(vit.table(f"{name}embeddings.{each}_position_embeddings.weight", rows, hidden) for each in "xyhw")


def _megatron(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    return parts.norms(hidden, f"{name}encoder.ln", bias=True)


def _mpnet(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    """MPNet's bias on attention by distance."""
    buckets = config.size("relative_attention_num_buckets", default=32)
    return (vit.table(f"{name}encoder.relative_attention_bias.weight", buckets, config.size("num_attention_heads")),)


def _distances(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    """DeBERTa's embeddings of distances, their norm, and version 2's convolution beside the first layer."""
    kernel, inner = config.integer("conv_kernel_size", default=0), f"{name}encoder."
    conv = vit.patches(f"{inner}conv.conv", hidden, hidden, kernel, bias=True) if kernel else ()
    if not config.flag("relative_attention", default=False):
        return conv
    farthest, buckets = config.raw.get("max_relative_positions"), config.integer("position_buckets", default=-1, least=-1)
    reach = farthest if isinstance(farthest, int) and farthest > 0 else config.size("max_position_embeddings", default=512)
    second = config.text("model_type") == "deberta-v2"
    normed = second and "layer_norm" in config.text("norm_rel_ebd", default="none")
    rows = 2 * (buckets if second and buckets > 0 else reach)
    return (
        vit.table(f"{inner}rel_embeddings.weight", rows, hidden),
        *(parts.norms(hidden, f"{inner}LayerNorm", bias=True) if normed else ()),
        *conv,
        *(parts.norms(hidden, f"{inner}conv.LayerNorm", bias=True) if kernel else ()),
    )


def _positional(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    """DeBERTa's projections of distances in each layer; version 2 shares the content's where ``share_att_key``."""
    if not config.flag("relative_attention", default=False):
        return ()
    kinds, own = str(config.raw.get("pos_att_type") or ""), "attention.self."
    if config.text("model_type") == "deberta-v2":
        if config.flag("share_att_key", default=False):
            return ()
        names = {"c2p": ("pos_key_proj", True), "p2c": ("pos_query_proj", True)}
    else:
        names = {"c2p": ("pos_proj", False), "p2c": ("pos_q_proj", True)}
    chosen = [names[kind] for kind in names if kind in kinds]
    return tuple(t for n, bias in chosen for t in parts.linear(f"{own}{n}", hidden, hidden, "mixer", shard=0, bias=bias))


_FUSED_DEBERTA = msgspec.structs.replace(_BERT, qkv="self.in_proj", bias=False)


def _deberta(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    """DeBERTa 1 joins its projections and keeps two biases beside them."""
    biases = tuple(Tensor(name=f"attention.self.{n}", shape=(hidden,), role="bias", shard=0) for n in ("q_bias", "v_bias"))
    return (*biases, *_positional(config, hidden, name))


_ROBERTA = Encoder(stem="roberta", heads=encoder_heads.ROBERTA)
_DEBERTA = Encoder(stem="deberta", heads=encoder_heads.DEBERTA, narrow="embeddings.embed_proj", beside=_distances)

_JINA = msgspec.structs.replace(
    _BERT, mlp=("mlp.gated_layers.gate", "mlp.gated_layers.up", "mlp.wo"), mlp_bias=False,
    norms=("attention.output.LayerNorm", "mlp.layernorm"),
)  # fmt: skip

ENCODERS: dict[str, Encoder] = {
    "jina_bert": Encoder(stem="bert", heads=encoder_heads.BERT, style=_JINA, positions=False, extra=_jina),
    "bert": Encoder(stem="bert", heads=encoder_heads.BERT),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "data2vec-text": msgspec.structs.replace(_ROBERTA, stem="data2vec_text"),
    "distilbert": Encoder(
        stem="distilbert", heads=encoder_heads.DISTIL, layers="transformer.layer.", style=_DISTIL, types=False
    ),
    "electra": Encoder(stem="electra", heads=encoder_heads.ELECTRA, narrow="embeddings_project"),
    "albert": Encoder(
        stem="albert", heads=encoder_heads.ALBERT, layers="encoder.albert_layer_groups.", style=_ALBERT,
        narrow="encoder.embedding_hidden_mapping_in",
    ),
    "mpnet": Encoder(stem="mpnet", heads=encoder_heads.ROBERTA, style=_MPNET, types=False, beside=_mpnet),
    "longformer": Encoder(stem="longformer", heads=encoder_heads.ROBERTA, extra=_longformer),
    "megatron-bert": Encoder(
        stem="bert", heads=encoder_heads.BERT, style=_MEGATRON, embedding_norm=False, beside=_megatron
    ),
    "ernie": Encoder(stem="ernie", heads=encoder_heads.ERNIE, beside=_tasks),
    "ibert": msgspec.structs.replace(_ROBERTA, stem="ibert"),
    "roberta-prelayernorm": msgspec.structs.replace(
        _ROBERTA, stem="roberta_prelayernorm", beside=_last_norm("LayerNorm"),
        style=msgspec.structs.replace(_BERT, norms=("attention.LayerNorm", "intermediate.LayerNorm")),
    ),
    "xlm-roberta-xl": msgspec.structs.replace(
        _ROBERTA, embedding_norm=False, beside=_last_norm("encoder.LayerNorm"),
        style=msgspec.structs.replace(_BERT, norms=("attention.self_attn_layer_norm", "LayerNorm")),
    ),
    "layoutlm": Encoder(stem="layoutlm", heads=encoder_heads.LAYOUTLM, beside=_boxes),
    "nomic_bert": Encoder(stem="nomic_bert", heads=encoder_heads.NOMIC, layers="layers.", style=_ROTARY, positions=False),
    "gte": Encoder(
        stem="gte", heads=encoder_heads.GTE, layers="layers.", positions=False, extra=_gte,
        style=msgspec.structs.replace(_ROTARY, bias=True, out_bias=True),
    ),
    "deberta": msgspec.structs.replace(_DEBERTA, style=_FUSED_DEBERTA, extra=_deberta),
    "deberta-v2": msgspec.structs.replace(
        _DEBERTA, extra=_positional,
        style=msgspec.structs.replace(_BERT, separate=("self.query_proj", "self.key_proj", "self.value_proj")),
    ),
}  # fmt: skip
