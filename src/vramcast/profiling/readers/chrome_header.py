"""What a Chrome trace says of itself around its list of events: cards, rank, versions.

Format: libkineto's output_json.cpp (deviceProperties, distributedInfo and the versions stand before or after traceEvents).
"""

import msgspec

from vramcast.profiling.events import Origin


class _Properties(msgspec.Struct):
    name: str = ""
    sms: int = msgspec.field(default=0, name="numSms")
    memory: int = msgspec.field(default=0, name="totalGlobalMem")


class _Distributed(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None
    nccl_version: str | None = None


class _Header(msgspec.Struct):
    gpus: list[_Properties] = msgspec.field(default=[], name="deviceProperties")
    distributed: _Distributed | None = msgspec.field(default=None, name="distributedInfo")
    cuda_runtime_version: int | str | None = None
    cuda_driver_version: int | str | None = None
    hip_runtime_version: int | str | None = None


_HEADER = msgspec.json.Decoder(_Header)


def origin_of(header: bytes, trailer: bytes) -> Origin:
    """What the file says of itself, before its events or after them."""
    found = [h for h in (_decoded(header + b"]}"), _decoded(b'{"_":[]' + trailer)) if h is not None]
    gpus = next((h.gpus for h in found if h.gpus), [])
    distributed = next((h.distributed for h in found if h.distributed), None) or _Distributed()
    versions = {
        name: str(value)
        for h in found
        for name in ("cuda_runtime_version", "cuda_driver_version", "hip_runtime_version")
        if (value := getattr(h, name)) is not None
    }
    if distributed.nccl_version:
        versions["nccl_version"] = distributed.nccl_version
    return Origin(
        tool="PyTorch profiler",
        gpu_names=tuple(g.name for g in gpus),
        gpu_sms=tuple(g.sms for g in gpus),
        gpu_bytes=tuple(g.memory for g in gpus),
        rank=distributed.rank,
        world_size=distributed.world_size,
        versions=tuple(versions.items()),
    )


def _decoded(text: bytes) -> _Header | None:
    try:
        return _HEADER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
