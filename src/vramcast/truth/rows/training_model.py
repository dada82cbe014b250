"""The model of a training row: its real configuration, or the numbers that the report gives."""

import re
from typing import Any

from vramcast.errors import VramcastError
from vramcast.models.inventory import Model
from vramcast.models.reading import read_model
from vramcast.training.shape import Shape, shape_model
from vramcast.truth.rows.training_words import LATENT


def model_of(row: dict[str, Any]) -> Model:
    """The row's model: its real configuration when it is the one the report measured, else the numbers the report gives."""
    arch = row.get("arch") or {}
    for candidate in _spellings(re.sub(r"\s*[\[(].*", "", str(row["model_id"]))):
        try:
            model = read_model(candidate, offline=True)
        except VramcastError:
            continue
        if not arch or ((arch.get("layers"), arch.get("hidden")) == (model.layers, model.hidden) and _same_head(arch, model)):
            return model
    if not arch:
        raise VramcastError(f"model {row['model_id']!r} is not in the catalogue and its numbers are not given")
    flags = (row.get("settings") or {}).get("flags") or {}
    return shape_model(shape_of(arch | {"qk_norm": flags.get("qk-layernorm")}))


def _same_head(arch: dict[str, Any], model: Model) -> bool:
    """Whether the head shares the embedding as the report says; a run may untie what the catalogue's model ties."""
    return arch.get("tied") in (None, model.tied)


# The second: torchtitan's flavor 16B has the sizes of V2-Lite (models/deepseek_v3/__init__.py).
_BASES = {"zephyr-7b": "mistralai/Mistral-7B-v0.1", "deepseek-v3-16b": "deepseek-ai/DeepSeek-V2-Lite"}


def _spellings(name: str) -> list[str]:
    based = next((base for word, base in _BASES.items() if word in name.lower()), None)
    if based:
        return [based]
    leaf = name.rsplit("/", 1)[-1]
    plain = re.sub(r"(-unsloth)?-bnb-4bit$|-GPTQ.*$|-AWQ$|-dequantized$", "", leaf)
    return [name] if plain == leaf else [name, plain]


def shape_of(arch: dict[str, Any]) -> Shape:
    """The numbers of a report's ``arch``."""
    if not arch.get("layers") or arch.get("hybrid"):
        raise VramcastError("the report gives no number of layers, or a pattern of layers without their sizes")
    experts = arch.get("experts") or 0
    return Shape(
        layers=arch["layers"],
        hidden=arch["hidden"],
        heads=arch.get("heads") or _heads(arch["hidden"]),
        kv_heads=arch.get("kv_heads") or 0,
        head_dim=arch.get("head_dim") or 0,
        ffn=arch.get("ffn") or arch.get("dense_ffn") or 0,
        vocab=arch.get("vocab") or 32_000,
        tied=bool(arch.get("tied")),
        gated=bool(arch.get("gated_mlp", True)),
        qk_norm=bool(arch.get("qk_norm")),
        position={"alibi": "alibi", "learned": "learned", "learned_absolute": "learned"}.get(str(arch.get("position")), "rope"),
        experts=experts,
        active=arch.get("topk") or 2,
        expert_ffn=arch.get("moe_ffn") or 0,
        shared_ffn=arch.get("shared_ffn") or 0,
        first_dense=arch.get("first_k_dense") or 0,
        latent=LATENT if arch.get("mla") else None,
        mtp=arch.get("mtp") or 0,
    )


def _heads(hidden: int) -> int:
    """Heads when a report gives none: the divisor of the width, and multiple of 8, nearest to heads of 128."""
    return min((n for n in range(8, 513, 8) if hidden % n == 0), key=lambda n: abs(hidden / n - 128), default=8)
