"""Functions and classes called with the arguments of earlier versions (``moved.toml``, calls), each with a note."""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from vramcast.tracing.execution.places import is_library
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.published.moved import Call, moved

Told = Callable[[str, str], None]


def teller(session: Session) -> Told:
    """What notes an argument, and what it is called today."""

    def tell(name: str, now: str) -> None:
        session.notes[f"{name} is an argument of an earlier version: {now}"] = None

    return tell


def install(session: Session) -> None:
    """Answer for every function and class of the table but those that have more to them (``older_arguments``)."""
    told = teller(session)
    _spectra(told)
    _views(session)
    for place, call in moved().calls.items():
        module, _, name = place.partition(":")
        if not module.startswith("trl."):
            when_imported(module, functools.partial(_patch, name, call, told))
    for place, methods in moved().methods.items():
        module, _, name = place.partition(":")
        when_imported(module, functools.partial(_name_methods, name, methods, session))


def _spectra(told: Told) -> None:
    """Let ``torch.stft`` of real numbers give pairs of them, as it did where nothing was said (torch/functional.py of 1.13)."""
    import torch

    original = torch.stft

    @functools.wraps(original)
    def stft(input: Any, *args: Any, return_complex: bool | None = None, **options: Any) -> Any:  # noqa: A002
        if return_complex is not None or len(args) >= _STFT_BY_PLACE or input.is_complex():
            return original(input, *args, return_complex=return_complex, **options)
        told("stft without return_complex", "its complex numbers are seen as pairs")
        return torch.view_as_real(original(input, *args, return_complex=True, **options))

    torch.stft = stft


def _views(session: Session) -> None:
    """Let a program's own view of a comparison succeed: torch before 1.7 wrote those in one piece, whatever was compared.

    ``pred.t().eq(target)[:k].view(-1)``, as examples of before count what is right (imagenet/main.py of 2019).
    """
    import torch

    original = torch.Tensor.view

    @functools.wraps(original)
    def view(tensor: Any, *shape: Any, **named: Any) -> Any:
        try:
            return original(tensor, *shape, **named)
        except RuntimeError as failure:
            own = not is_library(sys._getframe(1).f_code.co_filename)
            if tensor.dtype != torch.bool or not own or "spans across two contiguous subspaces" not in str(failure):
                raise
        session.notes["the view of a comparison that is not in one piece is of torch before 1.7: it is copied"] = None
        return tensor.reshape(*shape, **named)

    torch.Tensor.view = view


_STFT_BY_PLACE = 8  # n_fft to onesided stand before return_complex


def _patch(name: str, call: Call, told: Told, module: Any) -> None:
    owner = getattr(module, name)
    if isinstance(owner, type):
        owner.__init__ = adapted(owner.__init__, name, call, told)  # type: ignore[misc]
    else:
        setattr(module, name, adapted(owner, name, call, told))


def _name_methods(name: str, methods: Mapping[str, str], session: Session, module: Any) -> None:
    """Give a class the methods of before, each with a note where it is called."""
    owner = getattr(module, name)
    for before, now in methods.items():
        if not hasattr(owner, before):

            def call(self: Any, *args: Any, _before: str = before, _now: str = now, **options: Any) -> Any:
                session.notes[f"{name}.{_before} is of an earlier version: {_now} is called"] = None
                return getattr(self, _now)(*args, **options)

            setattr(owner, before, call)


def adapted(original: Callable[..., Any], name: str, call: Call, told: Told) -> Callable[..., Any]:
    """The function with its arguments of before taken as well. A method's first argument is its object."""
    bare = original is object.__init__  # it takes nothing at all
    parameters = {} if bare else inspect.signature(original).parameters
    most = 1 if bare else _by_place(parameters)

    @functools.wraps(original)
    def take(*args: Any, **options: Any) -> Any:
        if call.by_script and is_library(sys._getframe(1).f_code.co_filename):
            return original(*args, **options)
        further = args[most:]
        if further and call.by_place:
            later = dict(zip(call.by_place[most:], further, strict=False))
            args, options = args[:most], later | options
            told(f"{name}'s {', '.join(later)}", "passed by name")
        elif further and call.gone:
            args = args[:most]
            told(f"{name}'s {call.gone[0]}", "left out, no memory of a card hangs on it")
        return original(*args, **by_todays_names(options, parameters, name, call, told))

    return take


def _by_place(parameters: Mapping[str, inspect.Parameter]) -> int:
    """How many arguments are taken by place; very many where any number is."""
    kinds = [parameter.kind for parameter in parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return sys.maxsize
    return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)


def by_todays_names(options: Mapping[str, Any], known: Mapping[str, Any], name: str, call: Call, told: Told) -> dict[str, Any]:
    """Arguments by name with the names of today; those that are known, and those that no table holds, stay."""
    made: dict[str, Any] = {}
    for key, value in options.items():
        if key in known or key not in call.now.keys() | set(call.gone):
            made[key] = value
        elif key in call.now:
            made.setdefault(call.now[key], value)
            told(f"{name}'s {key}", f"passed as {call.now[key]}")
        else:
            told(f"{name}'s {key}", "left out, no memory of a card hangs on it")
    return made
