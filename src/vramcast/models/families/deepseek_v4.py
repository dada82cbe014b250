"""DeepSeek-V4: shared-key-value attention over a window plus compressed history, hyper-connections, experts in every layer.

Names are the checkpoint's own. Source: the DeepSeek-V4 report (section 2) and transformers 5.23, models/deepseek_v4.
"""

from typing import NamedTuple

from msgspec.structs import replace

from vramcast.errors import ConfigError, UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import STREAMS, Block, Model, Tensor, Tower
from vramcast.models.layers import Dense, Experts, Indexer, LatentAttention
from vramcast.models.rotary import FLOAT, TABLES

_RATES = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
_SPARSE_RATE = 4  # the rate whose layers select compressed tokens with an indexer
NAMES = ("w1", "w3", "w2")


class _Layer(NamedTuple):
    rate: int
    hashed: bool


def read(config: Config, *, prefix: str = "") -> Model:
    """DeepSeek-V4 Flash, Pro and their quantised copies; the draft layer is stored, not loaded."""
    hidden, streams = config.size("hidden_size"), config.size("hc_mult")
    width, layers = streams * hidden, _layers(config)
    model = parts.decoder(
        config,
        hidden=hidden,
        blocks=parts.stack(layers, lambda layer: _block(config, layer, f"{prefix}layers.{{}}.")),
        embedding=f"{prefix}embed.weight",
        norm=parts.norms(hidden, f"{prefix}norm"),
        head="head.weight",
        extra=hyper(f"{prefix}hc_head_", streams, width, scales=1),
        towers=_draft(config, hidden),
    )
    return replace(model, facts={TABLES: len({layer.rate > 0 for layer in layers}), FLOAT: 1, STREAMS: streams})


