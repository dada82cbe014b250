"""Which device holds each layer, tensor and cache: ``-ngl``, ``-ts``, ``-sm``, ``-ot``, ``--n-cpu-moe``.

The last ``n_gpu_layers`` layers go to the GPUs, the output layer counting as one; GPUs share them in proportion to
``tensor_split`` or to their memory (src/llama-model.cpp, load_tensors). Overrides are regular expressions on tensor names, the
first match wins. A pattern is matched with a bound on its length and none of its constructs can run away, since it comes from a
person's command line.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from math import inf

import msgspec

from vramcast.errors import QuestionError

_LONGEST = 2000
_MOST_GPUS = 128
_RUNAWAY = re.compile(r"[+*}]\s*\)\s*[+*{]|\\[1-9]|\(\?[^:]")


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Devices 0 to gpus - 1 are the GPUs, ``gpus`` the host. ``layers``: the device of each layer, the output's last."""

    gpus: int
    layers: tuple[int, ...]
    overrides: tuple[tuple[re.Pattern[str], int], ...] = ()

    @property
    def host(self) -> int:
        """The index of host memory."""
        return self.gpus

    def device(self, name: str, layer: int | None) -> int:
        """Where a tensor goes."""
        for pattern, device in self.overrides:
            if pattern.search(name):
                return device
        if layer is not None:
            return self.layers[layer]
        return (
            self.layers[-1]
            if name.startswith(("output", "rope_freqs", "per_layer_model_proj", "per_layer_proj_norm"))
            else self.host
        )


def place(
    layers: int, *, gpus: int, offloaded: int, split: Sequence[float] = (), mode: str = "layer", overrides: Sequence[str] = ()
) -> Placement:
    """The placement of ``layers`` layers and the output. Raises QuestionError for a bad split or override."""
    if split and not (len(split) <= _MOST_GPUS and min(split) >= 0 and 0 < sum(split) < inf):
        raise QuestionError(f"tensor_split {list(split)[:8]!r} is not a list of shares: write for example 3,1")
    if gpus > _MOST_GPUS:
        raise QuestionError(f"llama.cpp on {gpus:,} GPUs: at most {_MOST_GPUS} can share a model here")
    return _placed(layers, gpus=gpus, offloaded=offloaded, split=(*split,), mode=mode, overrides=(*overrides,))


@lru_cache(maxsize=1024)
def _placed(
    layers: int, *, gpus: int, offloaded: int, split: tuple[float, ...], mode: str, overrides: tuple[str, ...]
) -> Placement:
    shares = [*split[:gpus], *[0.0] * (gpus - len(split))] if split else [1.0] * gpus
    first = max(layers + 1 - offloaded, 0)
    on_gpu = min(offloaded, layers + 1)
    where = [gpus if i < first or not gpus else _share(i - first, on_gpu, shares, mode) for i in range(layers + 1)]
    return Placement(gpus=gpus, layers=tuple(where), overrides=tuple(_override(o, gpus) for o in _patterns(overrides)))


def _share(index: int, count: int, shares: list[float], mode: str) -> int:
    """The first device whose cumulative share exceeds the layer's position (``std::upper_bound``)."""
    if mode == "none":
        return 0
    total, reached = sum(shares), 0.0
    for device, share in enumerate(shares):
        reached += share
        if reached / total > index / count:
            return device
    return len(shares) - 1


def _patterns(overrides: Sequence[str]) -> list[str]:
    return [part for text in overrides for part in text.split(",") if part]


def _override(text: str, gpus: int) -> tuple[re.Pattern[str], int]:
    pattern, equals, device = text.rpartition("=")
    if not equals or not pattern:
        raise QuestionError(f"override_tensor {text[:80]!r} has no device: write for example exps=CPU")
    if len(pattern) > _LONGEST or _RUNAWAY.search(pattern):
        raise QuestionError(f"override_tensor {text[:80]!r} repeats a repetition or refers back: write a plainer pattern")
    try:
        return re.compile(pattern), _device(device, gpus)
    except re.error as error:
        raise QuestionError(f"override_tensor {text[:80]!r} is not a regular expression: {error}") from None


def _device(name: str, gpus: int) -> int:
    if name.upper().startswith("CPU") or "HOST" in name.upper():
        return gpus
    number = re.search(r"(\d+)$", name)
    index = int(number[1]) if number else 0
    if index >= max(1, gpus):
        raise QuestionError(f"override_tensor names {name[:40]!r}, but there are {gpus} GPUs: CUDA0 to CUDA{gpus - 1}, or CPU")
    return index


def expert_overrides(count: int | None, *, layers: int, every: bool) -> list[str]:
    """``--n-cpu-moe N`` and ``--cpu-moe`` as overrides: experts of the first N of ``layers``, or of all (common/arg.cpp)."""
    if every:
        return [r"\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"]
    return [rf"blk\.{i}\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU" for i in range(min(count or 0, layers))]
