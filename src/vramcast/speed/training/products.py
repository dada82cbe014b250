"""Matrix products of a training step on a card, each timed once: layouts of a plan run the same ones over and over."""

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import by_identity
from vramcast.speed.kernels.gemm import gemm

LIBRARY = {"fp8": "trtllm"}  # per-tensor scales; scales by row run in CUTLASS kernels


@by_identity(most=50_000)
def product_s(card: Accelerator, m: int, n: int, k: int, weight: str, *, backend: str) -> float:
    """Seconds of a product of m rows, n outputs and k inputs, remembered."""
    return float(gemm(card=card, m=m, n=n, k=k, weight=weight, backend=backend).seconds)