def in_sixteen_bits(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Matrices that every checkpoint leaves in 16 bits, whatever its scheme: inference/model.py beside the checkpoints says so.

    vLLM gives its own no scheme either (vllm/models/deepseek_v4/compressor.py, fused_wkv_wgate; the indexer's weights_proj).
    """
    return tuple(replace(tensor, dtype="bfloat16") for tensor in tensors)


def _layers(config: Config) -> list[_Layer]:
    count = config.size("num_hidden_layers")
    hashed = _hashed(config, count)
    return [_Layer(rate, is_hashed) for rate, is_hashed in zip(_rates(config, count), hashed, strict=True)]


def _rates(config: Config, count: int) -> list[int]:
    """Compression of each layer: ``layer_types``, else ``compress_ratios``, else 128 twice and then 128 and 4 in turn."""
    known = _known_rates(config)
    heavy = known["heavily_compressed_attention"]
    if config.has("layer_types"):
        names = [str(name) for name in config.list("layer_types")]
        if unknown := set(names) - set(known):
            raise UnmodelledError(f"{config.path}: layer_types has {min(unknown)[:40]!r}, known are {', '.join(known)}")
        rates = [known[name] for name in names]
    else:
        usual = [heavy, heavy, *(_SPARSE_RATE if i % 2 else heavy for i in range(count))]
        rates = config.integers("compress_ratios", default=usual)
    if unknown_rates := {str(rate) for rate in rates} - {str(rate) for rate in known.values()}:
        raise UnmodelledError(f"{config.path}: compress_ratios has {min(unknown_rates)[:20]}, known are 0, 4 and {heavy}")
    if len(rates) < count:
        raise ConfigError(f"{config.path}: {len(rates)} compress ratios for {count} layers")
    return rates[:count]


def _known_rates(config: Config) -> dict[str, int]:
    """Tokens that become one entry, by a layer's kind; transformers 5.23 lets a config say the heavy one (``compress_rates``)."""
    said = config.optional_child("compress_rates") or Config({}, config.path)
    own = {name: said.integer(name, default=rate) for name, rate in _RATES.items() if rate}
    if own["compressed_sparse_attention"] != _SPARSE_RATE or own["heavily_compressed_attention"] in (0, _SPARSE_RATE):
        raise UnmodelledError(f"{config.path}: compress_rates are {own}; sparse layers are known here at a rate of 4")
    return {**_RATES, **own}


def _hashed(config: Config, count: int) -> list[bool]:
    """Layers whose experts are looked up by token id: ``mlp_layer_types``, else the first ``num_hash_layers``."""
    names = config.per_layer("mlp_layer_types", count)
    if unknown := {str(name) for name in names} - {"hash_moe", "moe"}:
        raise UnmodelledError(f"{config.path}: mlp_layer_types has {min(unknown)[:40]!r}, known are 'hash_moe' and 'moe'")
    first = config.integer("num_hash_layers", default=3)
    return [name == "hash_moe" for name in names] or [i < first for i in range(count)]


def _attention(config: Config, rate: int) -> LatentAttention:
    """One vector per token serves as key and as value; its last ``qk_rope_head_dim`` entries are rotated."""
    width = config.size("head_dim")
    rope = config.size("qk_rope_head_dim", default=64)
    indexer = Indexer(heads=config.size("index_n_heads"), head_dim=config.size("index_head_dim"), top_k=config.size("index_topk"))
    return LatentAttention(
        heads=config.size("num_attention_heads"),
        query_rank=config.size("q_lora_rank"),
        kv_rank=width - rope,
        nope_dim=width - rope,
        rope_dim=rope,
        value_dim=width,
        window=config.size("sliding_window"),
        compression=rate,
        indexer=indexer if rate == _SPARSE_RATE else None,
    )


def _block(config: Config, layer: _Layer, name: str) -> Block:
    hidden, streams = config.size("hidden_size"), config.size("hc_mult")
    kind = _attention(config, layer.rate)
    mixture = experts(config)
    shared = Dense(intermediate=mixture.shared_intermediate)
    mixing = [hyper(f"hc_{part}_", (2 + streams) * streams, streams * hidden, scales=3) for part in ("attn", "ffn")]
    return Block(
        name=name,
        indices=(),
        mixers=(kind,),
        feedforward=mixture,
        tensors=(
            *attention_tensors(config, kind, hidden),
            *(_compressor("attn.compressor.", kind.head_dim, layer.rate, hidden) if layer.rate else ()),
            *(_indexer(kind, hidden) if kind.indexer else ()),
            *parts.router(mixture, hidden, "ffn.gate"),
            *_choice(config, mixture, hashed=layer.hashed),
            *parts.experts(mixture, hidden, prefix="ffn.experts.", names=NAMES),
            *parts.gated_mlp(shared, hidden, prefix="ffn.shared_experts.", role="shared.", names=NAMES),
            *parts.norms(hidden, "attn_norm", "ffn_norm"),
            *mixing[0],
            *mixing[1],
        ),
    )


def attention_tensors(config: Config, kind: LatentAttention, hidden: int) -> tuple[Tensor, ...]:
    """Low-rank queries, one key-value vector, and an output projection that is low-rank in ``o_groups`` groups of heads."""
    groups, rank = config.size("o_groups"), config.size("o_lora_rank")
    width = kind.heads * kind.head_dim
    return (
        *parts.sinks(kind, "attn.attn_sink"),
        *parts.linear("attn.wq_a", kind.query_rank, hidden, "q_a", shard=None),
        *parts.norms(kind.query_rank, "attn.q_norm"),
        *parts.linear("attn.wq_b", width, kind.query_rank, "q_b", shard=0, groups=kind.heads),
        *parts.linear("attn.wkv", kind.head_dim, hidden, "kv_a", shard=None),
        *parts.norms(kind.head_dim, "attn.kv_norm"),
        *parts.linear("attn.wo_a", groups * rank, width // groups, "o", shard=0, groups=groups),
        *parts.linear("attn.wo_b", hidden, groups * rank, "o", shard=1, groups=groups),
    )


def _compressor(prefix: str, head_dim: int, rate: int, hidden: int) -> tuple[Tensor, ...]:
    """Pools ``rate`` tokens into one entry; at rate 4 windows overlap, so that each token contributes to two."""
    width = head_dim * (2 if rate == _SPARSE_RATE else 1)
    return (
        Tensor(name=f"{prefix}ape", shape=(rate, width), role="state", dtype="float32"),
        *in_sixteen_bits(
            *parts.linear(f"{prefix}wkv", width, hidden, "kv_a", shard=None),
            *parts.linear(f"{prefix}wgate", width, hidden, "kv_a", shard=None),
        ),
        *parts.norms(head_dim, f"{prefix}norm"),
    )


def _indexer(kind: LatentAttention, hidden: int) -> tuple[Tensor, ...]:
    indexer = kind.indexer
    if indexer is None:
        return ()
    return (
        *_compressor("attn.indexer.compressor.", indexer.head_dim, kind.compression, hidden),
        *parts.linear("attn.indexer.wq_b", indexer.heads * indexer.head_dim, kind.query_rank, "indexer", shard=None),
        *in_sixteen_bits(*parts.linear("attn.indexer.weights_proj", indexer.heads, hidden, "indexer", shard=None)),
    )


def experts(config: Config) -> Experts:
    """Routed experts beside one shared expert of the same width."""
    width = config.size("moe_intermediate_size")
    return Experts(
        routed=config.size("n_routed_experts"),
        active=config.size("num_experts_per_tok"),
        intermediate=width,
        shared_intermediate=width,
    )


def _choice(config: Config, mixture: Experts, *, hashed: bool) -> tuple[Tensor, ...]:
    """What decides besides the router: a table from token id to experts, or the load-balancing bias."""
    if not hashed:
        return parts.correction(mixture, "ffn.gate.bias")
    shape = (config.size("vocab_size"), mixture.active)
    return (Tensor(name="ffn.gate.tid2eid", shape=shape, role="router", dtype="int64", kind="buffer"),)


def hyper(prefix: str, rows: int, width: int, *, scales: int) -> tuple[Tensor, ...]:
    """A hyper-connection: the projection of all residual streams that gives their mixing weights, kept in float32."""
    shapes = {"fn": (rows, width), "base": (rows,), "scale": (scales,)}
    return tuple(Tensor(name=f"{prefix}{n}", shape=shape, role="mixer", dtype="float32") for n, shape in shapes.items())


def _draft(config: Config, hidden: int) -> tuple[Tower, ...]:
    """Draft layers without compression; each of the two inputs has its projection, embedding and head are the model's."""
    count, streams = config.integer("num_nextn_predict_layers", default=0, most=64), config.size("hc_mult")
    if not count:
        return ()
    layer = _block(config, _Layer(rate=0, hashed=False), "mtp.{}.")
    joining = (
        *parts.linear("e_proj", hidden, hidden, "mixer", shard=None),
        *parts.linear("h_proj", hidden, hidden, "mixer", shard=None),
        *parts.norms(hidden, "enorm", "hnorm", "norm"),
        *hyper("hc_head_", streams, streams * hidden, scales=1),
    )
    block = Block(
        name=layer.name,
        indices=tuple(range(count)),
        mixers=layer.mixers,
        feedforward=layer.feedforward,
        tensors=(*layer.tensors, *joining),
    )
    return (Tower(name="mtp", kind="mtp", blocks=(block,), hidden=hidden, stored_only=True),)
