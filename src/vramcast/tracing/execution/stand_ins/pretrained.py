"""Published weights that a program asks a server for: where there is no network, the model keeps the ones it was made with.

A trace needs no values. What hangs on the shapes in a file, such as a model made from a checkpoint, still fails and says so.
"""

import functools
import re
from typing import Any

import torch

from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported

_PROGRESS = re.compile(r"((start|last|global|current|cur)_)?(epoch|step|iter|iter_num|iteration)|best(_\w*)?", re.IGNORECASE)
_SHAPES = re.compile(
    r"arg|conf|cfg|param(?!_groups)|setting|hyper|vocab|size|dim|tokens?$|itos|stoi|classes|labels", re.IGNORECASE
)


class _Shaping(dict[str, Any]):
    """A part of a checkpoint that shapes a model, such as its arguments: nobody may take it for empty."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError(f"the checkpoint is not here, and its {self._key!r} shapes what is made of it")

    __iter__ = __len__ = __bool__ = __missing__ = keys = values = items = get = pop = _refuse


class Unread(dict[str, Any]):
    """The tensors of a file that was not read: empty, whatever part of it is asked for; how far a run had come is nowhere.

    What shapes a model (its arguments) is no number, and rows are not counted by number: a program that builds one of it, or
    takes the file for a data set, fails and says so. On a card it is as large as the modules that were loaded from it.
    """

    handed_out = False

    def __init__(self, path: str = "", card: torch.device | None = None) -> None:
        super().__init__()
        self._path, self._card = path, card
        self._held: list[torch.Tensor] = []
        Unread.handed_out = True

    def hold(self, module: torch.nn.Module) -> None:
        """Take the memory on the card that the module's tensors have in the file, until nobody holds this any more."""
        if self._card is not None:
            self._held += [torch.empty_like(each, device=self._card) for each in module.state_dict().values() if _is_tensor(each)]

    def __missing__(self, key: Any) -> Any:
        if not isinstance(key, str | tuple):
            raise RuntimeError(
                f"{self._path or 'the file'} is not here, and its tensors are taken by number: how many it holds is not known"
            )
        if isinstance(key, str) and _SHAPES.search(key):
            return _Shaping(key)
        return 0 if isinstance(key, str) and _PROGRESS.fullmatch(key) else self

    def __getitem__(self, key: Any) -> Any:
        """A part; rows of a tensor, whose slices no dictionary can look up, fail as what is taken by number does."""
        parts = key if isinstance(key, tuple) else (key,)
        return self.__missing__(0) if any(isinstance(part, slice) for part in parts) else super().__getitem__(key)

    def pop(self, key: str, *_: Any) -> Any:
        """There is nothing under any name."""
        del key


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


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
    when_imported("torch.utils.model_zoo", lambda module: setattr(module, "load_url", from_url))
    _loading_nothing()
    when_imported("torchvision._internally_replaced_utils", lambda module: setattr(module, "load_state_dict_from_url", from_url))
    when_imported("timm.models._builder", lambda module: _timm(module, told))
    when_imported("timm.models._factory", _timm_of_ones_own)


def _loading_nothing() -> None:
    """Let modules, optimizers and what goes with them stay as they were made; also where a program picks parts of nothing."""
    original = torch.nn.Module.load_state_dict

    @functools.wraps(original)
    def load(module: torch.nn.Module, state: Any, *args: Any, **options: Any) -> Any:
        if isinstance(state, Unread) or (Unread.handed_out and not state):
            if isinstance(state, Unread):
                state.hold(module)
            return torch.nn.modules.module._IncompatibleKeys([], [])
        return original(module, state, *args, **options)

    torch.nn.Module.load_state_dict = load
    for owner in (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler):
        owner.load_state_dict = _unless_unread(owner.load_state_dict)


def _unless_unread(original: Any) -> Any:
    @functools.wraps(original)
    def load(holder: Any, state: Any, *args: Any, **options: Any) -> Any:
        return None if isinstance(state, Unread) else original(holder, state, *args, **options)

    return load


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


_LATER = ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")


def _timm_of_ones_own(module: Any) -> None:
    """A program's own function under ``register_model`` takes what timm gave it before 0.6 (models/factory.py of 0.5.4)."""
    original = module.model_entrypoint

    @functools.wraps(original)
    def entry(*args: Any, **options: Any) -> Any:
        function = original(*args, **options)
        code = getattr(function, "__code__", None)
        if code is None or is_library(code.co_filename):
            return function
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @functools.wraps(function)
        def make(*given: Any, **further: Any) -> Any:
            empty = [name for name in _LATER if name not in named and further.get(name, "") is None]
            return function(*given, **{name: value for name, value in further.items() if name not in empty})

        return make

    module.model_entrypoint = entry
