"""GGUF metadata -> Model: the header's ``<arch>.*`` keys are renamed to those of a config.json, which its family then reads.

A GGUF header says what llama.cpp needs and no more, so a few facts come from outside: whether ``output.weight`` is stored
(else the head is the embedding) and the number of tokens when only the tokenizer's list holds it. Key names: llama.cpp,
src/llama-arch.cpp and gguf-py/gguf/constants.py; what each converter writes: conversion/*.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from vramcast.errors import ConfigError, unknown_name
from vramcast.models.config import Config
from vramcast.models.families import read_config
from vramcast.models.families.gguf_architectures import ARCHITECTURES, Architecture
from vramcast.models.inventory import Model

Raw = dict[str, Any]
_SIGMOID = 2
"""``expert_gating_func`` of DeepSeek-V3 and after; its predecessors use softmax and have no correction bias."""

_COMMON = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
    "num_experts_per_tok": "expert_used_count",
    "vocab_size": "vocab_size",
}


def read_metadata(metadata: Mapping[str, Any], *, tied: bool | None = None, vocab: int | None = None) -> Model:
    """The model described by a GGUF header's key-value pairs (values typed, or as the text a load log prints).

    ``tied``: the file has no ``output.weight``. ``vocab``: number of tokens, when the header was read without its tokenizer.
    Raises QuestionError for an architecture that is not in the table and ConfigError for a missing or impossible key.
    """
    raw = config_of(metadata, tied=tied, vocab=vocab)
    model = read_config(raw, path="GGUF metadata")
    name = str(metadata.get("general.name", ""))
    return msgspec.structs.replace(model, id=model.id or name, loaded_from=model.loaded_from or "GGUF metadata")


def config_of(metadata: Mapping[str, Any], *, tied: bool | None = None, vocab: int | None = None) -> Raw:
    """The config.json that says the same as these GGUF keys."""
    name = str(metadata.get("general.architecture", ""))
    if name not in ARCHITECTURES:
        raise unknown_name("GGUF architecture", name, ARCHITECTURES)
    row = ARCHITECTURES[name]
    fields = _Fields(metadata, name)
    raw = _renamed(row, fields)
    raw["vocab_size"] = vocab or raw.get("vocab_size") or _token_count(metadata)
    if tied is not None:
        raw["tie_word_embeddings"] = tied
    if row.special:
        _SPECIAL[row.special](raw, fields)
    return {key: value for key, value in raw.items() if value is not None}


def _renamed(row: Architecture, fields: "_Fields") -> Raw:
    raw: Raw = {"model_type": row.model_type, **row.fixed}
    for key, source in (_COMMON | row.keys).items():
        value = fields.get(source)
        if value is not None:
            raw[key] = value
    return raw


class _Fields:
    """The keys of one architecture, with load-log text turned back into numbers."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self._metadata, self._prefix = metadata, architecture + "."

    def get(self, key: str, default: Any = None) -> Any:
        return _typed(self._metadata.get(self._prefix + key, default))

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise ConfigError(f"GGUF metadata has no {self._prefix}{key}: is this header complete?")
        return value

    def number(self, key: str) -> int:
        """A whole number, the largest when the header holds one per layer."""
        value = self.need(key)
        return Config({key: max(value) if isinstance(value, list) and value else value}, "GGUF metadata").integer(key)

    def per_layer(self, key: str) -> list[Any]:
        """One value per layer, whether the header holds a list or one number."""
        value, layers = self.need(key), self.number("block_count")
        return [*value[:layers]] if isinstance(value, list) else [value] * layers


def _typed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("[") and text.endswith("]") and "..." not in text:
        return [_typed(part) for part in text[1:-1].split(",")[:100_000]]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _token_count(metadata: Mapping[str, Any]) -> int | None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, int):
        return tokens
    return len(tokens) if isinstance(tokens, list | tuple) else None


