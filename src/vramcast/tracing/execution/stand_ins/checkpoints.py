"""Files and arrays of tensors without values: checkpoints are read but not filled in, arrays hold ones.

A checkpoint of such tensors is written into the scratch layer of the program's files, as its shapes, in as many bytes as it would
have; where there is no such layer it is kept in memory and no file is written.
"""

import functools
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only

from vramcast.tracing.execution.overlay import Overlay
from vramcast.tracing.execution.session import Session

_LARGEST_FILLED = 1 << 24  # elements
_UNWRITTEN = "a checkpoint was not written: its tensors have no values"


def install(session: Session, scratch: Overlay | None = None) -> None:
    """Patch torch.load, torch.save, safetensors' writer, the way from a tensor to an array, and pickling."""
    written: dict[str, bytes] = {}
    FakeTensor.__reduce_ex__ = lambda tensor, _: (
        _again,
        (tuple(tensor.shape), tensor.dtype, str(tensor.device), tensor.requires_grad),
    )
    torch.serialization.add_safe_globals([_again])
    torch.load = _loading(torch.load, written, scratch)
    torch.save = _saving(torch.save, session, written) if scratch is None else _saving_to_scratch(torch.save, scratch)
    _safetensors(session, scratch)
    torch.load, torch.save = _staged(torch.load, session, "loading"), _staged(torch.save, session, "saving")
    FakeTensor.numpy = functools.partialmethod(_array, session)


def _staged(function: Any, session: Session, stage: str) -> Any:
    """The function as a stage of the job's life."""

    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        with session.within(stage):
            return function(*args, **options)

    return run


def _again(shape: tuple[int, ...], dtype: torch.dtype, device: str, wanted: bool) -> torch.Tensor:
    """A tensor like the one that was saved, on its device."""
    return torch.empty(shape, dtype=dtype, device=device, requires_grad=wanted)


def _file_of(place: Any) -> str:
    """The file that a path or an open file means; "" for anything else."""
    named = place if isinstance(place, str | os.PathLike) else getattr(place, "name", None)
    return str(Path(named).resolve()) if isinstance(named, str | os.PathLike) else ""


def _loading(original: Any, written: dict[str, bytes], scratch: Overlay | None) -> Any:
    """A checkpoint stays on disk, mapped into memory; what was asked onto the GPU becomes a tensor there without being read.

    What the program itself saved comes back from memory: it was never written.
    """

    def load(source: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        if scratch is not None and isinstance(source, str | os.PathLike):
            source = scratch.seen(os.fspath(source))
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


def _saving_to_scratch(original: Any, scratch: Overlay) -> Any:
    """A file that the program names is written in the scratch layer, as long as its tensors would make it."""

    def save(value: Any, target: Any = None, *args: Any, **options: Any) -> None:
        if not isinstance(target, str | os.PathLike):
            return original(value, target, *args, **options)  # type: ignore[no-any-return]
        place = scratch.changed(os.fspath(target), fresh=True)
        original(value, place, *args, **options)
        parts = value.state_dict() if isinstance(value, torch.nn.Module) else value
        unheld = sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(parts) if isinstance(leaf, FakeTensor))
        scratch.note_size(place, unheld)
        return None

    return save


def _safetensors(session: Session, scratch: Overlay | None) -> None:
    try:
        import safetensors.torch as writer
    except ImportError:
        return
    for name in ("save_file", "save_model"):
        original = getattr(writer, name)
        save = _saving(original, session) if scratch is None else _shaping(original, scratch)
        setattr(writer, name, _staged(save, session, "saving"))


def _shaping(original: Any, scratch: Overlay) -> Any:
    """A file of safetensors whose tensors have no values: its header, and zeros that take no room on the disk."""

    def save(value: Any, filename: Any, metadata: dict[str, str] | None = None, **options: Any) -> None:
        place = scratch.changed(os.fspath(filename), fresh=True)
        tensors = value.state_dict() if isinstance(value, torch.nn.Module) else value
        if not any(isinstance(tensor, FakeTensor) for tensor in tensors.values()):
            return original(value, place, metadata, **options)  # type: ignore[no-any-return]
        header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
        end = 0
        for name, tensor in tensors.items():
            begin, end = end, end + tensor.numel() * tensor.element_size()
            header[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        written = json.dumps(header).encode()
        written += b" " * (-len(written) % 8)
        with Path(place).open("wb") as file:
            file.write(len(written).to_bytes(8, "little") + written)
            file.truncate(8 + len(written) + end)
        return None

    return save


# The format's names of element types (safetensors, bindings/python/py_src/safetensors/torch.py).
_TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip


def _array(tensor: torch.Tensor, session: Session, *_: Any, **__: Any) -> Any:
    """An array of ones in the tensor's shape, a large one of zeros, whose pages the host never fills; it counts as a guess."""
    fill = torch.ones if tensor.numel() <= _LARGEST_FILLED else torch.zeros
    session.mode.guessed[f"numpy() in {session.places.here()[0] or 'the program'}"] += 1
    with session.mode.quiet():
        return fill(tuple(tensor.shape), dtype=tensor.dtype, device="cpu").detach().numpy()
