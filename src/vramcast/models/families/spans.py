"""How far each layer of a stack sees: the whole context, a sliding window or its own chunk.

transformers 5 writes the pattern out as ``layer_types``; older configs give a period, a flag or a list of layers without rope,
and each class has its own rule when the list is absent. Source of each rule: the class's configuration file in transformers 5.23.
"""

from collections.abc import Callable

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer sees: ``window`` tokens back, or its ``chunk``; 0 and 0 = everything."""

    window: int = 0
    chunk: int = 0


FULL = Span()
# An indexed layer keeps every token and selects among them; a reference-sliding one keeps the prompt beside its window.
_WHOLE = {"full_attention", "reference_sliding_attention", "indexed_attention", "deepseek_sparse_attention", "minimax_m3_sparse"}
Rule = Callable[[Config, int], list[Span]]


def of(config: Config, count: int, rule: Rule) -> list[Span]:
    """The span of each of ``count`` layers: ``layer_types`` when the config has it, else the class's rule."""
    return listed(config, count) or rule(config, count)


def listed(config: Config, count: int) -> list[Span]:
    """The spans that ``layer_types`` spells out; entries beyond ``count`` belong to MTP layers."""
    return [_named(config, str(name)) for name in config.per_layer("layer_types", count)]


def _named(config: Config, name: str) -> Span:
    if name in _WHOLE:
        return FULL
    if name == "sliding_attention":
        config.size("sliding_window")
        return window_of(config)
    if name == "chunked_attention":
        return Span(chunk=config.size("attention_chunk_size"))
    raise UnmodelledError(f"{config.path}: layer_types has {name!r}, which this family has no rule for")


def window_of(config: Config) -> Span:
    """The sliding window, full attention when the config has none; Gemma's bidirectional models see half of it each way."""
    window = config.integer("sliding_window", default=0)
    both_ways = config.raw.get("use_bidirectional_attention") in (True, "all")
    return Span(window=window // 2 + 1 if both_ways and window else window)


def full(config: Config, count: int) -> list[Span]:
    """Every layer sees everything, whatever ``sliding_window`` says."""
    return [FULL] * count


def uniform(config: Config, count: int) -> list[Span]:
    """Every layer slides when ``sliding_window`` is set (Mistral)."""
    return [window_of(config)] * count


def every(period: int, *, first: bool = False) -> Rule:
    """The last (or ``first``) layer of each ``sliding_window_pattern`` is full, the others slide (Gemma, Cohere2, OLMo 3)."""

    def rule(config: Config, count: int) -> list[Span]:
        step = _period(config, period)
        spot = 0 if first else step - 1
        window = window_of(config)
        return [FULL if step == 0 or i % step == spot else window for i in range(count)]

    return rule


def _period(config: Config, default: int) -> int:
    given = config.raw.get("sliding_window_pattern", config.raw.get("_sliding_window_pattern"))
    if isinstance(given, str) and given and set(given) <= {"L", "G"}:
        return len(given)
    return config.integer("sliding_window_pattern", "_sliding_window_pattern", default=default)


def above(config: Config, count: int) -> list[Span]:
    """Layers from ``max_window_layers`` on slide, when ``use_sliding_window`` says so (Qwen2, Qwen3)."""
    if not config.flag("use_sliding_window", default=True):
        return [FULL] * count
    start, window = config.integer("max_window_layers", default=28), window_of(config)
    return [window if i >= start else FULL for i in range(count)]


def below(config: Config, count: int) -> list[Span]:
    """Every second layer under ``max_window_layers`` slides (Qwen2-MoE)."""
    if not config.flag("use_sliding_window", default=False):
        return [FULL] * count
    end, window = config.integer("max_window_layers", default=28), window_of(config)
    return [window if i % 2 == 0 and i < end else FULL for i in range(count)]


def switched(config: Config, count: int) -> list[Span]:
    """Every layer slides when ``use_sliding_window`` says so (Qwen3-MoE)."""
    return uniform(config, count) if config.flag("use_sliding_window", default=False) else [FULL] * count


def without_rope(config: Config, count: int) -> list[Span]:
    """Layers without rope slide when ``use_sliding_window`` says so (SmolLM3)."""
    if not config.flag("use_sliding_window", default=False):
        return [FULL] * count
    window = window_of(config)
    return [FULL if rope else window for rope in rope_layers(config, count)]


def chunked(config: Config, count: int) -> list[Span]:
    """Layers with rope see their chunk only, the others everything (Llama 4)."""
    chunk = Span(chunk=config.integer("attention_chunk_size", default=8192))
    return [chunk if rope else FULL for rope in rope_layers(config, count)]


def rope_layers(config: Config, count: int) -> list[bool]:
    """Which layers have rotary positions: ``no_rope_layers`` (1 = has rope), else every fourth has none."""
    given = config.list("no_rope_layers", default=[])
    step = config.size("no_rope_layer_interval", default=4)
    return [bool(given[i]) if i < len(given) else (i + 1) % step != 0 for i in range(count)]
