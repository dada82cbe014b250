"""The default --mem-fraction-static of SGLang 0.5.23, computed with its own formula for cards and tensor parallel sizes."""

import pytest

from vramcast.hardware.accelerator import Accelerator
from vramcast.serving.engines.sglang.fraction import default_fraction, prefill_graphs_mib, tier_of
from vramcast.units import MiB

TABLE = {
    24564: (0.704, 0.698, 0.679, 0.658),
    32607: (0.777, 0.773, 0.758, 0.742),
    40960: (0.823, 0.820, 0.807, 0.795),
    46068: (0.843, 0.840, 0.829, 0.818),
    81559: (0.830, 0.828, 0.819, 0.812),
    143771: (0.903, 0.902, 0.897, 0.893),
    183359: (0.854, 0.853, 0.852, 0.849),
}
LATENT_TP8 = {81559: 0.799, 143771: 0.886, 183359: 0.844}


def card(mib: int) -> Accelerator:
    size = mib * MiB
    return Accelerator(
        id="card", name="card", vendor="NVIDIA", architecture="", sold_bytes=size, driver_bytes=size, visible_bytes=size,
        bandwidth_bytes_per_s=1,
    )  # fmt: skip


def fraction(mib: int, tp: int, *, latent: bool = False, version: tuple[int, ...] = (0, 5, 23)) -> float:
    tier = tier_of(card(mib), version)
    batch = tier.batch_tp4 if tp >= 4 else tier.batch
    prefill = prefill_graphs_mib(tier.chunk, latent=latent)
    return default_fraction(card(mib), version, tp=tp, pp=1, chunk=tier.chunk, batch=batch, prefill=prefill)


@pytest.mark.parametrize("mib", TABLE)
def test_every_value_of_the_table(mib: int) -> None:
    assert tuple(fraction(mib, tp) for tp in (1, 2, 4, 8)) == TABLE[mib]


@pytest.mark.parametrize("mib", LATENT_TP8)
def test_latent_models_count_their_prefill_graphs_flat(mib: int) -> None:
    assert fraction(mib, 8, latent=True) == LATENT_TP8[mib]


@pytest.mark.parametrize(("tp", "value"), [(1, 0.88), (2, 0.87), (4, 0.85), (8, 0.81), (16, 0.79)])
def test_0_4_looked_at_tensor_parallelism_alone(tp: int, value: float) -> None:
    assert fraction(81559, tp, version=(0, 4, 6)) == value
