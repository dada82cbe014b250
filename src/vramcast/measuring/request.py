"""What is measured and what comes back: plain values that cross from this process to the measuring one and back."""

from typing import Any

import msgspec

from vramcast.tracing.request import TraceRequest


class MeasureRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a transformers model with random weights: the same step that is traced, on a device that exists.

    ``step``: the recipe (model, batch, optimizer ...), as for a trace. ``device``: cuda or cpu. ``warmup`` steps run before
    ``repeats`` timed ones. ``compiled``: under torch.compile. ``ranks``: processes, one per card, that train together (DDP, or
    FSDP2 where ``step.distribution`` says so). ``snapshot``: a file to record the allocator's history into, "" for none.
    """

    step: TraceRequest
    device: str = "cuda"
    warmup: int = 2
    repeats: int = 3
    compiled: bool = False
    ranks: int = 1
    snapshot: str = ""


class Measurement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was read. Bytes and seconds; a figure that the device cannot give is absent.

    ``outcome``: ran, oom or failed; an out-of-memory is a result, with ``message`` saying what could not be had. ``figures``:
    allocated, active, reserved (peaks of torch), device (this process as the driver sees it), context (device less reserved),
    retries (of the allocator), step_s, ttft_s, tpot_s, tokens_per_s, run_s. ``samples``: every repetition's times.
    ``ranks``: each rank's figures where there were several; ``figures`` are then of the rank that holds most.
    """

    outcome: str
    figures: dict[str, float] = {}
    gpu: str = ""
    versions: dict[str, str] = {}
    message: str = ""
    parameters: int = 0
    samples: dict[str, list[float]] = {}
    ranks: list[dict[str, float]] = []


def worst_rank(found: list[Measurement]) -> Measurement:
    """One measurement of several ranks: the one that failed, else the one that holds most, with the figures of all."""
    if len(found) == 1:
        return found[0]
    severity = ("ran", "failed", "oom")
    worst = max(found, key=lambda m: (severity.index(m.outcome), m.figures.get("allocated", 0.0)))
    return msgspec.structs.replace(worst, ranks=[m.figures for m in found])


def request_key(request: Any, gpu: str, versions: dict[str, str]) -> str:
    """A stable name for a case: the same question on the same card with the same libraries is measured once."""
    import hashlib

    body = msgspec.json.encode([msgspec.to_builtins(request), gpu, sorted(versions.items())])
    return hashlib.sha256(body).hexdigest()[:24]
