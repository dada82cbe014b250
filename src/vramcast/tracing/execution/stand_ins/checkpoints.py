"""Files and arrays of tensors without values: checkpoints are read but not filled in, none is written, arrays hold ones."""

import functools
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only

from vramcast.tracing.execution.session import Session

_LARGEST_ARRAY = 1 << 24  # elements
_UNWRITTEN = "a checkpoint was not written: its tensors have no values"


def install(session: Session) -> None:
    """Patch torch.load, torch.save, safetensors' writer and the way from a tensor to an array."""
    torch.load = _loading(torch.load)
    torch.save = _saving(torch.save, session)
    _safetensors(session)
    FakeTensor.numpy = functools.partialmethod(_array, session)


def _loading(original: Any) -> Any:
    """A checkpoint stays on disk, mapped into memory; what was asked onto the GPU becomes a tensor there without being read."""

    def load(source: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(source, str | Path) and zipfile.is_zipfile(source):
            options["mmap"] = True
        found = original(source, "cpu", *args, **options)
        wanted = map_location if isinstance(map_location, str | torch.device) else None
        return found if wanted is None else tree_map_only(torch.Tensor, lambda tensor: tensor.to(wanted), found)

    return load


def _saving(original: Any, session: Session) -> Any:
    def save(value: Any, *args: Any, **options: Any) -> None:
        parts = value.state_dict() if isinstance(value, torch.nn.Module) else value
        if any(isinstance(leaf, FakeTensor) for leaf in tree_leaves(parts)):
            session.notes[_UNWRITTEN] = None
        else:
            original(value, *args, **options)

    return save


def _safetensors(session: Session) -> None:
    try:
        import safetensors.torch as writer
    except ImportError:
        return
    for name in ("save_file", "save_model"):
        setattr(writer, name, _saving(getattr(writer, name), session))


def _array(tensor: torch.Tensor, session: Session, *_: Any, **__: Any) -> Any:
    """An array of ones in the tensor's shape; it counts as a guess."""
    if tensor.numel() > _LARGEST_ARRAY:
        raise RuntimeError(f"the program asks for {tensor.numel():,} values of a tensor that has none under the tracer")
    session.mode.guessed[f"numpy() in {session.places.here()[0] or 'the program'}"] += 1
    with session.mode.quiet():
        return torch.ones(tuple(tensor.shape), dtype=tensor.dtype, device="cpu").detach().numpy()
