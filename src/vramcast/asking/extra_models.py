"""What llama.cpp loads beside a model: the projector of ``--mmproj``, the draft of ``--model-draft``, by their files or names.

A file that is there has its size. Of another the name tells model and type: a projector is the model's towers (matrices in the
file's type, vectors and positions in f32, as llama.cpp 00dc8057's conversion/mmproj writes them), a draft a model of its own.
"""

import re
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from vramcast.asking.artefact import artefact_of, gguf_type
from vramcast.asking.asked import Asked, answer_serving
from vramcast.errors import VramcastError
from vramcast.ledger import Assumption, Unmodelled
from vramcast.models.inventory import Model, Tensor
from vramcast.models.quantization.formats import GGML_TYPES
from vramcast.models.reading import read_model
from vramcast.serving.engines.llama_cpp.file_types import BASE
from vramcast.untrusted import existing_path, printable
from vramcast.workload import Serving

if TYPE_CHECKING:
    from vramcast.reading.serving.launch import Launch

ENGINES = ("llama_cpp", "ik_llama_cpp")
_OPTIONS = ("mmproj_bytes", "draft_model_bytes")
_DRAFTS = ("model-draft", "hf-repo-draft")
_LAYERS = ("n-gpu-layers-draft", "gpu-layers-draft", "-ngld")
_DEVICES = ("device-draft", "-devd")
_LENGTHS = ("ctx-size-draft", "-cd")
_TOWERS = ("vision", "audio", "projector")
_TYPE = re.compile(r"(?<![a-z0-9])(?:(?:ud-)?i?q\d_[a-z0-9]+(?:_[smlx]+)?|bf16|fp?16|fp?32)(?![a-z0-9])")
_F32_BYTES = 4


class ExtraModels(msgspec.Struct, frozen=True):
    """``options``: sizes by the engine's option; what the answer lists; ``counted``: flags that need no line of their own."""

    options: dict[str, int] = {}
    assumed: tuple[Assumption, ...] = ()
    unmodelled: tuple[Unmodelled, ...] = ()
    counted: tuple[str, ...] = ()


def extra_models_of(
    launch: "Launch", model: str, context: int | None, ask: Callable[..., Asked[Serving]], options: Container[str]
) -> ExtraModels:
    """The projector and the draft model of a llama.cpp launch whose sizes can be told; nothing for other engines.

    ``context``: of the launch, None where it says none; ``ask``: makes the question of a server of the draft alone;
    ``options``: of the engine that answers, which may be another than the launch starts.
    """
    if launch.engine not in ENGINES or not all(name in options for name in _OPTIONS):
        return ExtraModels()
    from vramcast.reading.serving.flags import parsed_flags

    flags = {flag.name: flag.value or "" for flag in parsed_flags(launch.engine, launch.flags).flags}
    found = [_projector(flags, model, launch.where), _draft(flags, context, launch.where, ask)]
    return ExtraModels(
        {name: size for one in found for name, size in one.options.items()},
        tuple(a for one in found for a in one.assumed),
        tuple(u for one in found for u in one.unmodelled),
        tuple(name for one in found for name in one.counted),
    )


def _projector(flags: Mapping[str, str], model: str, where: str) -> ExtraModels:
    file = flags.get("mmproj", "")
    if not file or "no-mmproj" in flags:
        return ExtraModels()
    if "no-mmproj-offload" in flags:
        told = Assumption("mmproj", printable(file)[:80], f"{where}: its weights and work stay on the host (--no-mmproj-offload)")
        return ExtraModels(assumed=(told,), counted=("mmproj", "no-mmproj-offload"))
    size, because = _size_of_file(file), "the size of the file"
    if size is None:
        size, because = _size_of_towers(file, model)
    if not size:
        return ExtraModels()
    told = Assumption("mmproj_bytes", size, f"{where} --mmproj {printable(file)[-80:]}: {because}")
    work = Unmodelled(
        f"the projector's work on an image ({printable(file)[-60:]}): clip.cpp's graph grows with the image's patches"
    )
    return ExtraModels({"mmproj_bytes": size}, (told,), (work,), ("mmproj", "mmproj-offload"))


def _size_of_file(name: str) -> int | None:
    path = existing_path(name)
    return path.stat().st_size if path is not None and path.is_file() else None


