"""ModernBERT as a decoder: separate projections, a window on most layers, a dense layer before its tied head.

Source of names and shapes: transformers 5.23, modeling_modernbert_decoder.py.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, spans
from vramcast.models.families.modernbert import feed_forward, norms
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention

Key = tuple[spans.Span, bool]


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A ModernBERT decoder; the first layer's input is normalised already."""
    hidden, count = config.size("hidden_size"), config.size("num_hidden_layers")
    reach = spans.of(config, count, spans.every(config.size("global_attn_every_n_layers", default=3), first=True))
    blocks = parts.stack(
        [(span, i == 0) for i, span in enumerate(reach)], lambda key: _block(config, hidden, key, f"{prefix}layers.{{}}.")
    )
    return parts.decoder(
        config,
        hidden=hidden,
        blocks=blocks,
        embedding=f"{prefix}embeddings.tok_embeddings.weight",
        norm=norms(config, hidden, f"{prefix}embeddings.norm", f"{prefix}final_norm"),
        head="decoder.weight",
        tied=True,
        extra=_head(config, hidden),
    )


def _head(config: Config, hidden: int) -> tuple[Tensor, ...]:
    """The dense layer, then a bias for each word or a score for each label; the bare decoder has neither."""
    task, bias = config.architecture, config.flag("classifier_bias", default=False)
    if task.endswith("Model"):
        return ()
    scores = task.endswith("ForSequenceClassification")
    name = "head" if scores else "lm_head"
    dense = parts.linear(f"{name}.dense", hidden, hidden, "head", shard=None, bias=bias)
    normed = (*dense, *norms(config, hidden, f"{name}.norm"))
    if scores:
        labels = len(config.raw.get("id2label") or ()) or config.size("num_labels", default=2)
        return (*normed, *parts.linear("classifier", labels, hidden, "head", shard=None, bias=bias))
    if not config.flag("decoder_bias", default=True):
        return normed
    return (*normed, Tensor(name="decoder.bias", shape=(config.size("vocab_size"),), role="bias"))


def _block(config: Config, hidden: int, key: Key, name: str) -> Block:
    span, first = key
    heads = config.size("num_attention_heads")
    kind = Attention(heads=heads, kv_heads=heads, head_dim=max(1, hidden // heads), window=span.window)
    mlp, mlp_tensors = feed_forward(config, hidden)
    bias = config.flag("attention_bias", default=False)
    return Block(
        name=name,
        indices=(),
        mixers=(kind,),
        feedforward=mlp,
        tensors=(
            *parts.attention(kind, hidden, prefix="attn.", bias=bias, out="Wo"),
            *mlp_tensors,
            *norms(config, hidden, *(() if first else ("attn_norm",)), "mlp_norm"),
        ),
    )
