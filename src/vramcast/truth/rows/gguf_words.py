"""The words of llama.cpp rows: file types, cache types, offloaded layers, devices, as logs and reports write them."""

import re
from typing import Any

from vramcast.errors import VramcastError
from vramcast.models.inventory import Model
from vramcast.models.reading import read_model
from vramcast.serving.engines.llama_cpp.file_types import file_type
from vramcast.truth.judgement import Unexpressed

Row = dict[str, Any]

_TRUE = ("1", "true", "on", "auto (enabled)", "enabled")
_NAME_TAILS = (r"\s*\(.*\)$", r"(-qat)?-q\d_\w+-gguf$", r"-gguf$")
_DYNAMIC = re.compile(r"\(UD\)|\bUD-|-UD-|mix|_R[48]\b|\bIQ\d_K[A-Z]*\b|THIREUS|SPECIAL|ubergarm", re.IGNORECASE)
FORUM_BUILD = "b5200"
"""llama.cpp runs quoted in ik_llama.cpp's threads of spring 2025 name no build; it was about this one."""


WINTER_BUILD = "b2200"
"""koboldcpp 1.57 to 1.60 follow llama.cpp of February and March 2024."""
EXPANDED_BUILD = "b4500"
"""A log that prints keys and values of DeepSeek is from before llama.cpp cached the latent (b5130)."""


def flag(value: Any) -> bool:
    """A switch as logs and reports write it."""
    return str(value).lower() in _TRUE


def cache_types(text: str | None) -> tuple[str, str]:
    """Key and value types from "K q8_0 / V f16", "c_kv q8_0" or "f16"."""
    words = re.findall(r"(?:K|V|c_kv|c\^KV)\s+\(?(\w+)", text or "") or re.findall(r"^\w+$", text or "") or ["f16"]
    kinds = ["f16" if w in ("auto", "fp16") else w for w in words]
    return kinds[0], kinds[-1]


def printed_cache_types(text: str) -> tuple[str, str]:
    """Key and value types from a log's "K (q8_0): 799.00 MiB, V (f16): ..." or "c^KV (q8_0): ..."."""
    kinds = re.findall(r"\((\w+)\):", text) or ["f16"]
    return kinds[0], kinds[-1]


def offloaded(text: Any) -> int | None:
    """Layers on the GPU from "62/62", 99, "all" or "20/49 (layers 28..47)"."""
    if text is None:
        return None
    found = re.match(r"(\d+)", str(text))
    return int(found[1]) if found else 10_000


def quant_of(row: Row) -> tuple[str, bool]:
    """The file type a row names, and whether it is a mix that has rules rather than one made by hand. Raises Unexpressed."""
    words = row["settings"].get("gguf_file_type") or row.get("quant") or ""
    made = _DYNAMIC.search(f"{words} {row.get('quant')} {row['settings'].get('gguf_file', '')}")
    try:
        return file_type(re.sub(r"^(gguf)?\s*(UD-)?|_XL\b", "", words.split("(")[0]).strip()), not made
    except VramcastError as error:
        raise Unexpressed(str(error)) from None


def model_of(row: Row) -> Model:
    """The model a row names, without the packaging in its name. Unexpressed when it is not known."""
    names = [row["model_id"]]
    for tail in _NAME_TAILS:
        names.append(re.sub(tail, "", names[-1]))
    names += re.findall(r"\(([\w.-]+/?[\w.-]+)\)", row["model_id"])
    for name in dict.fromkeys(reversed(names)):
        try:
            return read_model(name)
        except VramcastError as error:
            reason = str(error)
    raise Unexpressed(reason)


def told(row: Row) -> bool:
    """Whether the report has the row's tensor overrides whole; without them only its caches can be forecast."""
    try:
        overrides(row)
    except Unexpressed:
        return False
    return True


def overrides(row: Row) -> tuple[str, ...]:
    """The row's tensor overrides. Unexpressed when the report cut one short or left a variable in it."""
    given = tuple(dict.fromkeys(row["settings"].get("override_tensor") or ()))
    for text in (part for whole in given for part in whole.split(",")):
        if not re.search(r"=(CPU|CUDA\d+|ROCm\d+|Vulkan\d+|\w+)$", text) or "$" in text:
            raise Unexpressed(f"override {text[:40]!r} is cut short in the report")
    return given