def _size_of_towers(file: str, model: str) -> tuple[int | None, str]:
    """The bytes of a model's towers in the type that a projector's file name tells, f16 where it tells none; and why."""
    try:
        held = read_model(artefact_of(model).model, offline=True)
    except VramcastError:
        return None, ""
    told = _type_of(file)
    kind = told or "f16"
    bits = GGML_TYPES[BASE[kind.upper()]].bits_per_weight
    size = int(sum(_bytes_of(one, bits) * count for one, count in _tower_tensors(held)))
    return (
        size or None,
        f"the towers of {held.id} in {kind}, as no file of that name is here{'' if told else ' and it tells no type'}",
    )


def _type_of(file: str) -> str:
    """The GGUF type that a projector's file name tells, first behind its word "mmproj"; "" where it tells none."""
    name = re.split(r"[\\/]", file.lower())[-1]
    words = [*_TYPE.findall(name.partition("mmproj")[2]), *_TYPE.findall(name)]
    kinds = (gguf_type(word.replace("fp32", "f32")) for word in words)
    return next((kind.lower() for kind in kinds if kind in BASE), "")


def _tower_tensors(model: Model) -> list[tuple[Tensor, int]]:
    towers = [tower for tower in model.towers if tower.kind in _TOWERS]
    own = [(one, 1) for tower in towers for one in tower.tensors]
    return own + [(one, block.count) for tower in towers for block in tower.blocks for one in block.tensors]


def _bytes_of(tensor: Tensor, bits: float) -> float:
    matrix = len(tensor.shape) > 1 and tensor.role != "position"
    return tensor.elements * (bits / 8 if matrix else _F32_BYTES)


def _draft(flags: Mapping[str, str], context: int | None, where: str, ask: Callable[..., Asked[Serving]]) -> ExtraModels:
    """A draft's file as weights; its cache and its graph, as a forecast of it alone has them, as a bound."""
    named = next((flags[name] for name in _DRAFTS if flags.get(name)), "")
    layers = next((flags[name] for name in _LAYERS if flags.get(name)), "")
    devices = next((flags[name] for name in _DEVICES if flags.get(name)), "")
    if not named:
        return ExtraModels()
    if layers == "0" or devices.lower() == "none":
        why = "no layer of it on a card (0 of them)" if layers == "0" else "on no device of its own (none)"
        told = Assumption("draft model", printable(named)[-80:], f"{where}: {why}")
        return ExtraModels(assumed=(told,), counted=(*_DRAFTS, *_LAYERS, *_LENGTHS, *_DEVICES))
    length = next((int(flags[name]) for name in _LENGTHS if flags.get(name, "").isdigit()), 0) or context
    terms, whole = _terms_of(named, length, ask, layers), _terms_of(named, length, ask)
    share = terms["weights"] / whole["weights"] if terms and whole and whole.get("weights") else 1
    size = round((_size_of_file(named) or (whole or {}).get("weights", 0)) * share)
    if not size:
        return ExtraModels()
    much = "all on the card" if share == 1 else f"{layers} of its layers on the card"
    told = Assumption("draft_model_bytes", size, f"{where} --model-draft {printable(named)[-80:]}: its weights, {much}")
    rest = sum(bytes_ for name, bytes_ in (terms or {}).items() if name in ("kv_cache", "state", "activations"))
    work = Unmodelled("the draft model's own cache and graph: as large as those of a server of it alone", rest or None)
    return ExtraModels({"draft_model_bytes": size}, (told,), (work,), (*_DRAFTS, *_LAYERS, *_LENGTHS))


def _terms_of(named: str, context: int | None, ask: Callable[..., Asked[Serving]], layers: str = "") -> dict[str, int] | None:
    """The memory of a server of the draft alone, by term; None where its name tells no known model.

    ``layers``: how many are asked to be on the card, "" for all.
    """
    options = {"n_gpu_layers": int(layers)} if layers.isdigit() else {}
    words: dict[str, Any] = {"context": context} if context else {}
    name = re.split(r"[\\/]", named)[-1] if named.lower().endswith(".gguf") else named
    try:
        forecast = answer_serving(ask(name, flags=(), options=options, engine="llama_cpp", **words), advises=False)
    except VramcastError:
        return None
    rank = forecast.ranks[0]
    return {term.name: int(term.bytes) for term in rank.instants[0].terms}
