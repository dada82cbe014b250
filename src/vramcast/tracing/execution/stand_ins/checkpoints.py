"""Files and arrays of tensors without values: checkpoints are read but not filled in, none is written, arrays hold ones."""

import functools
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only

from vramcast.tracing.execution.session import Session

_LARGEST_FILLED = 1 << 24  # elements
_UNWRITTEN = "a checkpoint was not written: its tensors have no values"


def install(session: Session) -> None:
    """Patch torch.load, torch.save, safetensors' writer, the way from a tensor to an array, and pickling."""
    written: dict[str, bytes] = {}
    FakeTensor.__reduce_ex__ = lambda tensor, _: (
        _again,
        (tuple(tensor.shape), tensor.dtype, str(tensor.device), tensor.requires_grad),
    )
    torch.serialization.add_safe_globals([_again])
    torch.load = _loading(torch.load, written)
    torch.save = _saving(torch.save, session, written)
    _safetensors(session)
    FakeTensor.numpy = functools.partialmethod(_array, session)


def _again(shape: tuple[int, ...], dtype: torch.dtype, device: str, wanted: bool) -> torch.Tensor:
    """A tensor like the one that was saved, on its device."""
    return torch.empty(shape, dtype=dtype, device=device, requires_grad=wanted)


def _file_of(place: Any) -> str:
    """The file that a path or an open file means; "" for anything else."""
    named = place if isinstance(place, str | os.PathLike) else getattr(place, "name", None)
    return str(Path(named).resolve()) if isinstance(named, str | os.PathLike) else ""


def _loading(original: Any, written: dict[str, bytes]) -> Any:
    """A checkpoint stays on disk, mapped into memory; what was asked onto the GPU becomes a tensor there without being read.

    What the program itself saved comes back from memory: it was never written.
    """

    def load(source: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        own = written.get(_file_of(source))
        if own is not None:
            source = io.BytesIO(own)
        elif isinstance(source, str | Path) and zipfile.is_zipfile(source):
            options["mmap"] = True
        found = original(source, "cpu", *args, **options)
        wanted = map_location if isinstance(map_location, str | torch.device) else None
        return found if wanted is None else tree_map_only(torch.Tensor, lambda tensor: tensor.to(wanted), found)

    return load


def _saving(original: Any, session: Session, written: dict[str, bytes] | None = None) -> Any:
    """Tensors without values are kept as their shapes, in memory; anything else is saved as the program asks."""

    def save(value: Any, target: Any = None, *args: Any, **options: Any) -> None:
        parts = value.state_dict() if isinstance(value, torch.nn.Module) else value
        if not any(isinstance(leaf, FakeTensor) for leaf in tree_leaves(parts)):
            original(value, target, *args, **options)
            return
        session.notes[_UNWRITTEN] = None
        if written is not None and (file := _file_of(target)):
            kept = io.BytesIO()
            original(value, kept, *args, **options)
            written[file] = kept.getvalue()

    return save


def _safetensors(session: Session) -> None:
    try:
        import safetensors.torch as writer
    except ImportError:
        return
    for name in ("save_file", "save_model"):
        setattr(writer, name, _saving(getattr(writer, name), session))


def _array(tensor: torch.Tensor, session: Session, *_: Any, **__: Any) -> Any:
    """An array of ones in the tensor's shape, a large one of zeros, whose pages the host never fills; it counts as a guess."""
    fill = torch.ones if tensor.numel() <= _LARGEST_FILLED else torch.zeros
    session.mode.guessed[f"numpy() in {session.places.here()[0] or 'the program'}"] += 1
    with session.mode.quiet():
        return fill(tuple(tensor.shape), dtype=tensor.dtype, device="cpu").detach().numpy()
