"""A tokenizer that stands for a published one: the same number of tokens, the same special ones, other words.

It cuts a text about as finely as the usual ones do (``words.py``). Letters are first replaced by one of their kind, so that every
piece is a token.
"""

import itertools
import json
from typing import Any, NamedTuple

from vramcast.tracing.published.families import Style, style_of
from vramcast.tracing.published.words import LONGEST_PIECE

_KINDS = {"a": "[aeiouyAEIOUY]", "b": "[b-dfghjklB-DFGHJKL]", "m": r"[m-npq-tv-xzM-NPQ-TV-XZ]", "0": "[0-9]"}
_OTHER = "."
_PIECE = rf"\p{{Han}}|\p{{Hiragana}}|\p{{Katakana}}|\p{{Hangul}}|[^\s\p{{Han}}]{{1,{LONGEST_PIECE}}}"
_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}{% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for part in message['content'] %}{{ part['text'] if 'text' in part else IMAGE }}"
    "{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def tokenizer_files(config: dict[str, Any], *, chat: bool = False) -> dict[str, str]:
    """``tokenizer.json`` and ``tokenizer_config.json`` for a model's config, as text by file name.

    ``chat``: a chat template comes with it whatever the family, as with instruct models.
    """
    style, text, size = _read(config)
    special = _placed(style, text, size)
    told: dict[str, Any] = {f"{part}_token": token for part, token in special.parts.items()}
    told |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    told["model_max_length"] = style.longest or _positions(style, text) or 10**30
    if style.chat or chat:
        told["chat_template"] = _CHATML.replace("IMAGE", repr(style.picture))
    files = {"tokenizer.json": json.dumps(_tokenizer(style, special, size)), "tokenizer_config.json": json.dumps(told)}
    if "chat_template" in told:  # for processors, as transformers 4 and 5 look for it
        files |= {
            "chat_template.json": json.dumps({"chat_template": told["chat_template"]}),
            "chat_template.jinja": told["chat_template"],
        }
    return files


def special_tokens(config: dict[str, Any]) -> dict[str, int]:
    """The id of each special token that ``tokenizer_files`` places: eos, pad, bos and whatever else the family has."""
    special = _placed(*_read(config))
    return {part: special.ids[token] for part, token in special.parts.items()}


def _read(config: dict[str, Any]) -> tuple[Style, dict[str, Any], int]:
    """The family's style, the fields of the language model, and how many tokens it has."""
    text = config | config.get("text_config", {}) | config.get("llm_config", {})
    size = int(text.get("vocab_size", 32_000))
    return style_of(str(config.get("remote_type", config.get("model_type", ""))), size), text, size


def _positions(style: Style, text: dict[str, Any]) -> int:
    for name in ("max_position_embeddings", "n_positions", "max_target_positions"):
        if isinstance(text.get(name), int):
            return int(text[name]) - style.beside
    return style.plain


class _Special(NamedTuple):
    """The special tokens of a tokenizer: the token of each part, and the id of each token."""

    parts: dict[str, str]
    ids: dict[str, int]


def _placed(style: Style, text: dict[str, Any], size: int) -> _Special:
    """The special tokens where the config names their ids, else where their family has them, else at the first that are free."""
    ids = {token: style.more_from + n for n, token in enumerate(style.more)} if style.more_from + len(style.more) <= size else {}
    parts: dict[str, str] = {}
    named = {part: place for part in (*style.special, "pad") if (place := _id(text, part, size)) >= 0}
    for part, place in named.items():
        there = next((token for token, taken in ids.items() if taken == place), "")
        plain = style.special.get(part, f"<{part}>")
        parts[part] = there or (plain if plain not in ids else f"<|{part}|>")
        ids.setdefault(parts[part], place)
    free = itertools.filterfalse(lambda place: place in ids.values(), itertools.count())
    for part, token in style.special.items():
        if part not in parts:
            place = style.places.get(part, size)
            ids.setdefault(token, place if place < size and place not in ids.values() else next(free))
            parts[part] = token
    return _Special(parts, ids)


def _id(text: dict[str, Any], part: str, size: int) -> int:
    """The id that a config names for a part, the first of several; -1 for none or one beyond its tokens."""
    named = text.get(f"{part}_token_id")
    place = named[0] if isinstance(named, list) and named else named
    return place if isinstance(place, int) and not isinstance(place, bool) and 0 <= place < size else -1


def _tokenizer(style: Style, special: _Special, size: int) -> dict[str, Any]:
    unknown = special.parts.get("unk") or next(iter(special.ids))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(token, place) for token, place in sorted(special.ids.items(), key=lambda pair: pair[1])],
        "normalizer": {"type": "Sequence", "normalizers": [*(_replace(p, kind) for kind, p in _KINDS.items()), _others()]},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": _PIECE}, "behavior": "Removed", "invert": True},
        "post_processor": _around(style, special),
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": _vocabulary(special.ids, size), "unk_token": unknown},
    }


def _added(token: str, place: int) -> dict[str, Any]:
    usual = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": place, "content": token, **usual, "special": True}


def _replace(pattern: str, kind: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": kind}


def _others() -> dict[str, Any]:
    """Everything that is no letter, digit or blank, but the characters of languages written without blanks, is one kind."""
    return _replace(r"[^\sa-zA-Z0-9\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]", _OTHER)


def _vocabulary(special: dict[str, int], size: int) -> dict[str, int]:
    """As many tokens as the model has: the special ones in their places, pieces of every kind, and names for the rest."""
    kinds = [*_KINDS, _OTHER]
    pieces = ("".join(letters) for length in range(1, LONGEST_PIECE + 1) for letters in itertools.product(kinds, repeat=length))
    rest = (f"<{number}>" for number in itertools.count())
    names = itertools.chain(pieces, rest)
    taken = {place: token for token, place in special.items()}
    return {taken.get(place) or next(names): place for place in range(size)}


def _around(style: Style, special: _Special) -> dict[str, Any]:
    def stands(parts: tuple[str, ...], kind: int) -> list[Any]:
        return [{"SpecialToken": {"id": special.parts[part], "type_id": kind}} for part in parts]

    first = [*stands(style.before, 0), {"Sequence": {"id": "A", "type_id": 0}}, *stands(style.after, 0)]
    second = 1 if style.types else 0
    joined = [*stands(style.before, 0), {"Sequence": {"id": "A", "type_id": 0}}, *stands(style.between, 0)]
    pair = [*joined, {"Sequence": {"id": "B", "type_id": second}}, *stands(style.after, second)]
    tokens = {t: {"id": t, "ids": [special.ids[t]], "tokens": [t]} for t in dict.fromkeys(special.parts.values())}
    return {"type": "TemplateProcessing", "single": first, "pair": pair, "special_tokens": tokens}
