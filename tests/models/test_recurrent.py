"""Fixed states of recurrent layers, against what servers print and what the papers give."""

import pytest

from vramcast import read_model
from vramcast.models.layers import GatedDeltaNet, LinearAttention, Mamba1, Mamba2, Rwkv, ShortConv

GIB = 2**30


def state_of(name: str) -> tuple[int, int]:
    """(convolution, recurrent) elements that one sequence keeps in all layers."""
    mixers = [(b.count, m) for b in read_model(name, offline=True).blocks for m in b.mixers if hasattr(m, "state_elements")]
    return sum(n * m.conv_elements for n, m in mixers), sum(n * m.state_elements for n, m in mixers)


def test_qwen_3_5_27b_as_a_server_prints_it() -> None:
    """SGLang, 124 slots and a spare one: 0.34 GiB of bfloat16 windows, 17.58 GiB of float32 states."""
    conv, state = state_of("Qwen/Qwen3.5-27B")
    assert conv * 2 * 125 / GIB == pytest.approx(0.34, abs=0.005)
    assert state * 4 * 125 / GIB == pytest.approx(17.58, abs=0.005)


@pytest.mark.parametrize(
    ("kind", "conv", "state"),
    [
        (Mamba1(inner=8192, state=16, conv=4, dt_rank=256), 3 * 8192, 8192 * 16),
        (Mamba2(heads=128, head_dim=64, groups=8, state=128, conv=4), 3 * (8192 + 2 * 8 * 128), 128 * 64 * 128),
        (GatedDeltaNet(key_heads=16, value_heads=32, key_dim=128, value_dim=128, conv=4), 3 * 8192, 32 * 128 * 128),
        (LinearAttention(heads=64, head_dim=128), 0, 64 * 128 * 128),
        (ShortConv(width=2048, conv=3), 2 * 2048, 0),
        (Rwkv(heads=40, head_dim=64, hidden=2560), 2 * 2560, 40 * 64 * 64),
    ],
)
def test_one_layers_elements(kind, conv: int, state: int) -> None:
    assert (kind.conv_elements, kind.state_elements) == (conv, state)
