"""Callbacks for training loops: the real peak beside the forecast of the same run, and a case of it where a file is named.

    >>> from vramcast.callbacks import TrainerPeak                                                   # doctest: +SKIP
    >>> trainer = Trainer(..., callbacks=[TrainerPeak(cases="runs.jsonl")])                          # doctest: +SKIP

A framework is imported when its callback is asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from vramcast.errors import MissingError

if TYPE_CHECKING:
    from vramcast.callbacks.lightning import LightningPeak
    from vramcast.callbacks.trainer import TrainerPeak

__all__ = ["LightningPeak", "TrainerPeak"]
_HOMES = {"TrainerPeak": ("trainer", "transformers"), "LightningPeak": ("lightning", "lightning")}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"vramcast.callbacks has no {name!r}: it has {', '.join(__all__)}")
    module, needs = _HOMES[name]
    try:
        return getattr(importlib.import_module(f"vramcast.callbacks.{module}"), name)
    except ImportError as error:
        raise MissingError(f"{name} needs {needs}: pip install {needs} ({error})") from None
