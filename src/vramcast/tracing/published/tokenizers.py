"""A tokenizer that stands for a published one: the same number of tokens, the same special ones, other words.

It cuts a text as the usual ones do, a word into pieces of five letters at most: 1.35 tokens for an English word, where
those of GPT-2 and Llama need 1.3. Letters are first replaced by one of their kind, so that every piece is a token.
"""

import itertools
import json
from typing import Any

from vramcast.tracing.published.families import Style, style_of

_KINDS = {"a": "[aeiouyAEIOUY]", "b": "[b-dfghjklB-DFGHJKL]", "m": r"[m-npq-tv-xzM-NPQ-TV-XZ]", "0": "[0-9]"}
_OTHER = "."
_LONGEST = 5
_PIECE = rf"\p{{Han}}|\p{{Hiragana}}|\p{{Katakana}}|\p{{Hangul}}|[^\s\p{{Han}}]{{1,{_LONGEST}}}"
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
    text = config | config.get("text_config", {}) | config.get("llm_config", {})
    style, size = style_of(str(config.get("model_type", ""))), int(text.get("vocab_size", 32_000))
    special = _placed(style, text, size)
    told: dict[str, Any] = {f"{part}_token": token for part, token in style.special.items()}
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


def _positions(style: Style, text: dict[str, Any]) -> int:
    for name in ("max_position_embeddings", "n_positions", "max_target_positions"):
        if isinstance(text.get(name), int):
            return int(text[name]) - style.beside
    return style.plain


def _placed(style: Style, text: dict[str, Any], size: int) -> dict[str, int]:
    """The ids of the special tokens: where the config says so, else BERT's, else the first that are free."""
    last = style.more_from + len(style.more)
    ids = {token: style.more_from + n for n, token in enumerate(style.more)} if last <= size else {}
    for part, token in style.special.items():
        named = text.get(f"{part}_token_id")
        place = named[0] if isinstance(named, list) and named else named
        if token in ids:
            continue
        if not isinstance(place, int) or not 0 <= place < size or place in ids.values():
            place = style.places.get(part, -1)
            place = place if place < size else -1
        ids[token] = place
    free = itertools.filterfalse(set(ids.values()).__contains__, itertools.count())
    return {token: place if place >= 0 else next(free) for token, place in ids.items()}


def _tokenizer(style: Style, special: dict[str, int], size: int) -> dict[str, Any]:
    unknown = style.special.get("unk") or next(iter(special))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(token, place) for token, place in sorted(special.items(), key=lambda pair: pair[1])],
        "normalizer": {"type": "Sequence", "normalizers": [*(_replace(p, kind) for kind, p in _KINDS.items()), _others()]},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": _PIECE}, "behavior": "Removed", "invert": True},
        "post_processor": _around(style, special),
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": _vocabulary(special, size), "unk_token": unknown},
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
    pieces = ("".join(letters) for length in range(1, _LONGEST + 1) for letters in itertools.product(kinds, repeat=length))
    rest = (f"<{number}>" for number in itertools.count())
    names = itertools.chain(pieces, rest)
    taken = {place: token for token, place in special.items()}
    return {taken.get(place) or next(names): place for place in range(size)}


def _around(style: Style, special: dict[str, int]) -> dict[str, Any] | None:
    def stands(parts: tuple[str, ...], kind: int) -> list[Any]:
        return [{"SpecialToken": {"id": style.special[part], "type_id": kind}} for part in parts]

    first = [*stands(style.before, 0), {"Sequence": {"id": "A", "type_id": 0}}, *stands(style.after, 0)]
    second = 1 if style.types else 0
    joined = [*stands(style.before, 0), {"Sequence": {"id": "A", "type_id": 0}}, *stands(style.between, 0)]
    pair = [*joined, {"Sequence": {"id": "B", "type_id": second}}, *stands(style.after, second)]
    tokens = {t: {"id": t, "ids": [special[t]], "tokens": [t]} for t in dict.fromkeys(style.special.values())}
    return {"type": "TemplateProcessing", "single": first, "pair": pair, "special_tokens": tokens}
