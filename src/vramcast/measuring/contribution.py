"""Facts of a card as a row of the catalogue, ready to contribute: what accelerators.toml takes, then what other tables take."""

import json
import re

from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.cards import match_accelerator
from vramcast.measuring.device_facts import DeviceFacts
from vramcast.units import KiB, MiB

_RATES = {"bfloat16": "bf16", "fp8": "fp8"}


def as_row(facts: DeviceFacts) -> str:
    """The TOML table of the part, each fact with its source, under the catalogue's own name where it knows the part."""
    part = _part(facts.name)
    lines = [f"[{part.id if part else re.sub('[^a-z0-9]+', '-', facts.name.lower()).strip('-')}]"]
    if part is None:
        lines += [f"name = {json.dumps(facts.name)}", 'vendor = "NVIDIA"']
    read = ", ".join(f"{name} {version}" for name, version in facts.versions.items() if name in ("torch", "cuda", "driver"))
    lines += [f'{name} = [{value}, "own", {json.dumps(read)}]' for name, value in _facts(facts, part).items()]
    return "\n".join([*lines, *(f"# {line}" for line in _beside(facts))]) + "\n"


def _part(name: str) -> Accelerator | None:
    try:
        return match_accelerator(name)[0]
    except VramcastError:
        return None


def _facts(facts: DeviceFacts, part: Accelerator | None) -> dict[str, str]:
    found = {
        "visible_mib": f"{facts.visible_bytes / MiB:.0f}",
        "capability": f'"{facts.capability[0]}.{facts.capability[1]}"',
        "sms": str(facts.multiprocessors),
        "l2_kib": f"{facts.l2_bytes / KiB:.0f}",
    }
    if facts.driver_bytes:
        found["driver_mib"] = f"{facts.driver_bytes / MiB:.0f}"
    if part is not None and part.bandwidth_bytes_per_s:
        found["stream_pct"] = f"{100 * facts.copy_bytes_per_s / part.bandwidth_bytes_per_s:.0f}"
    rates = {name: facts.matmul_flops[dtype] for dtype, name in _RATES.items() if dtype in facts.matmul_flops}
    return found | {f"matmul_{name}_tflops": f"{rate / 1e12:.1f}" for name, rate in rates.items()}


def _beside(facts: DeviceFacts) -> list[str]:
    """What is no fact of a part alone: for the tables of contexts and communicators, and to judge the rates by."""
    context = "not told by the driver" if facts.context_bytes is None else f"{facts.context_bytes / MiB:.0f} MiB"
    lines = [f"context: {context}", f"cuBLAS workspace: {facts.cublas_workspace_bytes / MiB:.3f} MiB"]
    if facts.communicator_bytes:
        first, further = (f"{size / MiB:.0f} MiB" for size in facts.communicator_bytes)
        lines.append(
            f"NCCL over {facts.communicator_ranks} cards: {first} for the first communicator, {further} for a further one"
        )
    link = f"{facts.to_device_bytes_per_s / 1e9:.1f} GB/s to the card, {facts.to_host_bytes_per_s / 1e9:.1f} GB/s from it"
    lines += [f"copy on the card: {facts.copy_bytes_per_s / 1e9:.0f} GB/s read and written; {link}"]
    return [*lines, *(f"matmul {name}: {rate / 1e12:.1f} TFLOP/s" for name, rate in facts.matmul_flops.items())]
