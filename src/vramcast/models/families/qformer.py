"""Q-Former (arXiv 2301.12597): learned queries that attend to what a tower saw or heard, through BERT's layers.

Source of names and shapes: transformers 5.23, modeling_blip_2.py and modeling_instructblip.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit
from vramcast.models.inventory import Block, Tensor, Tower

_STYLE = vit.Style(
    attention="attention.", separate=("attention.query", "attention.key", "attention.value"), out="output.dense",
    mlp=("intermediate_query.dense", "output_query.dense"),
    norms=("attention.output.LayerNorm", "output_query.LayerNorm"), rope=False,
)  # fmt: skip


def tower(config: Config, name: str, *, texts: bool = False) -> Tower:
    """The Q-Former of that config. ``texts``: it reads instructions too (InstructBLIP)."""
    hidden, every = config.size("hidden_size"), config.size("cross_attention_frequency", default=2)
    crossing = [i % every == 0 for i in range(config.size("num_hidden_layers"))]
    reads = texts or config.flag("use_qformer_text_input", default=False)
    blocks = parts.stack(crossing, lambda crosses: _block(config, hidden, name, crosses=crosses, texts=reads))
    normed = parts.norms(hidden, f"{name}embeddings.layernorm" if texts else f"{name}layernorm", bias=True)
    words = _words(config, hidden, name) if texts else ()
    return Tower(name=name, kind="projector", hidden=hidden, blocks=blocks, tensors=(*normed, *words))


def _words(config: Config, hidden: int, name: str) -> tuple[Tensor, ...]:
    return (
        Tensor(name=f"{name}embeddings.word_embeddings.weight", shape=(config.size("vocab_size"), hidden), role="embedding"),
        vit.table(f"{name}embeddings.position_embeddings.weight", config.size("max_position_embeddings"), hidden),
    )


def _block(config: Config, hidden: int, name: str, *, crosses: bool, texts: bool) -> Block:
    heads, inner = config.size("num_attention_heads"), config.size("intermediate_size")
    extra = (*(_cross(config, hidden) if crosses else ()), *(_text_half(hidden, inner) if texts else ()))
    return vit.block(f"{name}encoder.layer.{{}}.", 1, hidden, heads, intermediate=inner, style=_STYLE, extra=extra)


def _cross(config: Config, hidden: int) -> tuple[Tensor, ...]:
    seen, name = config.size("encoder_hidden_size"), "crossattention."
    return (
        *parts.linear(f"{name}attention.query", hidden, hidden, "q", shard=0, bias=True),
        *parts.linear(f"{name}attention.key", hidden, seen, "k", shard=0, bias=True),
        *parts.linear(f"{name}attention.value", hidden, seen, "v", shard=0, bias=True),
        *parts.linear(f"{name}output.dense", hidden, hidden, "o", shard=1, bias=True),
        *parts.norms(hidden, f"{name}output.LayerNorm", bias=True),
    )


def _text_half(hidden: int, inner: int) -> tuple[Tensor, ...]:
    return (
        *parts.linear("intermediate.dense", inner, hidden, "up", shard=0, bias=True),
        *parts.linear("output.dense", hidden, inner, "down", shard=1, bias=True),
        *parts.norms(hidden, "output.LayerNorm", bias=True),
    )
