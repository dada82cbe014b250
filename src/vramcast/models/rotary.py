"""Tables of cosines and sines that engines keep for every position: which a config asks for, and how many rows each has.

One table per distinct width, base and scaling; layers share equal ones. Rows are the positions, but: linear scaling and dynamic
NTK times their factor; YaRN the original positions times its factor; LongRoPE a short table and a long one; multimodal positions
by sections four times as many (video), unless the sections are interleaved. Sliding layers turn by a base of their own where the
config gives one (Gemma 3, Gemma 4, ModernBERT). DeepSeek-V4's compressing layers turn by another base than its others, and its
tables are float32 (deepseek_scaling_rope.py: DeepseekV4ScalingRotaryEmbedding). Latent attention without positions (Kimi Linear,
Kimi K3) has no table.

Source: vllm/model_executor/layers/rotary_embedding (linear_scaling_rope.py, dynamic_ntk_scaling_rope.py, yarn_scaling_rope.py,
phi3_long_rope_scaled_rope.py, mrope.py); sglang/srt/layers/rotary_embedding.py alike.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from vramcast.models.inventory import Model

# names of Model.facts: rows of the main table where they are not the positions; whether sliding layers have their own; whether
# positions come in sections; how many bases the layers turn by where that is no matter of windows; whether tables are float32
ROWS, LOCAL, SECTIONS, TABLES, FLOAT = "rotary_rows", "rotary_local", "rotary_sections", "rotary_tables", "rotary_float"
SECTION_ROWS = 4
_TEXT = ("text_config", "llm_config", "language_config", "thinker_config", "text_model_config")


def with_tables(model: Model, raw: Mapping[str, Any]) -> Model:
    """The model with what its config says of rotary tables beside its positions, where it says anything."""
    text = _text(raw)
    own, local = _spoken(text)
    facts = _facts(text, own)
    if local is not None or _number(text.get("rope_local_base_freq")) or _number(text.get("local_rope_theta")):
        facts[LOCAL] = 1
    return msgspec.structs.replace(model, facts={**model.facts, **facts}) if facts else model


def _text(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The text decoder's config, however deep it is nested."""
    inner = next((raw[name] for name in _TEXT if isinstance(raw.get(name), Mapping)), None)
    return raw if inner is None else _text(inner)


def _spoken(text: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """The scaling of full layers, and that of sliding ones where it is told apart."""
    found = (text[name] for name in ("rope_parameters", "rope_scaling") if isinstance(text.get(name), Mapping))
    told: Mapping[str, Any] = next(found, {})
    full, sliding = told.get("full_attention"), told.get("sliding_attention")
    if isinstance(full, Mapping) and isinstance(sliding, Mapping):
        return full, sliding if sliding != full else None
    return told, None


def _facts(text: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, float]:
    if text.get("mla_use_nope"):
        return {ROWS: 0}
    if isinstance(told.get("mrope_section"), list | tuple) and not told.get("mrope_interleaved"):
        return {SECTIONS: 1}
    positions, factor = _number(text.get("max_position_embeddings")), _number(told.get("factor"))
    original = _number(told.get("original_max_position_embeddings")) or _number(text.get("original_max_position_embeddings"))
    rows = _rows(str(told.get("rope_type") or told.get("type") or ""), positions, original, factor, told)
    return {ROWS: rows} if rows and rows != positions else {}


def _rows(kind: str, positions: int | float, original: int | float, factor: int | float, told: Mapping[str, Any]) -> int:
    if kind in ("longrope", "su"):
        return round(original + positions) if original else 0
    if not factor or kind not in ("linear", "dynamic", "yarn", "deepseek_yarn") or (kind == "dynamic" and "alpha" in told):
        return 0
    return round((original or positions) * factor) if "yarn" in kind else round(positions * factor)


def _number(value: Any) -> int | float:
    """A positive number, 0 for anything else."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**40 else 0
