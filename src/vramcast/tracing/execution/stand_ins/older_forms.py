"""What earlier versions of libraries held and no library holds today in that form (``published/moved.toml``)."""

import collections.abc as container_abcs
from typing import Any

import torch
from torch import inf, nan

# torch._six until torch 2.0
string_classes = (str, bytes)
int_classes = int
FileNotFoundError = FileNotFoundError  # noqa: A001, PLW0127 - as torch._six had it
PY2, PY3, PY37 = False, True, True

__all__ = [
    "PY2",
    "PY3",
    "PY37",
    "AdamW",
    "CompletionOnly",
    "ModelAddresses",
    "container_abcs",
    "inf",
    "int_classes",
    "model_urls",
    "nan",
    "nothing",
    "on_this_card",
    "string_classes",
    "unchanged",
]


class AdamW(torch.optim.AdamW):  # type: ignore[misc, unused-ignore]
    """That of transformers before 5: parameter by parameter, with its defaults (optimization.py of 4.40)."""

    def __init__(self, params: Any, lr: float = 1e-3, *args: Any, **options: Any) -> None:
        names = ("betas", "eps", "weight_decay")
        given = {"eps": 1e-6, "weight_decay": 0.0} | dict(zip(names, args, strict=False)) | options
        super().__init__(params, lr, foreach=False, **{name: given[name] for name in names if name in given})


class CompletionOnly:
    """TRL's collator before 0.20: of a padded batch the labels in front of the answer count for nothing; shapes are the same."""

    def __init__(self, *_: Any, tokenizer: Any = None, mlm: bool = False, **options: Any) -> None:
        from transformers import DataCollatorForLanguageModeling

        known = {name: value for name, value in options.items() if name == "pad_to_multiple_of"}
        self._collate = DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm=mlm, **known)

    def __call__(self, rows: Any, *_: Any, **__: Any) -> Any:
        """The batch of these rows."""
        return self._collate(rows)


class ModelAddresses(dict[str, str]):
    """torchvision's lists of its weights until 0.13: an address for every architecture, whose file is not asked for here."""

    def __missing__(self, name: str) -> str:
        return f"https://download.pytorch.org/models/{name}.pth"


model_urls = ModelAddresses()


def nothing(*_: Any, **__: Any) -> None:
    """What only told somebody something."""


def unchanged(function: Any) -> Any:
    """A decorator that only looked whether a library was there."""
    return function


def on_this_card() -> dict[str, int]:
    """TRL's map of a quantised model until 0.20: all of it on the process's own card (trainer/utils.py of 0.7.11)."""
    return {"": torch.cuda.current_device()}
