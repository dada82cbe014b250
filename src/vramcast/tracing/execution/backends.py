"""Two ways to have tensors without memory: fake CUDA tensors (exact device type), plain ``meta`` tensors (portable, faster)."""

from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from vramcast.tracing.execution.kernels.remembered import Remembered
from vramcast.tracing.execution.stand_ins import fake_cuda

_CARD = torch.device("cuda", 0)


class Backend(Protocol):
    """What the tracing mode asks of a backend."""

    device_type: str
    attention_keys: tuple[str, ...]

    def is_device(self, value: Any) -> bool:
        """True for a tensor that stands for one on the traced GPU."""

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that touches the traced device."""

    def empty_like_real(self, real: torch.Tensor) -> torch.Tensor:
        """A device tensor with the shape and type of a real one."""


class FakeCuda(Backend):
    """Fake tensors on device "cuda": autocast, device checks, streams and distributed code behave as on a GPU.

    Fakeness is scoped: only operators with a fake argument or a CUDA device go to the fake mode; CPU tensors stay real, so data
    loaders, step counters and the like work.
    """

    device_type = "cuda"
    attention_keys = ("AutogradCUDA", "CUDA")

    def __init__(self) -> None:
        fake_cuda.install()
        FakeTensorMode.avoid_device_init = property(lambda _: True)
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._remembered = Remembered(self._run, plain=self._is_plain, make=self._make)

    def is_device(self, value: Any) -> bool:
        """See Backend."""
        return isinstance(value, FakeTensor) and value.fake_device.type == "cuda"

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """See Backend."""
        return self._remembered.call(func, args, kwargs)

    def empty_like_real(self, real: torch.Tensor) -> torch.Tensor:
        """See Backend."""
        with self.mode:
            return torch.empty(real.shape, dtype=real.dtype, device="cuda")

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self.mode:
            return func(*args, **kwargs)

    def _is_plain(self, tensor: torch.Tensor) -> bool:
        if type(tensor) is not FakeTensor or tensor.fake_device.type != "cuda" or tensor.constant is not None:
            return False
        return tensor.layout is torch.strided and not tensor.dtype.is_complex

    def _make(self, shape: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        return FakeTensor(self.mode, torch.empty_strided(shape, stride, dtype=dtype, device="meta"), _CARD)


class Meta(Backend):
    """Plain meta tensors: no private symbol of torch is needed, but ``torch.autocast("cuda")`` and device checks do not apply."""

    device_type = "meta"
    attention_keys = ("AutogradMeta",)

    def __init__(self) -> None:
        self._remembered = Remembered(_run, plain=_is_plain_meta, make=_make_meta)

    def is_device(self, value: Any) -> bool:
        """See Backend."""
        return isinstance(value, torch.Tensor) and value.device.type == "meta"

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """See Backend."""
        return self._remembered.call(func, args, kwargs)

    def empty_like_real(self, real: torch.Tensor) -> torch.Tensor:
        """See Backend."""
        return torch.empty(real.shape, dtype=real.dtype, device="meta")


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


def _is_plain_meta(tensor: torch.Tensor) -> bool:
    own = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return own and tensor.is_meta and tensor.layout is torch.strided and not tensor.dtype.is_complex


def _make_meta(shape: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")


def open_backend(name: str) -> Backend:
    """The backend of that name: "cuda" or "meta". Raises FakeCudaError when this torch cannot do fake CUDA."""
    return FakeCuda() if name == "cuda" else Meta()
