"""Places where libraries notice that a tensor is fake and then do something else than on a GPU.

Each function puts one of them right and names the symptom. They change library globals, which is one reason why a trace runs in
a process of its own.
"""

import functools
from typing import Any

import torch
import torch.jit._builtins
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from vramcast.tracing.execution import parameters
from vramcast.tracing.execution.kernels import batch_norm, ctc
from vramcast.tracing.execution.mode import TracingMode
from vramcast.tracing.execution.recorder import Recorder
from vramcast.tracing.execution.stand_ins.imported import when_imported

_registered: list[Any] = []


def install(mode: TracingMode) -> None:
    """All patches of torch itself; those of other libraries are applied when the library is loaded."""
    fused_kernels()
    foreach_optimizers()
    parameters.install()
    tensors_of_values()
    gradient_scaling()
    pinning()
    formatting()
    lists(mode)
    data_parallel()
    graphs_of_models()
    ctc.with_plain_lengths(mode.shadows)
    batch_norm.install()
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


def tensors_of_values() -> None:
    """``torch.tensor([a, b])`` reads device scalars below every mode: they are asked for their values one by one instead.

    And it makes the tensor on the CPU, to be copied by an operator that modes see, only in threads that have a switch set: those
    of the backward pass, where a custom function may call it, have not. ``with torch.device(...)`` knows its functions from the
    first time that it is asked for them: it is asked while they are the library's own.
    """
    from torch.utils._device import _device_constructors

    _device_constructors()
    for holder, name, first in (
        (torch, "tensor", 0),
        (torch, "as_tensor", 0),
        (torch, "asarray", 0),
        (torch.Tensor, "new_tensor", 1),
    ):
        original = getattr(holder, name)
        setattr(holder, name, _lifting(original, first))
        if (operator := torch.jit._builtins._find_builtin(original)) is not None:  # torch.jit.script finds functions by identity
            torch.jit._builtins._register_builtin(getattr(holder, name), operator)


def _lifting(original: Any, first: int) -> Any:
    """``original`` with plain values for its argument number ``first``, made on the CPU first."""

    @functools.wraps(original)
    def make(*args: Any, **options: Any) -> Any:
        torch._C._set_only_lift_cpu_tensors(True)
        plain = tuple(_plain_values(value) if place == first else value for place, value in enumerate(args))
        return original(*plain, **options)

    return make


def _plain_values(data: Any) -> Any:
    if not isinstance(data, list | tuple) or not data or not isinstance(data[0], list | tuple | torch.Tensor):
        return data
    return [item.tolist() if isinstance(item, FakeTensor) else _plain_values(item) for item in data]


def pinning() -> None:
    """Page-locked memory needs a driver, and a loader pins in a thread of its own, which no mode sees: pinned is what it was."""
    from torch.utils.data._utils import pin_memory

    torch.Tensor.pin_memory = lambda tensor, *_, **__: tensor
    torch.Tensor.is_pinned = lambda *_, **__: False
    pin_memory.pin_memory = lambda data, *_, **__: data
    share = torch.Tensor.share_memory_
    torch.Tensor.share_memory_ = lambda tensor: (
        tensor if isinstance(tensor, FakeTensor) else share(tensor)
    )  # a card's is as it is


def formatting() -> None:
    """``f"{loss:.4f}"``: a fake tensor of one value is written as that value, as PyTorch writes a tensor on a GPU."""
    original = torch.Tensor.__format__

    def write(tensor: torch.Tensor, form: str) -> str:
        if isinstance(tensor, FakeTensor) and tensor.dim() == 0 and not tensor.is_meta:
            return format(tensor.item(), form)
        return str(tensor) if isinstance(tensor, FakeTensor) and form else original(tensor, form)

    torch.Tensor.__format__ = FakeTensor.__format__ = write


def lists(mode: TracingMode) -> None:
    """``lengths.tolist()`` asks element by element: where all values are known, they are read at once."""
    original = FakeTensor.tolist

    def read(tensor: FakeTensor) -> Any:
        twin = mode.shadows.of(tensor) if mode.backend.is_device(tensor) else None
        return original(tensor) if twin is None else twin.tolist()

    FakeTensor.tolist = read


def data_parallel() -> None:
    """``nn.DataParallel`` on the first card: it runs its part of the batch, and holds what all parts return.

    The sums of the other cards' gradients arrive one by one and are not counted.
    """

    def forward(wrapper: Any, *inputs: Any, **named: Any) -> Any:
        cards = max(1, len(wrapper.device_ids)) if wrapper.device_ids else 1

        def part(value: torch.Tensor) -> torch.Tensor:
            return value.chunk(cards)[0].cuda() if value.dim() else value.cuda()

        def gathered(value: torch.Tensor) -> torch.Tensor:
            return torch.cat([value] * cards) if value.dim() else value.repeat(cards)

        parts, options = tree_map_only(torch.Tensor, part, (inputs, named))
        out = wrapper.module(*parts, **options)
        return out if cards == 1 else tree_map_only(torch.Tensor, gathered, out)

    torch.nn.DataParallel.forward = forward


def graphs_of_models() -> None:
    """``torch.jit.trace`` and TensorBoard's picture of a model run it on symbols, which fake tensors refuse: it just runs."""

    def trace(function: Any, example_inputs: Any = None, *_: Any, **options: Any) -> Any:
        named = options.get("example_kwarg_inputs") or {}
        given = example_inputs if isinstance(example_inputs, tuple | list) else (example_inputs,)
        function(*(() if example_inputs is None else given), **named)
        return function

    torch.jit.trace = trace

    def writer(module: Any) -> None:
        module.SummaryWriter.add_graph = lambda _, model, inputs=None, *__, **___: trace(model, inputs)

    when_imported("torch.utils.tensorboard.writer", writer)


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

    def quietly(module: Any) -> None:
        original = module.ShardingPropagator._propagate_tensor_meta_non_cached

        def propagate(propagator: Any, *args: Any, **kwargs: Any) -> Any:
            with mode.quiet():
                return original(propagator, *args, **kwargs)

        module.ShardingPropagator._propagate_tensor_meta_non_cached = propagate

    when_imported("torch.distributed.tensor._sharding_prop", quietly)


def transformers() -> None:
    """Transformers takes fake tensors for a graph capture and builds full masks, which rules the flash kernel out."""
    when_imported("transformers.utils.import_utils", lambda module: setattr(module, "is_fake_tensor", lambda _: False))
