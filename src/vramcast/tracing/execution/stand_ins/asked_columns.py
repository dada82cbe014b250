"""What columns a program asks its rows for: the usual names in its files and on its command line, and how long such texts are.

A name says what its column holds (an instruction, a chat, a picture); one that is not usual says nothing and is left out.
"""

import ast
import itertools
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from vramcast.tracing.execution.places import is_library

_GUESSED: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("messages", "conversation", "conversations"), "chat:250"),
    (("label", "labels"), "label:2"),
    (("image", "img"), "image:512x512"),
    (("image_bytes", "img_bytes"), "encoded:512x512"),
    (("audio",), "audio:16000x10"),
    (("chosen", "rejected", "output", "response", "answer", "completion", "target", "summary", "solution"), "text:100"),
    (("text", "content", "document", "article", "context", "story", "code"), "text:250"),
    (("prompt", "instruction", "question", "input", "query", "title", "caption", "problem", "sentence"), "text:40"),
)
USUAL = {name: kind for names, kind in _GUESSED for name in names}
# Flags that name a column, by a word in them: what the column holds whatever it is called.
_BY_FLAG = {
    "text:100": ("response", "target", "summary", "answer", "output", "completion"),
    "text:40": ("prompt", "question", "source", "input", "query", "caption"),
    "text:250": ("text", "content", "context"),
}
# What a trainer of TRL reads (docs/source/dataset_formats.md of 1.16), by the name that a script imports.
_BY_TRAINER: dict[str, dict[str, Any]] = {
    name: columns
    for names, columns in (
        ("SFTTrainer GKDTrainer", {"messages": "chat:250"}),
        ("DPOTrainer CPOTrainer ORPOTrainer", {"prompt": "text:40", "chosen": "text:100", "rejected": "text:100"}),
        ("RewardTrainer", {"chosen": "chat:140", "rejected": "chat:140"}),
        ("GRPOTrainer RLOOTrainer OnlineDPOTrainer XPOTrainer NashMDTrainer", {"prompt": "text:40"}),
        ("KTOTrainer", {"prompt": "text:40", "completion": "text:100", "label": "bool"}),
    )
    for name in names.split()
}
_MOST_FILES, _LONGEST_FILE = 200, 1 << 20


def columns_asked() -> dict[str, Any]:
    """The columns that the running program asks for, with the kind that each has."""
    texts = program_texts()
    found = columns_of_script(texts) | columns_of_line(sys.argv[1:])
    keys = {node.slice.value for text in texts for node in _nodes(text) if _is_key(node)}
    if {"from", "value"} <= keys and "role" not in keys:  # ShareGPT's form of a chat, with its own names of the two who speak
        form = "sharegpt:250" if "human" in _words(tuple(texts)) else "said:250"
        found = {name: form if kind == "chat:250" else kind for name, kind in found.items()}
    return found


def _is_key(node: ast.AST) -> TypeGuard[Any]:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)


def columns_of_script(texts: list[str]) -> dict[str, Any]:
    """The usual names of columns that a script asks its rows for, with the kind that such a column has."""
    named: dict[str, None] = {}
    trained: dict[str, Any] = {}
    for node in itertools.chain.from_iterable(_nodes(text) for text in texts):
        if _is_key(node):
            named[str(node.slice.value)] = None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            named[str(getattr(node.args[0], "value", ""))] = None
        elif isinstance(node, ast.keyword) and (node.arg or "").endswith(("_column", "_field")):
            named[str(getattr(node.value, "value", ""))] = None
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "trl":
            trained |= {key: kind for each in node.names for key, kind in _BY_TRAINER.get(each.name, {}).items()}
    return {name: USUAL[name] for name in named if name in USUAL} or trained


def columns_of_line(words: list[str]) -> dict[str, Any]:
    """The columns that a command line names (``--dataset_text_field text``), by their names or by what the flag says of them."""
    pairs = [word.split("=", 1) if "=" in word else [word, following] for word, following in itertools.pairwise([*words, ""])]
    named = [
        (flag, value) for flag, value in pairs if flag.startswith("--") and flag.endswith(("_column", "_field", "_column_name"))
    ]
    kinds = {value: USUAL.get(value) or _by_flag(flag) for flag, value in named if value and not value.startswith("-")}
    return {name: kind for name, kind in kinds.items() if kind}


def _by_flag(flag: str) -> str:
    return next((kind for kind, words in _BY_FLAG.items() if any(word in flag for word in words)), "")


def program_texts() -> list[str]:
    """The program's own files: those on the stack, and the modules that it has loaded."""
    found: dict[str, None] = {}
    frame: Any = sys._getframe(1)
    while frame is not None:
        found[frame.f_code.co_filename] = None
        frame = frame.f_back
    found |= dict.fromkeys(str(getattr(module, "__file__", None) or "") for module in tuple(sys.modules.values()))
    own = [file for file in found if file.endswith(".py") and not is_library(file)]
    return [text for text in map(_text, own[:_MOST_FILES]) if text]


@lru_cache(_MOST_FILES)
def _text(file: str) -> str:
    place = Path(file)
    return place.read_text(errors="replace") if place.is_file() and place.stat().st_size < _LONGEST_FILE else ""


@lru_cache(_MOST_FILES)
def _nodes(text: str) -> tuple[ast.AST, ...]:
    try:
        return tuple(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return ()


@lru_cache(4)
def _words(texts: tuple[str, ...]) -> frozenset[str]:
    """Every string that the program holds."""
    nodes = itertools.chain.from_iterable(map(_nodes, texts))
    return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
