"""Characters for outputs that hold less than Unicode: an old Windows console (cp1252), an ASCII pipe."""

import sys

# What stands for a part of a bar where there is no colour, and where there is no Unicode.
PATTERNS = {
    "weights": "█", "kv_cache": "▓", "gradients": "▓", "state": "▒", "activations": "▒", "optimizer": "▚", "master_weights": "▞",
    "logits": "▞", "loss": "▞", "graphs": "▤", "gathered": "▤", "gathered_ahead": "▤", "workspace": "▥", "temporaries": "▥",
    "gradient_copy": "▥", "communication": "▦", "context": "▧", "fragmentation": "▨", "missing": "\u00d7", "free": "·",
}  # fmt: skip
LETTERS = {
    "weights": "W", "kv_cache": "K", "gradients": "G", "state": "S", "activations": "A", "optimizer": "O", "master_weights": "M",
    "logits": "L", "loss": "L", "graphs": "H", "gathered": "D", "gathered_ahead": "D", "workspace": "P", "temporaries": "T",
    "gradient_copy": "Y", "communication": "C", "context": "X", "fragmentation": "F", "missing": "!", "free": ".",
}  # fmt: skip
_PLAIN = str.maketrans(
    {
        "·": "-", "←": "<-", "→": "->", "…": "...", "\u00d7": "x", "■": "#", "█": "#", "▇": "=", "░": ".", "│": "|",
        "\u2013": "-", "\u2014": "-", "\u2019": "'", "µ": "u", "²": "^2", "≤": "<=", "≥": ">=", "±": "+-",
    }
)  # fmt: skip


def holds_unicode() -> bool:
    """Whether standard output can hold the blocks of a bar."""
    return _holds("█▓░│")


def written(text: str) -> str:
    """The text as standard output can hold it: unchanged, else in ASCII's nearest."""
    if _holds(text):
        return text
    plain = "".join(c if _holds(c) else c.translate(_PLAIN) for c in text)
    encoding = sys.stdout.encoding or "utf-8"
    return plain.encode(encoding, "replace").decode(encoding)


def _holds(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
