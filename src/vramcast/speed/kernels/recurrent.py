"""Linear attention and state-space layers: gated delta nets, Kimi delta attention, Mamba-2, and their short convolutions.

Decoding reads and writes the whole state once per sequence. Prefilling streams chunks of 64 tokens through several kernels, one
chunk after the other in each sequence and head: ``t = launch + (bandwidth^p + compute^p + chain^p)^(1/p)``. FLOPs and bytes:
SPEED 2; constants: ``laws.json``.
"""

from typing import Any

from vramcast.errors import unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.law import Estimate, law_for, whole
from vramcast.speed.kernels.machine import Machine, machine

# Tokens of one block of lightning attention (vllm/model_executor/layers/lightning_attn.py, BLOCK).
LIGHTNING_BLOCK = 256
CHUNK = 64  # tokens of one chunk in the published Triton and FlashInfer kernels
KINDS = ("gdn", "kda", "mamba2")
FORMULA = "launch + (bandwidth^p + compute^p + chain^p)^(1/p)"
_DECODE_FLOPS = 8  # per number of the state: decay, product with the key, update, product with the query


def recurrent(
    *, card: Accelerator, kind: str, phase: str, batch: Any, new: Any = 1, heads: Any, key_dim: Any, value_dim: Any,
    key_heads: Any = 0, state_bytes: float = 4, chunk: int = CHUNK, backend: str = "",
) -> Estimate:  # fmt: skip
    """Seconds of the core of one recurrent layer (convolution and projections apart) on one rank.

    ``kind``: gdn, kda or mamba2. ``phase``: "prefill" or "decode". ``heads`` carry a state of ``key_dim x value_dim`` numbers of
    ``state_bytes`` each (Mamba-2: d_state x head_dim). ``new``: tokens of each of the ``batch`` sequences; ``chunk`` of them are
    scanned at once.
    """
    chosen = law_for(f"recurrent_{phase}", backend, _known(kind), card)
    parts = recurrent_parts(
        chosen.constants, machine(card), prefills=(phase == "prefill") * 1.0, new=new, batch=batch, heads=heads,
        key_heads=key_heads or heads, key_dim=key_dim, value_dim=value_dim, state_bytes=state_bytes,
        chunk=chunk,
    )  # fmt: skip
    return Estimate(seconds=recurrent_seconds(chosen.constants, parts), parts=parts, formula=FORMULA, chosen=chosen)


def convolution(
    *, card: Accelerator, kind: str, phase: str, batch: Any, new: Any = 1, channels: Any, width: Any = 4, backend: str = ""
) -> Estimate:
    """Seconds of the short causal convolution before a recurrent layer: ``channels`` of it on this rank, ``width`` taps."""
    chosen = law_for(f"convolution_{phase}", backend, _known(kind), card)
    parts = convolution_parts(chosen.constants, machine(card), new=new, batch=batch, channels=channels, width=width)
    return Estimate(seconds=recurrent_seconds(chosen.constants, parts), parts=parts, formula=FORMULA, chosen=chosen)


def recurrent_parts(
    constants: dict[str, float], on: Machine, *, prefills: Any, new: Any, batch: Any, heads: Any, key_heads: Any,
    key_dim: Any, value_dim: Any, state_bytes: float, chunk: int = CHUNK,
) -> dict[str, Any]:  # fmt: skip
    """Seconds of launch, of states and token vectors moved, of the products, and of one sequence's chain of chunks."""
    chunks = whole(new / chunk)
    state = 2 * batch * heads * key_dim * value_dim * state_bytes
    vectors = batch * new * 2 * (2 * key_heads * key_dim + 2 * heads * value_dim)
    chunked = 2 * heads * batch * chunks * chunk * (chunk * (key_dim + value_dim) + 3 * key_dim * value_dim)
    work = prefills * chunked + (1 - prefills) * _DECODE_FLOPS * heads * batch * new * key_dim * value_dim
    return {
        "launch": constants["launch_us"] * 1e-6,
        "bandwidth": (state + vectors) / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
        "compute": work / (on.flops_per_s * constants["compute"]),
        "chain": constants["chain_us"] * 1e-6 * chunks * whole(batch * heads / on.units),
    }


def convolution_parts(
    constants: dict[str, float], on: Machine, *, new: Any, batch: Any, channels: Any, width: Any
) -> dict[str, Any]:
    """Seconds of launch, of inputs, outputs and the state of ``width - 1`` taps, and of blocks of 64 tokens x 256 channels."""
    moved = 4 * batch * channels * (new + width - 1)
    blocks = batch * whole(new / CHUNK) * whole(channels / 256)
    return {
        "launch": constants["launch_us"] * 1e-6,
        "bandwidth": moved / (on.bandwidth_bytes_per_s * constants["bandwidth"]),
        "compute": 0.0,
        "chain": constants["chain_us"] * 1e-6 * whole(blocks / on.units),
    }


def recurrent_seconds(constants: dict[str, float], parts: dict[str, Any]) -> Any:
    """The parts combined."""
    p = constants["blend"]
    return parts["launch"] + (parts["bandwidth"] ** p + parts["compute"] ** p + parts["chain"] ** p) ** (1 / p)


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise unknown_name("recurrent layer", kind, KINDS)
    return kind
