"""Qwen4-Exp: gated delta net and indexed attention over several residual streams, with tables of token n-grams at some layers.

Source of names and shapes: transformers 5.23, modeling_qwen4_exp.py.
"""

from collections.abc import Iterator
from math import isqrt

import msgspec

from vramcast.errors import ConfigError
from vramcast.models.config import Config
from vramcast.models.families import gated_delta, parts, qwen_vl, state_space, wrapper
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Indexer, ShortConv

_KINDS = ("linear_attention", "indexed_attention", "full_attention")


def read(config: Config, *, prefix: str = "model.") -> Model:
    """A Qwen4-Exp model, or its decoder alone."""
    if config.text("model_type") == "qwen4_exp":
        text = wrapper.text_of(config, "qwen4_exp_text")
        tower = qwen_vl.vision(config, "qwen4_exp", "model.visual.")
        return wrapper.wrap(config, text, prefix="model.language_model.", towers=(tower,), tied=False)
    hidden = config.size("hidden_size")
    blocks = parts.stack(_pattern(config), lambda key: _layer(config, hidden, *key, name=f"{prefix}layers.{{}}."))
    last = _streams(config, hidden, f"{prefix}hyper_connection_mixer.", combines=False)
    return parts.decoder(config, hidden=hidden, prefix=prefix, blocks=blocks, norm=(), extra=last)


def _pattern(config: Config) -> list[tuple[str, int]]:
    """(kind, place among the layers with n-gram tables or -1) of each layer."""
    count, every = config.size("num_hidden_layers"), config.size("full_attention_interval", default=4)
    named = state_space.layer_kinds(config, "layer_types", _KINDS)
    kinds = config.per_layer("layer_types", count) if named else [_KINDS[(i + 1) % every == 0] for i in range(count)]
    tables = sorted(set(config.integers("ple_layer_ids", default=[])))
    if tables and not 1 <= tables[0] <= tables[-1] <= count:
        raise ConfigError(f"{config.path}: ple_layer_ids has {tables[0]} to {tables[-1]}, expected 1 to {count}")
    places = {layer - 1: place for place, layer in enumerate(tables)}
    return [(state_space.LEGACY.get(str(kind), str(kind)), places.get(i, -1)) for i, kind in enumerate(kinds)]


def _layer(config: Config, hidden: int, kind: str, place: int, *, name: str) -> Block:
    linear = kind == "linear_attention"
    mixer, mixer_tensors = gated_delta.delta(config, hidden) if linear else _attention(config, hidden)
    feed, feed_tensors = gated_delta.feed_forward(config, hidden, sparse=True)
    halves = (t for half in ("attn", "mlp") for t in _streams(config, hidden, f"{half}_hyper_connection.", combines=True))
    window = (_window(config, hidden),) if place >= 0 else ()
    return Block(
        name=name,
        indices=(),
        mixers=(mixer, *window),
        feedforward=feed,
        tensors=(*mixer_tensors, *feed_tensors, *halves, *(_grams(config, hidden, place) if window else ())),
    )


def _attention(config: Config, hidden: int) -> tuple[Attention, tuple[Tensor, ...]]:
    """Gated attention to the blocks of tokens that an indexer picks; it keeps one key for ``indexer_compress_ratio`` tokens."""
    kind, tensors = gated_delta.attention(config, hidden)
    heads, width = config.size("indexer_n_heads"), config.size("indexer_head_dim")
    name, keys = "self_attn.indexer.", config.size("indexer_kv_heads", default=1)
    indexer = Indexer(heads=heads, head_dim=width, top_k=config.size("indexer_budget"))
    return msgspec.structs.replace(kind, indexer=indexer), (
        *tensors,
        *parts.linear(f"{name}index_qk_proj", (heads + keys) * width, hidden, "indexer", shard=None),
        *parts.norms(width, f"{name}q_layernorm", f"{name}k_layernorm"),
    )


def _streams(config: Config, hidden: int, name: str, *, combines: bool) -> tuple[Tensor, ...]:
    """What mixes the residual streams into a half's input, by a matrix of low rank, and weighs its output back."""
    streams, rank = config.size("hc_count", default=4), config.size("hc_lowrank", default=320)
    width = streams * hidden
    return (
        *parts.norms(width, f"{name}hc_norm"),
        *parts.linear(f"{name}input_mix_weight_down", rank, width, "mixer", shard=None),
        *parts.linear(f"{name}input_mix_weight_up", width, rank, "mixer", shard=None),
        *(parts.linear(f"{name}block_inject_weight", streams, width, "mixer", shard=None) if combines else ()),
    )


def _window(config: Config, hidden: int) -> ShortConv:
    """What the dilated convolution over the tables' rows keeps."""
    reach = (config.size("ple_conv_kernel_size", default=4) - 1) * config.size("ngram_size", default=3)
    return ShortConv(width=config.size("hc_count", default=4) * hidden, conv=reach + 1)


def _grams(config: Config, hidden: int, place: int) -> tuple[Tensor, ...]:
    """A table of hashed n-grams: each head has a prime number of rows, the next primes for the next table."""
    wide, width = config.size("hc_count", default=4) * hidden, config.size("ple_embed_dim", default=hidden)
    orders, heads = config.size("ngram_size", default=3), (config.size("ngram_size", default=3) - 1)
    heads *= config.size("heads_per_ngram", default=8)
    if not heads or width % heads:
        raise ConfigError(f"{config.path}: ple_embed_dim is {width}, expected a multiple of {heads} n-gram heads")
    sizes = _primes(config.size("ngram_vocab_size_base", default=20_000_000), (place + 1) * heads)[place * heads :]
    step = config.size("make_ngram_vocab_size_divisible_by", default=128)
    rows, name = -(-sum(sizes) // step) * step, "ple."
    kernel = config.size("ple_conv_kernel_size", default=4)
    buffers = {"layer_multipliers": orders, "ngram_heads_vocab_sizes": heads, "ngram_heads_offsets": heads}
    return (
        Tensor(name=f"{name}ple_embedding.ngram_embedding.weight", shape=(rows, width // heads), role="embedding", shard=1),
        *(
            Tensor(name=f"{name}ple_embedding.{each}", shape=(size,), role="position", dtype="int64", kind="buffer")
            for each, size in buffers.items()
        ),
        *parts.linear(f"{name}key_proj", wide, width, "mixer", shard=None),
        *parts.linear(f"{name}value_proj", hidden, width, "mixer", shard=None),
        *parts.norms(wide, f"{name}norm_key", f"{name}norm_query", f"{name}norm_conv"),
        *state_space.convolution(f"{name}conv1d", wide, kernel, bias=False),
    )


def _primes(least: int, count: int) -> list[int]:
    """The first ``count`` primes from ``least`` on."""
    found = _prime_numbers(least)
    return [next(found) for _ in range(count)]


def _prime_numbers(number: int) -> Iterator[int]:
    while True:
        if number == 2 or (number > 2 and number % 2 and all(number % d for d in range(3, isqrt(number) + 1, 2))):
            yield number
        number += 1
