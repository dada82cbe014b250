"""Two ways to have tensors without memory: fake CUDA tensors (exact device type), plain ``meta`` tensors (portable, faster)."""

from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from vramcast.tracing.execution.kernels.remembered import Remembered
from vramcast.tracing.execution.stand_ins import fake_cuda

_CARD = torch.device("cuda", 0)
_HOST = torch.device("cpu")
# Views of a tensor whose shape functions are C++: nothing of the fake mode's own is needed for them but the device.
_VIEWS = frozenset(
    getattr(getattr(torch.ops.aten, name), overload)
    for name, overload in (
        ("t", "default"), ("view", "default"), ("_unsafe_view", "default"), ("detach", "default"), ("alias", "default"),
        ("slice", "Tensor"), ("select", "int"), ("transpose", "int"), ("permute", "default"), ("unsqueeze", "default"),
        ("squeeze", "dim"), ("expand", "default"), ("as_strided", "default"), ("split", "Tensor"),
        ("split_with_sizes", "default"), ("unbind", "int"),
    )
)  # fmt: skip

# These change the contents of their first argument and nothing else.
_FILLS = frozenset(
    getattr(getattr(torch.ops.aten, name), overload)
    for name, overload in (
        ("normal_", "default"), ("uniform_", "default"), ("random_", "default"), ("random_", "from"), ("bernoulli_", "float"),
        ("exponential_", "default"), ("zero_", "default"), ("fill_", "Scalar"),
    )
)  # fmt: skip


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
        unsafe = getattr(self.mode, "_allow_unsafe_data_ptr_access", True)
        self._guard = getattr(torch._C, f"_set_{'warn_deprecated' if unsafe else 'throw'}_on_mutable_data_ptr")
        self._alike = dict(vars(FakeTensor(self.mode, torch.empty(0, device="meta"), _CARD)))

    def is_device(self, value: Any) -> bool:
        """See Backend."""
        return isinstance(value, FakeTensor) and value.fake_device.type == "cuda"

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """See Backend."""
        if func in _VIEWS and not kwargs and self._is_plain(args[0]):
            with in_kernel_invocation_manager(self.mode):
                seen = func(*args)
            return self._of_meta(seen) if isinstance(seen, torch.Tensor) else list(map(self._of_meta, seen))
        if func in _FILLS and self._is_plain(args[0]):
            return args[0]
        return self._remembered.call(func, args, kwargs)

    def empty_like_real(self, real: torch.Tensor) -> torch.Tensor:
        """See Backend."""
        with self.mode:
            return torch.empty(real.shape, dtype=real.dtype, device="cuda")

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = tree_map_only(torch.Tensor, self._fake, (args, kwargs))
        with self.mode:
            return func(*args, **kwargs)

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """A real tensor of the host as a fake one, which the fake mode would make with the help of Dynamo."""
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device != _HOST or tensor.layout is not torch.strided:
            return tensor
        if tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
            return tensor
        with _disable_current_modes():
            same = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            return FakeTensor(self.mode, same, _HOST)

    def _is_plain(self, tensor: torch.Tensor) -> bool:
        if type(tensor) is not FakeTensor or tensor.fake_device != _CARD or tensor.constant is not None:
            return False
        return tensor.layout is torch.strided and not tensor.dtype.is_complex

    def _make(self, shape: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        return self._of_meta(torch.empty_strided(shape, stride, dtype=dtype, device="meta"))

    def _of_meta(self, plain: torch.Tensor) -> torch.Tensor:
        """A meta tensor as a fake one on the card, as its class makes it, but without looking at its arguments: 5 us, not 25."""
        made = torch.Tensor._make_subclass(FakeTensor, plain, False, dispatch_device=True, device_for_backend_keys=_CARD)
        self._guard(made)
        vars(made).update(self._alike)
        return made


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
