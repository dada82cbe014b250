"""A launch: the engine, the model and the flags that some artefact starts, and where each was said."""

import re
from collections.abc import Callable, Mapping

import msgspec

from vramcast.reading.shell.variables import open_names

# Engines that this program can read and has no memory rules for, by the name that people know.
UNMODELLED = {"ktransformers": "KTransformers", "mlx": "MLX", "lightllm": "LightLLM"}
# what a program may use of the cards that it is given, and what it is given (NVIDIA's container runtime, ROCm's driver)
_CARDS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_GIVEN = ("NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """``flags``: the engine's own, as typed; ``gpus``: how many cards the environment shows, 0 where it says nothing.

    ``name``: what the file calls it (a service, a deployment); ``where``: the file and the key that hold it; ``places``: flags by
    name that were said elsewhere, and where; ``card``: the card that the file selects; ``idle``, ``speed`` and ``unread``: keys
    beside the flags that change neither memory nor speed, that choose kernels, and that no rule reads; ``replicas``:
    copies that share nothing; ``devices``: which of the machine's cards it is shown, by number or id, where that is said.
    """

    engine: str
    model: str
    flags: tuple[str, ...] = ()
    version: str | None = None
    gpus: int = 0
    devices: tuple[str, ...] = ()
    name: str = ""
    where: str = ""
    places: dict[str, str] = {}
    card: str = ""
    replicas: int = 1
    idle: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    speed: tuple[str, ...] = ()

    @property
    def opened(self) -> tuple[str, ...]:
        """The variables that nobody set, of the model and of the flags."""
        return open_names(" ".join((self.model, *self.flags)))

    def said(self, flag: str) -> str:
        """The place that says a flag."""
        return self.places.get(flag, self.where)


class LaunchContext(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds a command: variables, files beside it, and where it stands; ``text_of``: a named file's text or None.

    ``others``: what a text of another format starts that stands inside the file, by the name of a file of that format.
    """

    where: str = ""
    variables: Mapping[str, str] = {}
    text_of: Callable[[str], str | None] = lambda _name: None
    others: Callable[[str, str, "LaunchContext"], tuple[Launch, ...]] = lambda _name, _text, _held: ()

    def at(self, key: str) -> "LaunchContext":
        """The same, one key further in."""
        return msgspec.structs.replace(self, where=f"{self.where}: {key}" if self.where and key else self.where or key)

    def with_variables(self, more: Mapping[str, str]) -> "LaunchContext":
        """The same with further variables; what was set before stays."""
        return msgspec.structs.replace(self, variables={**more, **self.variables})


def visible_devices(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The cards that an environment shows to a program; none where it says nothing, or all."""
    inner, outer = (next((found for name in names if (found := _listed(environment, name))), ()) for names in (_CARDS, _GIVEN))
    return devices_within(outer, inner)


def _listed(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    value = environment.get(name, "").strip("\"'")
    if not value or value in ("all", "void", "none") or open_names(value):
        return ()
    return tuple(part for part in re.split(r"[,\s]+", value) if part)


def devices_within(outer: tuple[str, ...], inner: tuple[str, ...]) -> tuple[str, ...]:
    """The machine's cards that a program in a container sees: numbers inside it count through what the container was given.

    Ids of cards, and numbers that it was not given so many of, stay as they are.
    """
    if not outer or not inner:
        return outer or inner
    chosen = tuple(outer[int(one)] for one in inner if one.isdigit() and int(one) < len(outer))
    return chosen if len(chosen) == len(inner) else inner
