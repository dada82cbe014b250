"""Fake "cuda" tensors on a build of PyTorch without CUDA: two function tables of the library are pointed at its own functions.

torch brings a device guard for fake devices, but installs it only where a CUDA build finds no card; and its autograd engine asks
the CUDA hooks, which on a CPU build say that there is no such device. So (a) an empty guard that reports no devices is
registered, upon which torch installs its own fake guard, and (b) the hooks' table is copied with the answers "built",
"available", "one device". Nothing but native functions of torch itself is put in. The slots follow the order of virtual
functions in the headers that the wheel ships, so they are read from there.
"""

import ctypes
import re
from pathlib import Path
from typing import Any

import torch

_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
_GET_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
_CUDA, _META = 1, 14  # c10::DeviceType
_VIRTUAL = re.compile(r"\bvirtual\s+(?:[\w:<>&*\s,]*?[\s&*])?(~?\w+)\s*\(")
_TRUE = ("isBuilt", "isAvailable", "deviceCount", "hasCUDA")
_FALSE = ("hasPrimaryContext", "getCurrentDevice", "exchangeDevice", "maybeExchangeDevice")
_kept: list[Any] = []


class FakeCudaError(RuntimeError):
    """This build of torch cannot be made to run fake CUDA tensors; the message says which part is missing."""


def install() -> None:
    """Make fake CUDA tensors usable in this process, forward and backward.

    Raises FakeCudaError when a symbol or slot is not where this torch version should have it.
    """
    try:
        _install(Path(torch.__file__).parent)
    except (AttributeError, ValueError, OSError, AssertionError, KeyError) as error:
        raise FakeCudaError(f"torch {torch.__version__} lacks what fake CUDA tensors need: {error}") from None
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != "cuda":
        raise FakeCudaError(f"torch {torch.__version__} does not take the fake CUDA device: current accelerator is {accelerator}")


def _install(root: Path) -> None:
    core = ctypes.CDLL(str(root / "lib" / "libc10.so"))
    library = ctypes.CDLL(str(root / "lib" / "libtorch_cpu.so"))
    pointer_array = ctypes.POINTER(ctypes.c_void_p)
    guards = ctypes.cast(ctypes.addressof(ctypes.c_void_p.in_dll(core, _GUARDS)), pointer_array)
    get_hooks = getattr(library, _GET_HOOKS)
    get_hooks.restype = ctypes.c_void_p
    hooks = ctypes.cast(get_hooks(), pointer_array)
    slots = _hook_slots(root / "include" / "ATen" / "detail")
    table = ctypes.cast(hooks[0], pointer_array)
    returns_false = table[slots["hasROCM"]]
    returns_one = ctypes.cast(ctypes.cast(guards[_META], pointer_array)[0], pointer_array)[_guard_slot(root)]
    probe = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)
    if probe(returns_false)(None) != 0 or probe(returns_one)(None) != 1:
        raise ValueError("hasROCM or the meta guard's deviceCount is not at its slot")
    _install_guard(guards, returns_false)
    _replace_hooks(hooks, slots, returns_one, returns_false)


def _install_guard(guards: Any, returns_false: int) -> None:
    if guards[_CUDA]:
        return
    table = (ctypes.c_void_p * 64)(*([returns_false] * 64))
    guard = (ctypes.c_void_p * 1)(ctypes.addressof(table))
    _kept.extend([table, guard])
    guards[_CUDA] = ctypes.addressof(guard)
    torch._C._ensureCUDADeviceGuardSet()
    if guards[_CUDA] == ctypes.addressof(guard):
        raise ValueError("_ensureCUDADeviceGuardSet did not install the fake guard")


def _replace_hooks(hooks: Any, slots: dict[str, int], returns_one: int, returns_false: int) -> None:
    header = 2  # offset-to-top and type information stand before the first slot
    base = ctypes.cast(hooks[0] - header * ctypes.sizeof(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p))
    size = header + len(slots)
    copy = (ctypes.c_void_p * size)(*[base[i] for i in range(size)])
    for names, answer in ((_TRUE, returns_one), (_FALSE, returns_false)):
        for name in names:
            copy[header + slots[name]] = answer
    _kept.append(copy)
    hooks[0] = ctypes.addressof(copy) + header * ctypes.sizeof(ctypes.c_void_p)


def _hook_slots(headers: Path) -> dict[str, int]:
    """Slot of each virtual function of CUDAHooksInterface: those of its base first."""
    return _slots([(headers / f"{kind}HooksInterface.h").read_text() for kind in ("Accelerator", "CUDA")])


def _guard_slot(root: Path) -> int:
    """Slot of deviceCount among the virtual functions of DeviceGuardImplInterface."""
    text = (root / "include" / "c10" / "core" / "impl" / "DeviceGuardImplInterface.h").read_text()
    body = text[text.index("struct C10_API DeviceGuardImplInterface") :]
    return _slots([body[: body.index("\n};")]])["deviceCount"]


def _slots(headers: list[str]) -> dict[str, int]:
    """Virtual functions in order of declaration; a destructor takes two slots (complete and deleting)."""
    names: list[str] = []
    for text in headers:
        for name in _VIRTUAL.findall(re.sub(r"//[^\n]*", "", text)):
            new = [name, name + " deleting"] if name.startswith("~") else [name]
            names += [n for n in new if n not in names]
    return {name: slot for slot, name in enumerate(names)}
