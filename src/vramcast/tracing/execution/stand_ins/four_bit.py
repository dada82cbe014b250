"""bitsandbytes on fake tensors: 4-bit parameters that need no subclass, and paged state outside the caching allocator."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramcast.tracing.execution.session import Session
from vramcast.tracing.libraries import installed


def install(session: Session) -> None:
    """Patch bitsandbytes for this session. Paged optimizer state is managed memory, outside the caching allocator."""
    with _without_a_driver():
        if _release() < _ALWAYS_WHOLE:
            _pretend_compiled()
        import bitsandbytes
        from bitsandbytes import functional

    _fake_parameters(bitsandbytes.nn.Params4bit)
    if not hasattr(torch.ops.bitsandbytes, "dequantize_4bit"):
        _launch_nothing(functional)
    functional.get_paged = _paged(session)
    functional.is_on_gpu = lambda *_: True
    functional.fill = functional.prefetch_tensor = lambda *_, **__: None
    session.mode.reload_workspaces()


def _release() -> tuple[int, ...]:
    version = installed(("bitsandbytes",)).get("bitsandbytes")
    if version is None:
        raise ModuleNotFoundError("No module named 'bitsandbytes'", name="bitsandbytes")
    return tuple(int(part) for part in version.split(".")[:2])


def _pretend_compiled() -> None:
    """Before 0.43 the package leaves out its optimizers where it finds no CUDA library."""
    found: Any = ModuleType("bitsandbytes.cextension")
    found.lib, found.COMPILED_WITH_CUDA = _Kernels(), True
    sys.modules[found.__name__] = found


def _launch_nothing(functional: Any) -> None:
    """Before 0.46 the kernels are C functions called with pointers: what they fill, Python has allocated before the call."""
    functional.lib = _Kernels()
    functional.get_ptr = lambda _: None


class _Kernels:
    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@contextmanager
def _without_a_driver() -> Iterator[None]:
    """On import the package loads the library of torch's CUDA version, and old releases load parts of Triton that are gone."""
    pretended, torch.version.cuda = torch.version.cuda, None
    available, torch.cuda.is_available = torch.cuda.is_available, lambda: False
    hidden = sys.modules.get("triton")
    sys.modules["triton"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.version.cuda, torch.cuda.is_available = pretended, available
        del sys.modules["triton"]
        if hidden is not None:
            sys.modules["triton"] = hidden


_ALWAYS_WHOLE = (0, 43)
_FIELDS = {
    "blocksize": 64, "compress_statistics": True, "quant_type": "nf4", "quant_state": None, "quant_storage": torch.uint8,
    "bnb_quantized": False, "module": None,
}  # fmt: skip


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """A bitsandbytes 4-bit scheme. ``storage``: the type of tensor that holds the packed weights, two per byte in any type."""

    kind: str
    compute: torch.dtype
    storage: torch.dtype = torch.uint8
    double: bool = True


def quantize_linears(model: torch.nn.Module, *, scheme: Scheme, device: str) -> None:
    """Put a model built on meta onto the device, every linear layer but the head as a 4-bit one.

    As transformers loads for QLoRA: weight after weight, so that no two are there at full width, and without what its class
    keeps in float32 (quantizers/base.py, get_modules_to_not_convert). GPT-2's Conv1D, a linear layer whose weight lies the
    other way, is one of them (integrations/bitsandbytes.py, replace_with_bnb_linear).
    """
    import bitsandbytes
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    left = {"lm_head", *(getattr(model, "_keep_in_fp32_modules", None) or ())}
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, (torch.nn.Linear, Conv1D)) and name not in left and child is not head:
                setattr(module, name, _quantized(bitsandbytes, child, scheme, device))
    _announce(model, scheme)
    model._apply(lambda t: torch.empty_like(t, device=device) if t.is_meta and t.device.type == "meta" else t)


def _announce(model: torch.nn.Module, scheme: Scheme) -> None:
    """The attributes by which PEFT, the Trainer and plugins know such a model."""
    from transformers import BitsAndBytesConfig

    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_compute_dtype=scheme.compute,
        bnb_4bit_quant_type=scheme.kind,
        bnb_4bit_quant_storage=scheme.storage,
        bnb_4bit_use_double_quant=scheme.double,
    )
    model.is_loaded_in_4bit = model.is_quantized = True
    model.quantization_method = config.quant_method
    model.hf_quantizer = SimpleNamespace(is_trainable=True, is_qat_trainable=False, quantization_config=config)


def onto_host(model: torch.nn.Module) -> None:
    """Put a quantised model onto the host, as transformers leaves it for FSDP: every tensor but the scales of its weights."""
    moved = {parameter: _on_host(parameter) for parameter in model.parameters()}  # once, where several modules share it
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = moved[parameter]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.cpu()


def _on_host(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    if getattr(parameter, "_is_4bit", False):
        import bitsandbytes

        return bitsandbytes.nn.Params4bit(parameter.data.cpu(), **{name: getattr(parameter, name) for name in _FIELDS})
    return torch.nn.Parameter(parameter.data.cpu(), parameter.requires_grad)


def _quantized(bitsandbytes: Any, linear: Any, scheme: Scheme, device: str) -> torch.nn.Module:
    stored = {"compress_statistics": scheme.double, "quant_type": scheme.kind, "quant_storage": scheme.storage}
    weight = linear.weight if isinstance(linear, torch.nn.Linear) else linear.weight.T
    outputs, inputs = weight.shape
    layer = bitsandbytes.nn.Linear4bit(inputs, outputs, bias=False, compute_dtype=scheme.compute, device="meta", **stored)
    wide = torch.empty(outputs, inputs, dtype=weight.dtype, device=device)
    packed, state = bitsandbytes.functional.quantize_4bit(wide, blocksize=64, **stored)
    layer.weight = bitsandbytes.nn.Params4bit(
        packed, requires_grad=False, quant_state=state, bnb_quantized=True, module=layer, **stored
    )
    layer.quant_state = state
    layer.bias = linear.bias
    return layer


def _fake_parameters(kind: Any) -> None:
    original = kind.__new__
    named = type(kind.__name__, (FakeTensor,), {})  # TRL and PEFT know the class by its name

    def new(cls: Any, data: Any = None, requires_grad: bool = False, **fields: Any) -> Any:
        if not isinstance(data, FakeTensor):
            return original(cls, data, requires_grad, **fields)
        tensor = data.detach()
        tensor.__class__ = named
        tensor._is_param = tensor._is_4bit = True
        tensor.requires_grad_(requires_grad)
        for name, value in (_FIELDS | fields).items():
            setattr(tensor, name, value)
        return tensor

    kind.__new__ = new
    metaclass: Any = type(torch.nn.Parameter)
    checks = metaclass.__instancecheck__

    def is_instance(cls: Any, instance: Any) -> bool:
        return bool((cls is kind and getattr(instance, "_is_4bit", False)) or checks(cls, instance))

    metaclass.__instancecheck__ = is_instance


def _paged(session: Session) -> Any:
    def get_paged(*shape: int, dtype: torch.dtype = torch.float32, device: Any = None) -> torch.Tensor:
        del device
        with session.mode.quiet(), session.backend.mode:  # type: ignore[attr-defined]
            tensor = torch.empty(*shape, dtype=dtype, device=session.backend.device_type)
        session.keep_outside(tensor)
        tensor.is_paged = True
        tensor.page_deviceid = 0
        return tensor

    return get_paged
