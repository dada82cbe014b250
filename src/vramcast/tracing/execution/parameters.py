"""Parameters that become others: moved, filled anew, made by their class. PyTorch changes them in place, fake ones refuse it."""

import sys
import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor


def install() -> None:
    """All of them; they stay for the life of the process."""
    module_conversion()
    data_assignment()
    parameters_by_class()
    swapping()


def module_conversion() -> None:
    """Module.to() swaps tensors in place, which fake tensors refuse: replace the parameter instead; skip what is no change."""
    original = torch.nn.Module._apply

    def apply(module: torch.nn.Module, convert: Any, recurse: bool = True) -> torch.nn.Module:
        if recurse:
            for child in module.children():
                child._apply(convert)
        own = [p for p in module._parameters.values() if p is not None]
        if any(map(_is_divided, own)):
            return original(module, convert, recurse=False)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                _convert(module, name, parameter, convert)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = convert(buffer)
        return module

    torch.nn.Module._apply = apply


def _is_divided(parameter: torch.nn.Parameter) -> bool:
    """True for a DTensor, of which there is none before its module is imported."""
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return kind is not None and isinstance(parameter, kind)


def _convert(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter, convert: Any) -> None:
    with torch.no_grad():
        converted = convert(parameter)
    if converted is parameter:
        return
    if not isinstance(parameter, FakeTensor) and not isinstance(converted, FakeTensor) and not converted.is_meta:
        parameter.data = converted
        return
    fresh = torch.nn.Parameter(converted, parameter.requires_grad)
    fresh.__dict__.update(_noted_on(parameter))
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
            fresh.__dict__.update(_noted_on(tensor))
            _take_over(tensor, fresh)
            return
        original.__set__(tensor, value)
        if isinstance(value, FakeTensor):
            tensor.fake_device = value.fake_device

    torch.Tensor.data = property(original.__get__, assign)


_OF_A_FAKE = frozenset({
    "requires_grad", "fake_device", "_fake_device", "fake_mode", "constant", "real_tensor", "_vramcast_followed",
})  # fmt: skip


def _noted_on(tensor: torch.Tensor) -> dict[str, Any]:
    """What programs wrote on a tensor (a label, a learning rate): PyTorch keeps it where a tensor moves."""
    return {name: value for name, value in tensor.__dict__.items() if name not in _OF_A_FAKE}


def parameters_by_class() -> None:
    """Libraries make a parameter anew by its class, ``type(old)(data, requires_grad)``; here it is that of any fake tensor."""
    original = FakeTensor.__new__

    def new(kind: Any, *args: Any, **options: Any) -> Any:
        if args and isinstance(args[0], torch.Tensor):
            wanted = options.get("requires_grad", args[1] if len(args) > 1 else True)
            fresh = torch.nn.Parameter(args[0], wanted)
            fresh.__dict__.update({n: v for n, v in options.items() if n not in _OF_A_FAKE})  # passed on of the old one
            return fresh
        return original(kind, *args, **options)

    FakeTensor.__new__ = new


def swapping() -> None:
    """``swap_tensors`` refuses tensors that are weakly referred to, as those are whose values the tracer follows."""
    original = torch.utils.swap_tensors

    def swap(old: torch.Tensor, new: torch.Tensor) -> None:
        if weakref.getweakrefs(old) or weakref.getweakrefs(new):
            _take_over(old, new)
        else:
            original(old, new)

    torch.utils.swap_tensors = swap
