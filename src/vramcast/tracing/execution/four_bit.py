"""bitsandbytes on fake tensors: 4-bit parameters that need no subclass, and paged state outside the caching allocator."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramcast.tracing.execution.session import Session


def install(session: Session) -> None:
    """Patch bitsandbytes for this session. Paged optimizer state is managed memory, outside the caching allocator."""
    with _without_a_driver():
        import bitsandbytes
        from bitsandbytes import functional

    _fake_parameters(bitsandbytes.nn.Params4bit)
    functional.get_paged = _paged(session)
    functional.is_on_gpu = lambda *_: True
    functional.fill = functional.prefetch_tensor = lambda *_, **__: None
    session.mode.reload_workspaces()


@contextmanager
def _without_a_driver() -> Iterator[None]:
    """On import the package loads the library of the CUDA version that torch names; here only the CPU one can be loaded."""
    pretended, torch.version.cuda = torch.version.cuda, None
    try:
        yield
    finally:
        torch.version.cuda = pretended


def quantize_linears(model: torch.nn.Module, *, kind: str, compute_dtype: torch.dtype, device: str) -> None:
    """Put a model built on meta onto the device, every linear layer but the head as a 4-bit one with double quantisation.

    As transformers loads for QLoRA: weight after weight, so that no two are there at full width.
    """
    import bitsandbytes

    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.Linear) and name != "lm_head":
                setattr(module, name, _quantized(bitsandbytes, child, kind, compute_dtype, device))
    model.is_loaded_in_4bit = model.is_quantized = True  # by these PEFT and the Trainer know such a model
    model.hf_quantizer = SimpleNamespace(is_trainable=True, is_qat_trainable=False, quantization_config=None)
    model._apply(lambda t: torch.empty_like(t, device=device) if t.is_meta and t.device.type == "meta" else t)


def _quantized(bitsandbytes: Any, linear: torch.nn.Linear, kind: str, compute_dtype: torch.dtype, device: str) -> torch.nn.Module:
    layer = bitsandbytes.nn.Linear4bit(
        linear.in_features, linear.out_features, bias=False, compute_dtype=compute_dtype, quant_type=kind, device="meta"
    )
    packed, state = bitsandbytes.functional.quantize_4bit(
        torch.empty_like(linear.weight, device=device), blocksize=64, compress_statistics=True, quant_type=kind
    )
    layer.weight = bitsandbytes.nn.Params4bit(packed, requires_grad=False, quant_state=state, bnb_quantized=True, module=layer)
    layer.quant_state = state
    layer.bias = linear.bias
    return layer


def _fake_parameters(kind: Any) -> None:
    original = kind.__new__

    def new(cls: Any, data: Any = None, requires_grad: bool = False, **fields: Any) -> Any:
        if not isinstance(data, FakeTensor):
            return original(cls, data, requires_grad, **fields)
        tensor = data.detach()
        tensor._is_param = tensor._is_4bit = True
        tensor.requires_grad_(requires_grad)
        defaults = {"blocksize": 64, "compress_statistics": True, "quant_type": "nf4", "quant_state": None}
        for name, value in (defaults | {"quant_storage": torch.uint8, "bnb_quantized": False, "module": None} | fields).items():
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
