"""Published weights that a program asks a server for: where there is no network, the model keeps the ones it was made with.

A trace needs no values. What hangs on the shapes in a file, such as a model made from a checkpoint, still fails and says so.
"""

import functools
from typing import Any

import torch

from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported


class Unread(dict[str, Any]):
    """The tensors of a file that was not read: empty, whatever part of it is asked for."""

    def __missing__(self, key: str) -> "Unread":
        return self

    def pop(self, key: str, *_: Any) -> Any:
        """There is nothing under any name."""
        del key


def install(session: Session) -> None:
    """Answer where torch.hub, torchvision or timm would download weights, with a note."""

    def told(what: str) -> Unread:
        session.notes[f"{what} was not downloaded: its values are made up"] = None
        return Unread()

    original = torch.hub.load_state_dict_from_url

    @functools.wraps(original)
    def from_url(url: str, *args: Any, **options: Any) -> Any:
        try:
            return original(url, *args, **options)
        except OSError:  # of urllib too
            return told(url)

    torch.hub.load_state_dict_from_url = from_url
    _loading_nothing()
    when_imported("torchvision._internally_replaced_utils", lambda module: setattr(module, "load_state_dict_from_url", from_url))
    when_imported("timm.models._builder", lambda module: _timm(module, told))


def _loading_nothing() -> None:
    original = torch.nn.Module.load_state_dict

    @functools.wraps(original)
    def load(module: torch.nn.Module, state: Any, *args: Any, **options: Any) -> Any:
        if isinstance(state, Unread):
            return torch.nn.modules.module._IncompatibleKeys([], [])
        return original(module, state, *args, **options)

    torch.nn.Module.load_state_dict = load


def _timm(module: Any, told: Any) -> None:
    """``timm.create_model(..., pretrained=True)`` downloads by a function of its own."""
    original = module.load_pretrained

    @functools.wraps(original)
    def load(model: torch.nn.Module, *args: Any, **options: Any) -> None:
        try:
            original(model, *args, **options)
        except (OSError, ValueError) as failure:  # the hub's errors are both
            told(f"weights of {type(model).__name__} ({type(failure).__name__})")

    module.load_pretrained = load
