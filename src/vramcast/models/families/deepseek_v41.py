"""DeepSeek-V4.1: most layers read compressed entries that few of them write, and tables of n-grams stand beside two layers.

Names and shapes are the checkpoint's own, as the converters and engines that read it state them: ds4's GGUF converter
(build_plan), ik_llama.cpp pull request 2455 and transformers pull request 48721 (``deepseek_v41``), all of September 2026. A
layer in ``kv_source_layer_ids`` writes one entry for ``compress_ratios[i]`` tokens and the key of its indexer; those after it
attend to it, and keep only their own window. The vision tower, the draft layers and those windows are named, not counted.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import deepseek_v4, parts
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Dense, Indexer, LatentAttention

Layer = tuple[int, bool, bool]


def read(config: Config, *, prefix: str = "") -> Model:
    """DeepSeek-V4.1's decoder, nested in ``text_config`` or alone."""
    nested = config.optional_child("text_config")
    text = Config({**config.raw, **nested.raw}, nested.path) if nested else config
    hidden, count, streams = text.size("hidden_size"), text.size("num_hidden_layers"), text.size("hc_mult", default=4)
    model = parts.decoder(
        text,
        hidden=hidden,
        blocks=parts.stack(_layers(text, count), lambda layer: _block(text, layer, f"{prefix}layers.{{}}.")),
        embedding=f"{prefix}embed.weight",
        norm=parts.norms(hidden, f"{prefix}norm"),
        head="head.weight",
        towers=tuple(_tables(text, hidden, streams, prefix)),
    )
    notes = (*_not_counted(config, text), *_windows(text, model.blocks))
    own = {"family": "deepseek_v41", "wraps": "deepseek_v4", "unmodelled": (*model.unmodelled, *notes)}
    return msgspec.structs.replace(model, **own)


def _not_counted(config: Config, text: Config) -> tuple[str, ...]:
    """Parts of the checkpoint whose shapes no public converter states."""
    drafts = text.integer("num_nextn_predict_layers", default=0, most=64)
    seen = config.has("vision_config")
    return (
        *((f"{drafts} draft layers that the checkpoint stores",) if drafts else ()),
        *(("the vision tower and its aligner: shapes are not known here",) if seen else ()),
    )


def _windows(text: Config, blocks: tuple[Block, ...]) -> tuple[str, ...]:
    """The windows of layers that read another layer's entries: a bound of their bytes."""
    reading, width = sum(b.count for b in blocks if b.shares_cache), text.size("head_dim")
    kept = reading * text.size("sliding_window") * width * 2
    return (
        (f"windows of {reading} layers that read entries of others: {kept / 2**20:.0f} MiB a sequence in 16 bits",)
        if reading
        else ()
    )


def _layers(text: Config, count: int) -> list[Layer]:
    """(tokens of one entry that the layer writes, 0 = it writes none; whether it scores entries; whether gates pool them)."""
    rates = text.sizes("compress_ratios", count) or [0] * count
    writes, scores = (set(text.integers(name, default=[])) for name in ("kv_source_layer_ids", "index_source_layer_ids"))
    return [(rates[i] if i in writes else 0, i in scores, i in writes and rates[i] > 1) for i in range(count)]


def _attention(text: Config, layer: Layer) -> LatentAttention:
    rate, scores, _ = layer
    width, rope = text.size("head_dim"), text.size("qk_rope_head_dim", default=64)
    indexer = Indexer(heads=text.size("index_n_heads"), head_dim=text.size("index_head_dim"), top_k=text.size("index_topk"))
    return LatentAttention(
        heads=text.size("num_attention_heads"),
        query_rank=text.size("q_lora_rank"),
        kv_rank=width - rope,
        nope_dim=width - rope,
        rope_dim=rope,
        value_dim=width,
        window=text.size("sliding_window"),
        compression=rate,
        indexer=indexer if rate and scores else None,
    )


def _block(text: Config, layer: Layer, name: str) -> Block:
    hidden, streams = text.size("hidden_size"), text.size("hc_mult", default=4)
    kind, experts = _attention(text, layer), deepseek_v4.experts(text)
    mixing = (deepseek_v4.hyper(f"hc_{part}_", (2 + streams) * streams, streams * hidden, scales=3) for part in ("attn", "ffn"))
    shared = Dense(intermediate=experts.shared_intermediate)
    return Block(
        name=name,
        indices=(),
        mixers=(kind,),
        feedforward=experts,
        shares_cache=not layer[0],
        tensors=(
            *deepseek_v4.attention_tensors(text, kind, hidden),
            *_written(text, layer, kind, hidden),
            *parts.router(experts, hidden, "ffn.gate"),
            *parts.correction(experts, "ffn.gate.bias"),
            *(parts.correction(experts, "ffn.gate.bias_vl")),
            *parts.experts(experts, hidden, prefix="ffn.experts.", names=deepseek_v4.NAMES),
            *parts.gated_mlp(shared, hidden, prefix="ffn.shared_experts.", role="shared.", names=deepseek_v4.NAMES),
            *parts.norms(hidden, "attn_norm", "ffn_norm"),
            *(t for each in mixing for t in each),
        ),
    )


def _written(text: Config, layer: Layer, kind: LatentAttention, hidden: int) -> tuple[Tensor, ...]:
    """What makes compressed entries and their keys, and what scores them."""
    rate, scores, gated = layer
    width, keys, heads = kind.head_dim, text.size("index_head_dim"), text.size("index_n_heads")
    entries = (
        *deepseek_v4.in_sixteen_bits(
            *parts.linear("attn.compressor.wkv", width, hidden, "kv_a", shard=None),
            *(parts.linear("attn.compressor.wgate", width, hidden, "kv_a", shard=None) if gated else ()),
        ),
        *parts.norms(width, "attn.compressor.norm"),
        *parts.linear("attn.indexer.wk", keys, width, "indexer", shard=None),
        *parts.norms(keys, "attn.indexer.k_norm"),
    )
    scored = (
        *parts.linear("attn.indexer.wq_b", heads * keys, kind.query_rank, "indexer", shard=None),
        *deepseek_v4.in_sixteen_bits(*parts.linear("attn.indexer.weights_proj", heads, hidden, "indexer", shard=None)),
    )
    return (*(entries if rate else ()), *(scored if scores else ()))


def _tables(text: Config, hidden: int, streams: int, prefix: str) -> list[Tower]:
    """Tables of n-grams (engram): a row for each hashed n-gram, looked up by head, and what joins it to the streams."""
    width, heads = text.size("engram_head_dim", default=256), text.size("engram_n_heads", default=8)
    grams = text.size("engram_max_ngram_size", default=4) - 1
    places, rows = text.integers("engram_layer_ids", default=[]), text.integers("engram_num_embeddings", default=[])
    return [
        Tower(
            name=f"{prefix}layers.{place}.engram.",
            kind="engram",
            hidden=hidden,
            tensors=(
                Tensor(name=f"{prefix}layers.{place}.engram.embed.weight", shape=(held, width), role="embedding"),
                *(
                    Tensor(name=f"{prefix}layers.{place}.engram.{n}_weight", shape=(streams, hidden), role="norm")
                    for n in ("q", "k")
                ),
                *parts.linear(
                    f"{prefix}layers.{place}.engram.wkv", (streams + 1) * hidden, heads * grams * width, "mixer", shard=None
                ),
            ),
        )
        for place, held in zip(places, rows, strict=False)
    ]
