"""Methods that tokenizers with a Rust core had until transformers 5: ids that a program cut are put together by its template.

Source: tokenization_utils_base.py of transformers 4.57 (``prepare_for_model``, ``build_inputs_with_special_tokens``).
"""

import functools
from typing import Any

from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported

_BORROWED = ("truncate_sequences", "prepare_for_model")


def install(session: Session) -> None:
    """Give them to the class of such tokenizers, with a note where the program calls one."""
    when_imported("transformers.tokenization_utils_tokenizers", functools.partial(_tokenizers, session))


def _tokenizers(session: Session, module: Any) -> None:
    owner = module.TokenizersBackend
    if hasattr(owner, "prepare_for_model"):
        return
    from transformers.tokenization_python import PythonBackend

    def special(tokenizer: Any, ids: list[int], pair_ids: list[int] | None = None) -> list[int]:
        return [token for token, _ in _placed(tokenizer, ids, pair_ids)]

    def types(tokenizer: Any, ids: list[int], pair_ids: list[int] | None = None) -> list[int]:
        return [kind for _, kind in _placed(tokenizer, ids, pair_ids)]

    owner.build_inputs_with_special_tokens, owner.create_token_type_ids_from_sequences = special, types
    for name in _BORROWED:
        setattr(owner, name, _told(getattr(PythonBackend, name), name, session))


def _told(function: Any, name: str, session: Session) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        session.notes[f"a tokenizer's {name} is of an earlier version: answered by its template"] = None
        return function(*args, **options)

    return call


def _placed(tokenizer: Any, ids: list[int], pair_ids: list[int] | None) -> list[tuple[int, int]]:
    """Ids with the special tokens of a tokenizer's own template around them, and the type of each."""
    words = ("a",) if pair_ids is None else ("a", "a")
    made = tokenizer(*words, add_special_tokens=True, return_token_type_ids=True)
    placed: list[tuple[int, int]] = []
    done: set[int] = set()
    for token, kind, part in zip(made["input_ids"], made["token_type_ids"], made.sequence_ids(), strict=True):
        if part is None:
            placed.append((token, kind))
        elif part not in done:
            done.add(part)
            placed += [(each, kind) for each in ((ids, pair_ids or [])[part])]
    return placed
