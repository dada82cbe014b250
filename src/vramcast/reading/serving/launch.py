"""A launch: the engine, the model and the flags that some artefact starts, and where each was said."""

import re
from collections.abc import Callable, Mapping

import msgspec

from vramcast.reading.shell.variables import open_names

# Engines that this program can read and has no memory rules for, by the name that people know.
UNMODELLED = {"ktransformers": "KTransformers", "mlx": "MLX", "lightllm": "LightLLM"}
_CARDS = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """``flags``: the engine's own, as typed; ``gpus``: how many cards the environment shows, 0 where it says nothing.

    ``name``: what the file calls it (a service, a deployment); ``where``: the file and the key that hold it; ``places``: flags by
    name that were said elsewhere, and where; ``card``: the card that the file selects; ``idle``, ``speed`` and ``unread``: keys
    beside the flags that change neither memory nor speed, that choose kernels, and that no rule reads; ``replicas``:
    copies that share nothing.
    """

    engine: str
    model: str
    flags: tuple[str, ...] = ()
    version: str | None = None
    gpus: int = 0
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


def visible_cards(environment: Mapping[str, str]) -> int:
    """How many cards an environment shows to a program; 0 where it says nothing, or all."""
    for name in _CARDS:
        value = environment.get(name, "").strip("\"'")
        if value and value not in ("all", "void", "none") and not open_names(value):
            return len([part for part in re.split(r"[,\s]+", value) if part])
    return 0
