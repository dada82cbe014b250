"""Places where libraries notice that a tensor is fake and then do something else than on a GPU.

Each function puts one of them right and names the symptom. They change library globals, which is one reason why a trace runs in
a process of its own.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramcast.tracing.execution.mode import TracingMode
from vramcast.tracing.execution.recorder import Recorder

_registered: list[Any] = []


def install(mode: TracingMode) -> None:
    """All patches of torch itself; those of other libraries are applied when the library is loaded."""
    fused_kernels()
    foreach_optimizers()
    module_conversion()
    data_assignment()
    tensors_of_tensors()
    gradient_scaling()
    storage_resizing(mode.recorder)
    sharding_propagation(mode)


def fused_kernels() -> None:
    """Operators with a kernel on CUDA only decompose on a CPU build: SiLU's backward became five operators.

    The three are what a comparison of the dispatch tables of torch's CPU and CUDA wheels (2.13) leaves.
    """
    if torch._C._dispatch_has_kernel_for_dispatch_key("aten::silu_backward", "CUDA"):
        return
    library = torch.library.Library("aten", "IMPL")
    _registered.append(library)
    for name in ("silu_backward", "mish_backward"):
        library.impl(name, lambda gradient, source: torch.empty_like(source), "CUDA")
    library.impl("_fused_rms_norm", _fused_rms_norm, "CUDA")


def _fused_rms_norm(source: torch.Tensor, shape: list[int], weight: Any, eps: Any) -> tuple[torch.Tensor, torch.Tensor]:
    del weight, eps
    kept = [*source.shape[: -len(shape)], *([1] * len(shape))]
    return torch.empty_like(source), torch.empty(kept, device=source.device, dtype=torch.float32)


def foreach_optimizers() -> None:
    """Optimizers choose their multi-tensor form by exact type; without it a full-size temporary of AdamW is missed."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    if FakeTensor not in optimizer._foreach_supported_types:
        optimizer._foreach_supported_types.append(FakeTensor)
    for module in (optimizer, _foreach_utils):
        module._get_foreach_kernels_supported_devices = lambda: ["cuda", "meta"]
    _foreach_utils._get_fused_kernels_supported_devices = lambda: ["cuda", "cpu", "meta"]


def module_conversion() -> None:
    """Module.to() swaps tensors in place, which fake tensors refuse: replace the parameter instead; skip what is no change."""
    from torch.distributed.tensor import DTensor

    original = torch.nn.Module._apply

    def apply(module: torch.nn.Module, convert: Any, recurse: bool = True) -> torch.nn.Module:
        if recurse:
            for child in module.children():
                child._apply(convert)
        own = [p for p in module._parameters.values() if p is not None]
        if any(isinstance(p, DTensor) for p in own):
            return original(module, convert, recurse=False)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                _convert(module, name, parameter, convert)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = convert(buffer)
        return module

    torch.nn.Module._apply = apply


def _convert(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter, convert: Any) -> None:
    with torch.no_grad():
        converted = convert(parameter)
    if converted is parameter:
        return
    if not isinstance(parameter, FakeTensor) and not isinstance(converted, FakeTensor) and not converted.is_meta:
        parameter.data = converted
        return
    fresh = torch.nn.Parameter(converted, parameter.requires_grad)
    if parameter.grad is not None:
        with torch.no_grad():
            fresh.grad = convert(parameter.grad)
    del converted
    if not _take_over(parameter, fresh):
        module._parameters[name] = fresh


def _take_over(old: Any, new: Any) -> bool:
    """Make ``old`` be the new tensor, so that optimizers made before a conversion keep the right parameter; False if it cannot.

    What torch.utils.swap_tensors does, without its refusal of weak references: the tracer's own ones are keyed by identity.
    """
    try:
        torch._C._swap_tensor_impl(old, new)
    except RuntimeError:
        return False
    old.__class__, new.__class__ = new.__class__, old.__class__
    old.__dict__, new.__dict__ = new.__dict__, old.__dict__
    return True


def data_assignment() -> None:
    """``parameter.data = other`` moves a parameter to another device; a fake tensor's device is beside what PyTorch copies."""
    original = torch._C.TensorBase.data

    def assign(tensor: torch.Tensor, value: torch.Tensor) -> None:
        if isinstance(value, FakeTensor) and not isinstance(tensor, FakeTensor):
            wanted = tensor.requires_grad
            fresh = torch.nn.Parameter(value, wanted) if isinstance(tensor, torch.nn.Parameter) else value.detach()
            _take_over(tensor, fresh)
            return
        original.__set__(tensor, value)
        if isinstance(value, FakeTensor):
            tensor.fake_device = value.fake_device

    torch.Tensor.data = property(original.__get__, assign)


def tensors_of_tensors() -> None:
    """``torch.tensor([a, b])`` reads device scalars below every mode: they are asked for their values one by one instead."""
    original = torch.tensor

    def tensor(data: Any, *args: Any, **options: Any) -> torch.Tensor:
        return original(_plain_values(data), *args, **options)

    torch.tensor = tensor


def _plain_values(data: Any) -> Any:
    if not isinstance(data, list | tuple) or not data or not isinstance(data[0], list | tuple | torch.Tensor):
        return data
    return [item.tolist() if isinstance(item, FakeTensor) else _plain_values(item) for item in data]


def gradient_scaling() -> None:
    """GradScaler reads whether a gradient overflowed; no value is known here, and a real run goes on to step."""

    def step(scaler: Any, optimizer: torch.optim.Optimizer, state: Any, *args: Any, **kwargs: Any) -> Any:
        del scaler, state
        return optimizer.step(*args, **kwargs)

    torch.amp.grad_scaler.GradScaler._maybe_opt_step = step


def storage_resizing(recorder: Recorder) -> None:
    """FSDP frees and refills storages with resize_, which no operator shows."""
    original = torch.UntypedStorage.resize_

    def resize(storage: torch.UntypedStorage, size: int) -> None:
        original(storage, size)
        recorder.resize(storage)

    torch.UntypedStorage.resize_ = resize


def sharding_propagation(mode: TracingMode) -> None:
    """DTensor works out result shapes on full-size fake tensors, which a GPU never holds: not recorded."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    original = ShardingPropagator._propagate_tensor_meta_non_cached

    def propagate(propagator: Any, *args: Any, **kwargs: Any) -> Any:
        with mode.quiet():
            return original(propagator, *args, **kwargs)

    ShardingPropagator._propagate_tensor_meta_non_cached = propagate


def transformers() -> None:
    """Transformers takes fake tensors for a graph capture and builds full masks, which rules the flash kernel out."""
    import transformers.utils.import_utils as utilities

    utilities.is_fake_tensor = lambda _: False


def four_bit_if_present(session: Any) -> None:
    """bitsandbytes, when the program has it."""
    import importlib.util

    if importlib.util.find_spec("bitsandbytes") is not None:
        from vramcast.tracing.execution import four_bit

        four_bit.install(session)
