"""Models that a program builds itself: what their modules are made in, and which of them have layers that are known here.

Known are karpathy/nanoGPT's ``model.py`` and the GPT of rasbt/LLMs-from-scratch. Of others the names of sizes tell neither the
vocabulary nor what attention keeps, so that no shape is put together from them.
"""

import ast
import re
from typing import Any

from vramcast.reading.python_values import Program, called
from vramcast.reading.training.settings import Settings
from vramcast.untrusted import printable

_CASTS = re.compile(
    r"\.(?:bfloat16|half)\(\)|\.to\([^()]*(?:bfloat16|float16)|set_default_dtype|(?:torch_)?dtype=(?:torch\.)?\w*float16"
)
_NARROWS = re.compile(r"autocast|mixed_precision|\bprecision\s*=|GradScaler|\bamp\.|deepspeed\.initialize|(?:bf|fp|b?float)16")
_NETWORKS = ("Module", "LightningModule")
_GPT_SIZES = ("n_layer", "n_head", "n_embd", "emb_dim")


def own_model(program: Program, text: str, keys: dict[str, Any], settings: Settings, where: str) -> None:
    """A model that the program itself builds: float32 weights where nothing casts them, autocast, nanoGPT's tied head."""
    settings.builds = own_network(program)
    if not any(key.rsplit(".", 1)[-1] in _GPT_SIZES for key in keys):
        return
    if not _CASTS.search(text):
        settings.put("param_dtype", "float32", f"{where}: modules are made in float32, and nothing casts them")
        if "autocast" not in text and "mixed_precision" not in text:
            settings.put("compute_dtype", "float32", f"{where}: no autocast")
        elif (word := str(keys.get("dtype"))) in ("bfloat16", "float16"):
            settings.put("compute_dtype", word, f"{where}: dtype")
    if re.search(r"^from model import .*\bGPT\b", text, re.M):  # karpathy/nanoGPT, model.py
        told = {"tied": True, "gated": False, "position": "learned", "norm": "layernorm", "bias": keys.get("bias") is True}
        own = any(key.rsplit(".", 1)[-1] == "vocab_size" and isinstance(value, int) for key, value in keys.items())
        for name, value in (told if own else {**told, "vocab": 50_304}).items():  # a size in the file comes first
            settings.put(f"shape.{name}", value, "nanoGPT, model.py: GPT-2's layers, the head tied to the embedding")
        settings.builds = ""
        return
    scratch = {key.rsplit(".", 1)[-1]: value for key, value in keys.items()}  # rasbt/LLMs-from-scratch, ch04
    if {"emb_dim", "qkv_bias", "context_length"} <= scratch.keys():
        told = {"tied": False, "gated": False, "position": "learned", "norm": "layernorm", "bias": True}
        for name, value in {**told, "positions": scratch["context_length"]}.items():
            settings.put(f"shape.{name}", value, "LLMs-from-scratch, ch04: GPT-2's layers and positions, a head of its own")
        settings.builds = ""


def own_network(program: Program) -> str:
    """The program's own class of a network with an embedding, in it or in a file that it imports from; "" for none."""
    imported = (found for found in program.imports.names.values() if isinstance(found[0], Program))
    for name in program.scopes.classes:
        if _is_network(program, name):
            return name
    return next((name for other, name in imported if name in other.scopes.classes and _is_network(other, name)), "")


def _is_network(program: Program, name: str) -> bool:
    node = program.scopes.classes[name]
    module = any(ast.unparse(base).rsplit(".", 1)[-1] in _NETWORKS for base in node.bases)
    return module and any(isinstance(one, ast.Call) and called(one) == "Embedding" for one in ast.walk(node))


def own_precision(settings: Settings, text: str | None, script: str) -> None:
    """Modules that a program builds itself from numbers are made in float32, and stay so where nothing casts them.

    ``text``: the program's, None for one that is not at hand; ``script``: its name.
    """
    told = printable(script.rsplit("/", 1)[-1])[:80] + (", which is not at hand," if text is None else "")
    if not _CASTS.search(text or ""):
        settings.default("param_dtype", "float32", f"torch makes modules in float32, where {told} casts none")
    if not _NARROWS.search(text or ""):
        settings.default("compute_dtype", "float32", f"no autocast that {told} tells")
