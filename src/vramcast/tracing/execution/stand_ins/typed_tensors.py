"""The older names of types on a card: ``torch.cuda.FloatTensor`` and its kin, ``tensor.type(...)`` and ``tensor.new(...)``.

A CPU build refuses them below every mode. They are classes in name alone: called they make a tensor, and a tensor of their type
on the card is an instance of theirs.
"""

import functools
from typing import Any

import torch

_TYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16, "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64, "IntTensor": torch.int32, "ShortTensor": torch.int16, "CharTensor": torch.int8,
    "ByteTensor": torch.uint8, "BoolTensor": torch.bool,
}  # fmt: skip


class _OnCard(type):
    dtype: torch.dtype
    is_cuda = True

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype == cls.dtype

    def __call__(cls, *given: Any, **_: Any) -> torch.Tensor:
        return _made(given, cls.dtype)


def install() -> None:
    """Put them into torch.cuda, and teach ``type``, ``new`` and ``set_default_tensor_type`` about them."""
    known: dict[str, Any] = {}
    for name, dtype in _TYPES.items():
        made = _OnCard(name, (), {"dtype": dtype, "__module__": "torch.cuda"})
        setattr(torch.cuda, name, made)
        known[f"torch.cuda.{name}"] = made
    torch.Tensor.type = _typing(torch.Tensor.type, known)
    torch.Tensor.new = _new(torch.Tensor.new)
    torch.set_default_tensor_type = _by_default(torch.set_default_tensor_type, known)


def _made(given: tuple[Any, ...], dtype: torch.dtype) -> torch.Tensor:
    """As legacy constructors read their arguments: sizes, or one value to copy."""
    if len(given) == 1 and not isinstance(given[0], int | torch.Size):
        return torch.as_tensor(given[0]).to(device="cuda", dtype=dtype)
    sizes = given[0] if len(given) == 1 and isinstance(given[0], torch.Size) else given or (0,)
    return torch.empty(tuple(sizes), dtype=dtype, device="cuda")


def _typing(original: Any, known: dict[str, Any]) -> Any:
    named = {kind.dtype: name for name, kind in known.items()}

    @functools.wraps(original)
    def convert(tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **options: Any) -> Any:
        if dtype is None:
            return named.get(tensor.dtype, original(tensor)) if tensor.is_cuda else original(tensor)
        wanted = known.get(dtype, dtype) if isinstance(dtype, str) else dtype
        if isinstance(wanted, _OnCard):
            return tensor.to(device="cuda", dtype=wanted.dtype, non_blocking=non_blocking)
        return original(tensor, dtype, non_blocking, **options)

    return convert


def _new(original: Any) -> Any:
    @functools.wraps(original)
    def new(tensor: torch.Tensor, *given: Any, **options: Any) -> Any:
        return _made(given, tensor.dtype) if tensor.is_cuda and not options else original(tensor, *given, **options)

    return new


def _by_default(original: Any, known: dict[str, Any]) -> Any:
    def choose(kind: Any) -> None:
        wanted = known.get(kind, kind) if isinstance(kind, str) else kind
        if not isinstance(wanted, _OnCard):
            return original(kind)  # type: ignore[no-any-return]
        torch.set_default_dtype(wanted.dtype)
        torch.set_default_device("cuda")
        return None

    return choose
