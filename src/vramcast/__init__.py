"""Forecast what a large language model costs on a GPU: memory and fit. Every byte named, every number with an error bar.

    >>> import vramcast
    >>> answer = vramcast.forecast(vramcast.Serving(model="Qwen/Qwen2.5-7B-Instruct", gpu="RTX 4090", context=32768))
    >>> answer.fit.verdict
    'fits'
    >>> [term.name for term in answer.worst.terms][:2]
    ['weights', 'kv_cache']

Names are loaded when they are first used, so that importing the package costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from vramcast.asking.doors import forecast, plan, serve, train
    from vramcast.asking.looking import evaluate, explain, find_models, sweep
    from vramcast.errors import VramcastError
    from vramcast.hardware.cards import find_accelerator
    from vramcast.ledger import Forecast, Term
    from vramcast.models.inventory import Model
    from vramcast.models.reading import read_model
    from vramcast.planning import measure, trace
    from vramcast.truth.folklore.calculator import reckon
    from vramcast.workload import Adapter, Parallel, Serving, Training

__all__ = [
    "Adapter",
    "Forecast",
    "Model",
    "Parallel",
    "Serving",
    "Term",
    "Training",
    "VramcastError",
    "evaluate",
    "explain",
    "find_accelerator",
    "find_models",
    "forecast",
    "measure",
    "plan",
    "read_model",
    "reckon",
    "serve",
    "sweep",
    "trace",
    "train",
]
_HOMES = {
    "Forecast": "ledger",
    "Model": "models.inventory",
    "Term": "ledger",
    "VramcastError": "errors",
    "find_accelerator": "hardware.cards",
    "evaluate": "asking.looking",
    "explain": "asking.looking",
    "find_models": "asking.looking",
    "sweep": "asking.looking",
    "forecast": "asking.doors",
    "serve": "asking.doors",
    "train": "asking.doors",
    "measure": "planning",
    "plan": "asking.doors",
    "trace": "planning",
    "read_model": "models.reading",
    "reckon": "truth.folklore.calculator",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"vramcast has no {name!r}: it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"vramcast.{_HOMES.get(name, 'workload')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
