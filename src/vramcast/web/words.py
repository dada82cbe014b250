"""Words of an address, and the words that a form offers."""

from functools import cache
from typing import Any
from urllib.parse import parse_qsl

from litestar import Request

from vramcast.errors import QuestionError


def words_of(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """The words of an address in its own order, so that commands and links keep it; a word given twice is refused."""
    words: dict[str, Any] = {}
    for name, value in parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name in words:
            raise QuestionError(f"--{name.replace('_', '-')} is given twice")
        words[name] = value
    words.pop("lang", None)
    return words


@cache
def choices(kind: str) -> dict[str, tuple[str, ...]]:
    """Words of the fields that have few."""
    if kind == "serve":
        from vramcast.serving.engines import engine_names

        return {"engine": engine_names(), "kv_dtype": ("auto", "fp8", "q8_0", "q4_0")}
    from vramcast.training.frameworks import names

    return {
        "framework": names(), "method": ("full", "lora", "qlora"), "checkpointing": ("none", "selective", "full"),
        "zero": ("0", "1", "2", "3"),
    }  # fmt: skip


@cache
def lists(kind: str) -> dict[str, tuple[str, ...]]:
    """Words that are offered while typing, where a field takes many."""
    if kind == "serve":
        return {"quant": ("bf16", "fp8", "int8", "awq", "gptq", "nf4", "nvfp4", "mxfp4", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0")}
    from vramcast.training.optimizers.rows import ROWS

    return {"optimizer": tuple(row.name for row in ROWS)}


@cache
def catalogue_models() -> tuple[str, ...]:
    """Ids that are answered with no network, the makers' own first."""
    from vramcast.asking.looking import find_models

    return find_models("")


@cache
def gpus() -> tuple[str, ...]:
    """Names of the cards."""
    from vramcast.hardware.accelerator import catalogue

    return tuple(card.name for card in catalogue().values())
