"""State bytes of the rows against the state tensors of the optimizers themselves, after one step."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from vramcast.training.optimizers.rules import optimizer, state_bytes

pytestmark = pytest.mark.torch
SHAPES = [(96, 160), (1024, 64), (512,), (4097,)]
TORCH: dict[str, tuple[str, dict[str, Any]]] = {
    "adamw": ("AdamW", {}),
    "amsgrad": ("AdamW", {"amsgrad": True}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "adamax": ("Adamax", {}),
    "adadelta": ("Adadelta", {}),
    "rprop": ("Rprop", {}),
    "adagrad": ("Adagrad", {}),
    "rmsprop": ("RMSprop", {}),
    "asgd": ("ASGD", {}),
    "sgd": ("SGD", {}),
    "sgd_momentum": ("SGD", {"momentum": 0.9}),
    "adafactor_torch": ("Adafactor", {}),
}
BITSANDBYTES = {
    "adamw_8bit": "AdamW8bit",
    "adamw_bnb": "AdamW32bit",
    "lion_8bit": "Lion8bit",
    "lion_bnb": "Lion32bit",
    "rmsprop_8bit": "RMSprop8bit",
    "rmsprop_bnb": "RMSprop32bit",
    "adagrad_8bit": "Adagrad8bit",
    "ademamix_8bit": "AdEMAMix8bit",
    "ademamix": "AdEMAMix",
}
SHARED = ("qmap1", "qmap2", "unorm_vec")  # one table for all parameters


def kept(make: Callable[[Iterable[Any]], Any], shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes of state tensors beside the step counters, after one step."""
    import torch

    parameter = torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
    made = make([parameter])
    parameter.grad = torch.ones_like(parameter)
    made.step()
    held = made.state[parameter].items()
    return sum(t.numel() * t.element_size() for name, t in held if torch.is_tensor(t) and t.numel() > 1 and name not in SHARED)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("name", TORCH)
def test_torch_optimizers(name: str, shape: tuple[int, ...], width: int) -> None:
    torch = pytest.importorskip("torch")
    kind, options = TORCH[name]
    dtype = torch.bfloat16 if width == 2 else torch.float32
    measured = kept(lambda p: getattr(torch.optim, kind)(p, **options), shape, dtype)
    assert state_bytes(optimizer(name), shape, width=width) == measured


@pytest.mark.parametrize("shape", [(96, 160), (64, 64, 8)])
def test_muon_keeps_its_momentum(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    flat = (shape[0], shape[1] * (shape[2] if len(shape) > 2 else 1))
    measured = kept(torch.optim.Muon, flat, torch.bfloat16)
    assert state_bytes(optimizer("muon"), flat, width=2) == measured


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", BITSANDBYTES)
def test_bitsandbytes_optimizers(name: str, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    bitsandbytes = pytest.importorskip("bitsandbytes")
    if not hasattr(bitsandbytes.optim, BITSANDBYTES[name]):
        pytest.skip("this bitsandbytes has no such optimizer")
    measured = kept(lambda p: getattr(bitsandbytes.optim, BITSANDBYTES[name])(p, lr=1e-3), shape, torch.bfloat16)
    assert state_bytes(optimizer(name), shape, width=2) == measured


@pytest.mark.parametrize("shape", [*SHAPES, (4, 96, 160)])
def test_transformers_adafactor(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    adafactor = pytest.importorskip("transformers.optimization").Adafactor
    measured = kept(lambda p: adafactor(p, scale_parameter=False, relative_step=False, lr=1e-3), shape, torch.bfloat16)
    one = shape[1:] if len(shape) == 3 else shape
    assert state_bytes(optimizer("adafactor"), one, width=2, copies=4 if len(shape) == 3 else 1) == measured


def test_every_name_of_the_trainer_has_a_row() -> None:
    names = pytest.importorskip("transformers.training_args").OptimizerNames
    assert [optimizer(n.value).source for n in names]
