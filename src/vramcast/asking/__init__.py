"""The door below the command line: words, files and engine lines become a ``Serving`` or a ``Training``.

The command line, the Python API, the page, measuring and tracing all ask through here, with the same names:

    serving_question("Qwen/Qwen2.5-7B-Instruct", gpu="H100x2", context="128k", options={"max_num_seqs": 64})
    training_question(files=["axolotl.yaml"], gpu="A100-80Gx8", micro_batch=4)

Names are loaded when they are first used, so that a serving question does not pay for the training side.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramcast.asking.asked import Asked
    from vramcast.asking.doors import forecast, serve, train
    from vramcast.asking.engine_line import fields
    from vramcast.asking.serving import serving_question
    from vramcast.asking.training import training_question

__all__ = ["Asked", "fields", "forecast", "serve", "serving_question", "train", "training_question"]
_HOMES = {
    "Asked": "asked",
    "fields": "engine_line",
    "forecast": "doors",
    "serve": "doors",
    "serving_question": "serving",
    "train": "doors",
    "training_question": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"vramcast.asking has no {name!r}: it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"vramcast.asking.{_HOMES[name]}"), name)