def _mixtral(raw: Raw, fields: _Fields) -> None:
    if fields.get("expert_count"):
        raw.update(model_type="mixtral", num_local_experts=fields.need("expert_count"))


def _latent(raw: Raw, fields: _Fields) -> None:
    rope = fields.number("rope.dimension_count")
    keys = fields.get("attention.key_length_mla") or fields.number("attention.key_length")
    if raw["model_type"] == "deepseek_v3" and fields.get("expert_gating_func", 1) != _SIGMOID:
        raw["model_type"] = "deepseek_v2"
    raw.update(
        qk_rope_head_dim=rope,
        qk_nope_head_dim=keys - rope,
        v_head_dim=fields.get("attention.value_length_mla") or fields.number("attention.value_length"),
        kv_lora_rank=fields.need("attention.kv_lora_rank"),
        q_lora_rank=fields.get("attention.q_lora_rank") or None,
        num_key_value_heads=raw["num_attention_heads"],
        head_dim=None,
    )


def _delta(raw: Raw, fields: _Fields) -> None:
    values = fields.number("ssm.time_step_rank")
    interval = fields.get("full_attention_interval", 4)
    layers = fields.number("block_count")
    raw.update(
        linear_num_value_heads=values,
        linear_num_key_heads=fields.need("ssm.group_count"),
        linear_key_head_dim=fields.need("ssm.state_size"),
        linear_value_head_dim=fields.number("ssm.inner_size") // max(1, values),
        linear_conv_kernel_dim=fields.need("ssm.conv_kernel"),
        full_attention_interval=interval,
        layer_types=["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(layers)],
    )


def _mamba1(raw: Raw, fields: _Fields) -> None:
    raw.update(
        state_size=fields.need("ssm.state_size"),
        conv_kernel=fields.need("ssm.conv_kernel"),
        time_step_rank=fields.need("ssm.time_step_rank"),
        expand=fields.number("ssm.inner_size") // fields.number("embedding_length"),
        intermediate_size=fields.number("ssm.inner_size"),
    )


def _mamba2(raw: Raw, fields: _Fields) -> None:
    inner, heads = fields.number("ssm.inner_size"), fields.number("ssm.time_step_rank")
    raw.update(
        state_size=fields.need("ssm.state_size"),
        conv_kernel=fields.need("ssm.conv_kernel"),
        n_groups=fields.get("ssm.group_count", 1),
        num_heads=heads,
        head_dim=inner // max(1, heads),
        expand=inner / fields.number("embedding_length"),
    )


def _pattern_hybrid(raw: Raw, fields: _Fields) -> None:
    """Nemotron-H: a layer with KV heads is attention, one with a feed-forward width an MLP or experts, else Mamba 2."""
    heads, widths = fields.per_layer("attention.head_count_kv"), fields.per_layer("feed_forward_length")
    sparse = "E" if fields.get("expert_count") else "-"
    marks = ("*" if h else (sparse if w else "M") for h, w in zip(heads, widths, strict=True))
    inner, ssm_heads = fields.number("ssm.inner_size"), fields.number("ssm.time_step_rank")
    raw.update(
        hybrid_override_pattern="".join(marks),
        num_key_value_heads=max(heads),
        num_attention_heads=fields.number("attention.head_count"),
        intermediate_size=max(widths),
        ssm_state_size=fields.need("ssm.state_size"),
        conv_kernel=fields.need("ssm.conv_kernel"),
        n_groups=fields.need("ssm.group_count"),
        mamba_num_heads=ssm_heads,
        mamba_head_dim=inner // max(1, ssm_heads),
    )


def _mamba_mixed(raw: Raw, fields: _Fields) -> None:
    """Granite-4 and Falcon-H1: Mamba 2 beside or between attention layers (those with KV heads)."""
    heads = fields.per_layer("attention.head_count_kv")
    inner, ssm_heads = fields.number("ssm.inner_size"), fields.number("ssm.time_step_rank")
    raw.update(
        layer_types=["attention" if h else "mamba" for h in heads],
        num_key_value_heads=max(heads),
        num_attention_heads=fields.number("attention.head_count"),
        mamba_d_state=fields.need("ssm.state_size"),
        mamba_d_conv=fields.need("ssm.conv_kernel"),
        mamba_n_groups=fields.need("ssm.group_count"),
        mamba_n_heads=ssm_heads,
        mamba_d_head=inner // max(1, ssm_heads),
        mamba_d_ssm=inner,
        mamba_expand=inner / fields.number("embedding_length"),
    )


def _jamba(raw: Raw, fields: _Fields) -> None:
    heads = fields.per_layer("attention.head_count_kv")
    placed = [i for i, h in enumerate(heads) if h]
    period = placed[1] - placed[0] if len(placed) > 1 else len(heads)
    raw.update(
        attn_layer_period=period,
        attn_layer_offset=placed[0] if placed else 0,
        num_key_value_heads=max(heads),
        mamba_d_state=fields.need("ssm.state_size"),
        mamba_d_conv=fields.need("ssm.conv_kernel"),
        mamba_dt_rank=fields.need("ssm.time_step_rank"),
        mamba_expand=fields.number("ssm.inner_size") // fields.number("embedding_length"),
        num_experts=fields.get("expert_count", 1),
    )


def _searched(raw: Raw, fields: _Fields) -> None:
    """DeciLM: a layer without heads has no attention, without KV heads one linear layer instead, without a width no MLP."""
    lists = [fields.per_layer(key) for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length")]
    raw.update(
        num_attention_heads=fields.number("attention.head_count"),
        num_key_value_heads=None,
        intermediate_size=None,
        block_configs=[
            {
                "attention": {"n_heads_in_group": heads // kv} if kv else {"replace_with_linear" if heads else "no_op": True},
                "ffn": {"intermediate_size": width} if width else {"no_op": True},
            }
            for heads, kv, width in zip(*lists, strict=True)
        ],
    )


def _dbrx(raw: Raw, fields: _Fields) -> None:
    raw.update(
        d_model=raw["hidden_size"],
        n_heads=raw["num_attention_heads"],
        n_layers=raw["num_hidden_layers"],
        attn_config={"kv_n_heads": raw["num_key_value_heads"]},
        ffn_config={
            "ffn_hidden_size": raw["intermediate_size"],
            "moe_num_experts": fields.need("expert_count"),
            "moe_top_k": fields.need("expert_used_count"),
        },
    )


def _short_conv(raw: Raw, fields: _Fields) -> None:
    heads = fields.per_layer("attention.head_count_kv")
    raw.update(
        layer_types=["full_attention" if h else "conv" for h in heads],
        num_key_value_heads=max(heads),
        conv_L_cache=fields.need("shortconv.l_cache"),
        block_auto_adjust_ff_dim=False,
    )


def _windows(raw: Raw, fields: _Fields) -> None:
    """A window on some layers: the header's own pattern, else the architecture's period (src/models/<arch>.cpp)."""
    pattern = fields.get("attention.sliding_window_pattern") or raw.get("sliding_window_pattern")
    layers = fields.number("block_count")
    slides = pattern if isinstance(pattern, list) else [bool((i + 1) % int(pattern)) for i in range(layers)] if pattern else None
    if slides:
        raw["layer_types"] = ["sliding_attention" if s else "full_attention" for s in slides[:layers]]


_SPECIAL: dict[str, Callable[[Raw, _Fields], None]] = {
    "mixtral": _mixtral,
    "latent": _latent,
    "delta": _delta,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "pattern_hybrid": _pattern_hybrid,
    "mamba_mixed": _mamba_mixed,
    "jamba": _jamba,
    "short_conv": _short_conv,
    "searched": _searched,
    "dbrx": _dbrx,
    "windows": _windows,
}
